"""What the headers of GGUF and safetensors files say, read without any library.

It reads no tensors.
"""

import json
from pathlib import Path
from typing import cast

from blockdraft.errors import CheckpointError
from blockdraft.gguf_header import Scalar, map_file, parse_header


def read_gguf_header(path: Path) -> dict[str, Scalar]:
    """Every key whose value is one number, flag or string. Raises CheckpointError."""
    try:
        fields = parse_header(map_file(path)).fields
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} is no readable GGUF file ({type(error).__name__}: {error}); write it again"
        ) from error
    return {key: value for key, (_, value) in fields.items() if not isinstance(value, tuple)}


def tensor_names(path: Path) -> list[str]:
    """The tensors of a safetensors file. Raises CheckpointError."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > 1 << 28:
                raise ValueError(f"a header of {length} bytes")
            header = cast("dict[str, object]", json.loads(file.read(length)))
            return [name for name in header if name != "__metadata__"]
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is no readable safetensors file ({type(error).__name__}: {error}); write it "
            "again"
        ) from error
