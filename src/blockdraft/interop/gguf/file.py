"""A GGUF file written tensor by tensor and put in place at once; and read, with plain types.

It knows the container, not what any key or tensor means. This is the edge to package `gguf`.
"""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import gguf
import numpy as np
import numpy.typing as npt
from torch import Tensor

from blockdraft.errors import CheckpointError, ConfigError
from blockdraft.gguf_header import Scalar, TensorInfo, map_file, parse_header
from blockdraft.interop.gguf.dtypes import Quantization, encode, num_bytes

Kind = gguf.GGUFValueType

ARCHITECTURE_KEY = "general.architecture"


class Value(NamedTuple):
    """One metadata value: its GGUF type (of the items, for a list) and the value itself."""

    kind: Kind
    value: Scalar | Sequence[Scalar]

    @property
    def is_list(self) -> bool:
        return not isinstance(self.value, bool | int | float | str)


Metadata = dict[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """A tensor to write: `load` is called once, when its turn has come. `shape` as in torch."""

    name: str
    shape: tuple[int, ...]
    stored: Quantization
    load: Callable[[], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEntry:
    """A tensor of an open file; `data` is mapped from disk. `shape` as in torch."""

    shape: tuple[int, ...]
    stored: Quantization
    data: npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufFile:
    """What a GGUF file holds, in the file's order."""

    path: Path
    architecture: str
    metadata: Metadata
    tensors: Mapping[str, StoredEntry]


def u32(value: int) -> Value:
    return Value(Kind.UINT32, value)


def f32(value: float) -> Value:
    return Value(Kind.FLOAT32, value)


def text(value: str) -> Value:
    return Value(Kind.STRING, value)


def flag(value: bool) -> Value:
    return Value(Kind.BOOL, value)


def write_file(
    path: Path, architecture: str, metadata: Metadata, tensors: Sequence[TensorEntry]
) -> None:
    """Write a file that appears under `path` complete or not at all; an existing one is refused.

    One tensor is in memory at a time. The same input gives the same bytes. Raises ConfigError when
    `path` exists or can't be written.
    """
    if path.exists():
        raise ConfigError(f"{path} exists already; remove it or choose another file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise ConfigError(
            f"can't write to {path.parent} ({error.strerror}); choose another folder"
        ) from error
    os.close(handle)
    unfinished = Path(scratch)
    try:
        _write(unfinished, architecture, metadata, tensors)
        with unfinished.open("rb") as written:
            os.fsync(written.fileno())
        unfinished.chmod(0o644)  # mkstemp makes it private
        os.replace(unfinished, path)
    except OSError as error:
        raise ConfigError(
            f"can't write {path} ({error.strerror}); make room or choose another folder"
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)


def read_file(path: Path) -> GgufFile:
    """Open a GGUF file; CheckpointError when it is missing, damaged or of another kind."""
    if not path.is_file():
        raise CheckpointError(f"there is no file {path}: give a .gguf file")
    try:
        mapped = map_file(path)
        header = parse_header(mapped)
        data = np.frombuffer(mapped, dtype=np.uint8)
        metadata = {key: Value(Kind(kind), value) for key, (kind, value) in header.fields.items()}
        tensors = {name: _stored_entry(info, data, name) for name, info in header.tensors.items()}
    except (ValueError, KeyError, OSError) as error:
        raise CheckpointError(
            f"{path} is no complete GGUF file ({_one_line(error)}): fetch it again"
        ) from error
    found = metadata.get(ARCHITECTURE_KEY)
    if found is None or not isinstance(found.value, str):
        raise CheckpointError(f"{path} does not name its architecture: fetch it again")
    return GgufFile(path=path, architecture=found.value, metadata=metadata, tensors=tensors)


def _write(
    path: Path, architecture: str, metadata: Metadata, tensors: Sequence[TensorEntry]
) -> None:
    writer = gguf.GGUFWriter(path, architecture)
    try:
        for key, value in metadata.items():
            if value.is_list:
                writer.add_key_value(key, value.value, Kind.ARRAY, sub_type=value.kind)
            else:
                writer.add_key_value(key, value.value, value.kind)
        for entry in tensors:
            size = num_bytes(entry.shape, entry.stored)
            # With the stored type given, the numpy type says only that `shape` counts elements.
            writer.add_tensor_info(
                entry.name, entry.shape, np.dtype(np.float32), size, raw_dtype=entry.stored
            )
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for entry in tensors:
            loaded = entry.load()
            assert tuple(loaded.shape) == entry.shape, f"{entry.name} changed its shape"
            writer.write_tensor_data(encode(loaded, entry.stored, entry.name))
    finally:
        writer.close()


def _stored_entry(info: TensorInfo, data: npt.NDArray[np.uint8], name: str) -> StoredEntry:
    stored = gguf.GGMLQuantizationType(info.stored)
    end = info.offset + num_bytes(info.shape, stored)
    if end > len(data):
        raise ValueError(f"tensor {name} ends at byte {end}, the file at {len(data)}")
    return StoredEntry(shape=info.shape, stored=stored, data=data[info.offset : end])


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
