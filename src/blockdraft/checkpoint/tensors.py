"""Read safetensors files of a checkpoint folder: one file or an index with shards.

It knows no tensor names; pickled weights are never opened here.
"""

from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol, cast

from safetensors import SafetensorError, safe_open
from torch import Tensor

from blockdraft.checkpoint.contents import StoredTensor
from blockdraft.errors import CheckpointError
from blockdraft.json_values import read_object

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

_PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


def read_json(path: Path, source: str) -> dict[str, object]:
    """The JSON object in `path`; raises CheckpointError when it is missing or malformed."""
    try:
        return read_object(path)
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{source}: there is no {path.name}; pass a folder in the published DFlash layout"
            " (config.json and model.safetensors)"
        ) from error
    except (ValueError, OSError) as error:
        raise CheckpointError(
            f"{source}: {path.name} is no readable JSON object ({_one_line(error)}); fetch it again"
        ) from error


def list_tensors(folder: Path, source: str) -> dict[str, StoredTensor]:
    """Name, file and shape of every stored tensor, from the files' headers alone."""
    stored: dict[str, StoredTensor] = {}
    indexed = _read_index(folder, source)
    files = _single_file(folder, source) if indexed is None else sorted(set(indexed.values()))
    for file in files:
        with _opened(folder, file, source) as reader:
            for name in reader.keys():  # noqa: SIM118 (the reader is not iterable)
                shape = tuple(reader.get_slice(name).get_shape())
                if name in stored:
                    raise CheckpointError(
                        f"{source}: tensor {name} is in {stored[name].file} and in {file};"
                        " fetch the checkpoint again"
                    )
                stored[name] = StoredTensor(file, shape)
    if indexed is not None:
        _check_index(indexed, stored, source)
    return stored


def read_tensors(
    folder: Path, stored: Mapping[str, StoredTensor], source: str
) -> dict[str, Tensor]:
    """The tensors that `list_tensors` found, on the CPU, in their stored types."""
    tensors: dict[str, Tensor] = {}
    for file in sorted({tensor.file for tensor in stored.values()}):
        with _opened(folder, file, source) as reader:
            for name, tensor in stored.items():
                if tensor.file == file:
                    tensors[name] = reader.get_tensor(name)
    return tensors


class _Slice(Protocol):
    def get_shape(self) -> list[int]: ...


class _Reader(Protocol):
    """The part of safetensors' untyped reader that is used here."""

    def keys(self) -> list[str]: ...
    def get_slice(self, name: str) -> _Slice: ...
    def get_tensor(self, name: str) -> Tensor: ...


@contextmanager
def _opened(folder: Path, file: str, source: str) -> Generator[_Reader]:
    """The reader of one file, whose failures become CheckpointErrors."""
    try:
        with cast("AbstractContextManager[_Reader]", safe_open(folder / file, "pt")) as reader:
            yield reader
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{source}: {file} is truncated or damaged ({_one_line(error)}); fetch it again"
        ) from error


def _single_file(folder: Path, source: str) -> list[str]:
    if (folder / WEIGHTS_FILE).exists():
        return [WEIGHTS_FILE]
    pickled = sorted(p.name for p in folder.iterdir() if p.suffix in _PICKLE_SUFFIXES)
    pickled = [name for name in pickled if name != "mask_embedding.pt"]
    if pickled:
        raise CheckpointError(
            f"{source}: the weights are pickled ({pickled[0]}), which can run code when loaded and"
            f" is never opened; convert them to {WEIGHTS_FILE}"
        )
    raise CheckpointError(
        f"{source}: there is neither {WEIGHTS_FILE} nor {INDEX_FILE}, and other kinds of weights"
        " are not read; pass a folder or repository that has them"
    )


def _read_index(folder: Path, source: str) -> dict[str, str] | None:
    """Tensor to shard as the index has it, the shards existing; None when no index is used."""
    if (folder / WEIGHTS_FILE).exists() or not (folder / INDEX_FILE).exists():
        return None
    weight_map = read_json(folder / INDEX_FILE, source).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(
            f"{source}: {INDEX_FILE} has no object 'weight_map'; fetch the checkpoint again"
        )
    entries = cast("dict[str, object]", weight_map)
    indexed = {name: str(shard) for name, shard in entries.items()}
    for name in sorted(set(indexed.values())):
        if "/" in name or "\\" in name or ".." in name or not name.endswith(".safetensors"):
            raise CheckpointError(
                f"{source}: {INDEX_FILE} names a shard {name!r}, expected a .safetensors file of"
                " the same folder; do not use this checkpoint unless you trust it"
            )
        if not (folder / name).is_file():
            raise CheckpointError(
                f"{source}: shard {name} of {INDEX_FILE} is missing; fetch the checkpoint again"
            )
    return indexed


def _check_index(
    indexed: Mapping[str, str], stored: Mapping[str, StoredTensor], source: str
) -> None:
    """Raise CheckpointError for the first tensor on which index and shards disagree."""
    for name in sorted(indexed.keys() | stored.keys()):
        found = stored[name].file if name in stored else "no shard"
        said = indexed.get(name, "no shard")
        if found != said:
            raise CheckpointError(
                f"{source}: {INDEX_FILE} has tensor {name} in {said}, but it is in {found}; index"
                " and shards do not belong together: fetch the checkpoint again"
            )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
