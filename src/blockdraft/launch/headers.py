"""What the headers of GGUF and safetensors files say, read without any library.

It reads no tensors, and skips arrays of GGUF: tokens and merges are most of such a header.
"""

import json
import struct
from pathlib import Path
from typing import BinaryIO, cast

from blockdraft.errors import CheckpointError

MAGIC = b"GGUF"
STRING, ARRAY = 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q"}
SCALARS[12] = "d"

Scalar = int | float | str


def read_gguf_header(path: Path) -> dict[str, Scalar]:
    """Every key whose value is one number, flag or string. Raises CheckpointError."""
    try:
        with path.open("rb") as file:
            return _read(file)
    except (OSError, struct.error, UnicodeDecodeError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"{path} is no readable GGUF file ({type(error).__name__}: {error}); write it again"
        ) from error


def tensor_names(path: Path) -> list[str]:
    """The tensors of a safetensors file. Raises CheckpointError."""
    try:
        with path.open("rb") as file:
            length = int(_scalar(file, "Q"))
            if length > 1 << 28:
                raise ValueError(f"a header of {length} bytes")
            header = cast("dict[str, object]", json.loads(file.read(length)))
            return [name for name in header if name != "__metadata__"]
    except (OSError, struct.error, ValueError, TypeError) as error:
        raise CheckpointError(
            f"{path} is no readable safetensors file ({type(error).__name__}: {error}); write it "
            "again"
        ) from error


def _read(file: BinaryIO) -> dict[str, Scalar]:
    if file.read(4) != MAGIC:
        raise ValueError("it does not begin with GGUF")
    version = _scalar(file, "I")
    if version not in (2, 3):
        raise ValueError(f"version {version}, where 2 and 3 are known")
    _scalar(file, "Q")  # the number of tensors
    found: dict[str, Scalar] = {}
    for _ in range(int(_scalar(file, "Q"))):
        key = _string(file)
        kind = int(_scalar(file, "I"))
        if kind == ARRAY:
            _skip_array(file)
        else:
            found[key] = _string(file) if kind == STRING else _scalar(file, SCALARS[kind])
    return found


def _scalar(file: BinaryIO, code: str) -> int | float:
    size = struct.calcsize("<" + code)
    (value,) = struct.unpack("<" + code, file.read(size))
    assert isinstance(value, int | float)
    return value


def _string(file: BinaryIO) -> str:
    length = int(_scalar(file, "Q"))
    if length > 1 << 24:
        raise ValueError(f"a string of {length} bytes")
    return file.read(length).decode("utf-8")


def _skip_array(file: BinaryIO) -> None:
    kind, length = int(_scalar(file, "I")), int(_scalar(file, "Q"))
    if kind == STRING:
        for _ in range(length):
            file.seek(int(_scalar(file, "Q")), 1)
    elif kind == ARRAY:
        for _ in range(length):
            _skip_array(file)
    else:
        file.seek(struct.calcsize("<" + SCALARS[kind]) * length, 1)
