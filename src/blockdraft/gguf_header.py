"""Reads the header of a GGUF file: its metadata and where its tensors lie.

It needs no library and reads no tensor. Package `gguf` has a reader too, which takes a quarter of a
minute for a vocabulary. Layout: the GGUF specification, versions 2 and 3, little-endian.
"""

import mmap
import struct
from pathlib import Path
from typing import NamedTuple

GGUF_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_MOST_DIMENSIONS = 4
_STRING, _ARRAY = 8, 9
_FORMATS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"
}  # fmt: skip
"""The numbers and flags among the value types, as `struct` names them."""

Scalar = bool | int | float | str


class Field(NamedTuple):
    """A metadata value; `kind` is the number of its type, and that of the items when `value` is a
    list (a tuple here)."""

    kind: int
    value: Scalar | tuple[Scalar, ...]


class TensorInfo(NamedTuple):
    """Where a tensor lies: `shape` as in torch (rows last), `stored` the number of its type,
    `offset` in bytes from the start of the file."""

    shape: tuple[int, ...]
    stored: int
    offset: int


class Header(NamedTuple):
    fields: dict[str, Field]
    tensors: dict[str, TensorInfo]


def map_file(path: Path) -> memoryview:
    """The bytes of a file, read when they are looked at. Raises OSError, ValueError when empty."""
    with path.open("rb") as opened:
        return memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))


def parse_header(data: bytes | memoryview) -> Header:
    """The header of the file whose bytes are `data`.

    Raises ValueError, with what is wrong, for bytes that are no complete header.
    """
    cursor = _Cursor(data)
    if bytes(cursor.take(4)) != GGUF_MAGIC:
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
    """Reads values one after the other; ValueError past the end."""

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
        kind = self.number("I")
        if kind != _ARRAY:
            return Field(kind, self._items(kind, 1)[0])
        inner = self.number("I")
        return Field(inner, self._items(inner, self.number("Q")))

    def tensor(self) -> tuple[str, TensorInfo]:
        name = self.text()
        num_dimensions = self.number("I")
        if num_dimensions > _MOST_DIMENSIONS:
            raise ValueError(f"tensor {name} has {num_dimensions} dimensions")
        sizes = [self.number("Q") for _ in range(num_dimensions)]
        return name, TensorInfo(tuple(reversed(sizes)), self.number("I"), self.number("Q"))

    def _items(self, kind: int, count: int) -> tuple[Scalar, ...]:
        if kind == _STRING:
            return tuple(self.text() for _ in range(count))
        letter = _FORMATS.get(kind)
        if letter is None:
            raise ValueError(f"values of type {kind}, which is a list or not known")
        size = struct.calcsize(f"<{letter}")
        if count * size > len(self._data):
            raise ValueError(f"a list of {count} values")
        return struct.unpack(f"<{count}{letter}", self.take(count * size))
