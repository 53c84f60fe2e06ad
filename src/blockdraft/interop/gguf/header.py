"""Reads the header of a GGUF file: its metadata and where its tensors lie.

Package `gguf` has a reader too, which takes a quarter of a minute for a vocabulary. Layout: the
GGUF specification, versions 2 and 3, little-endian.
"""

import struct
from typing import NamedTuple

import gguf

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_MOST_DIMENSIONS = 4

Kind = gguf.GGUFValueType
Scalar = bool | int | float | str

_FORMATS: dict[Kind, str] = {
    Kind.UINT8: "B",
    Kind.INT8: "b",
    Kind.UINT16: "H",
    Kind.INT16: "h",
    Kind.UINT32: "I",
    Kind.INT32: "i",
    Kind.FLOAT32: "f",
    Kind.BOOL: "?",
    Kind.UINT64: "Q",
    Kind.INT64: "q",
    Kind.FLOAT64: "d",
}


class Field(NamedTuple):
    """A metadata value; `kind` is that of the items when `value` is a list (a tuple here)."""

    kind: Kind
    value: Scalar | tuple[Scalar, ...]


class TensorInfo(NamedTuple):
    """Where a tensor lies: `shape` as in torch (rows last), `offset` in bytes from the start."""

    shape: tuple[int, ...]
    stored: gguf.GGMLQuantizationType
    offset: int


class Header(NamedTuple):
    fields: dict[str, Field]
    tensors: dict[str, TensorInfo]


def parse_header(data: bytes | memoryview) -> Header:
    """The header of the file whose bytes are `data`.

    Raises ValueError, with what is wrong, for bytes that are no complete header.
    """
    cursor = _Cursor(data)
    if bytes(cursor.take(4)) != MAGIC:
        raise ValueError("it does not start with GGUF")
    version = cursor.number("I")
    if version not in _VERSIONS:
        raise ValueError(f"version {version} is not one of {_VERSIONS}, or of another byte order")
    num_tensors, num_fields = cursor.number("Q"), cursor.number("Q")
    fields: dict[str, Field] = {}
    for _ in range(num_fields):
        key = cursor.text()
        fields[key] = cursor.field()
    infos = [cursor.tensor() for _ in range(num_tensors)]
    alignment = fields.get("general.alignment")
    step = _DEFAULT_ALIGNMENT if alignment is None else alignment.value
    if not isinstance(step, int) or step < 1:
        raise ValueError(f"alignment {step!r}")
    start = -(-cursor.position // step) * step
    if len(dict(infos)) < num_tensors:
        raise ValueError("two tensors have one name")
    return Header(fields, {name: info._replace(offset=start + info.offset) for name, info in infos})


class _Cursor:
    """Reads values one after the other; struct.error and ValueError past the end."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        self.position = 0

    def take(self, length: int) -> memoryview:
        end = self.position + length
        if end > len(self._data):
            raise ValueError(f"it ends at byte {len(self._data)}, expected {end} at least")
        taken = self._data[self.position : end]
        self.position = end
        return taken

    def number(self, letter: str) -> int:
        (value,) = struct.unpack(f"<{letter}", self.take(struct.calcsize(f"<{letter}")))
        return int(value)

    def text(self) -> str:
        return str(self.take(self.number("Q")), encoding="utf-8")

    def field(self) -> Field:
        kind = Kind(self.number("I"))
        if kind != Kind.ARRAY:
            return Field(kind, self._items(kind, 1)[0])
        inner = Kind(self.number("I"))
        return Field(inner, self._items(inner, self.number("Q")))

    def tensor(self) -> tuple[str, TensorInfo]:
        name = self.text()
        num_dimensions = self.number("I")
        if num_dimensions > _MOST_DIMENSIONS:
            raise ValueError(f"tensor {name} has {num_dimensions} dimensions")
        sizes = [self.number("Q") for _ in range(num_dimensions)]
        stored = gguf.GGMLQuantizationType(self.number("I"))
        return name, TensorInfo(tuple(reversed(sizes)), stored, self.number("Q"))

    def _items(self, kind: Kind, count: int) -> tuple[Scalar, ...]:
        if kind == Kind.STRING:
            return tuple(self.text() for _ in range(count))
        letter = _FORMATS.get(kind)
        if letter is None:
            raise ValueError(f"a list of {kind.name.lower()}")
        size = struct.calcsize(f"<{letter}")
        if count * size > len(self._data):
            raise ValueError(f"a list of {count} values")
        return struct.unpack(f"<{count}{letter}", self.take(count * size))
