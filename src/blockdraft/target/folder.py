"""Checks a model folder before transformers sees it, so that every mistake gets one plain line.

It reads JSON and the headers of safetensors files, nothing else: no code, no pickle, no weights.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, cast

from safetensors import SafetensorError, safe_open

from blockdraft.errors import CheckpointError
from blockdraft.json_values import as_list, read_object

PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt")
WEIGHTS_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
HARMLESS_SUFFIXES = (
    "rotary_emb.inv_freq",
    ".attn.bias",  # causal masks of the GPT families, not biases of projections
    ".attn.masked_bias",
    ".attention.bias",
    ".attention.masked_bias",
)


class _Reader(Protocol):
    """The part of safetensors' untyped reader that is used here."""

    def keys(self) -> list[str]: ...


def check_model_folder(folder: Path) -> None:
    """Raise CheckpointError unless `folder` is a target: config and complete safetensors files."""
    config = read_json(folder / "config.json")
    refuse_drafter(folder, config)
    found = {path.name: _tensor_names(path) for path in weight_files(folder)}
    if (folder / INDEX_NAME).exists():
        _check_index(folder / INDEX_NAME, found)


def read_json(path: Path) -> Mapping[str, object]:
    """The JSON object in `path`; CheckpointError when it is missing or something else."""
    try:
        return read_object(path)
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{path.parent} has no {path.name}: give the folder that holds the model's files"
        ) from error
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} is no valid JSON object ({error}): fetch it again"
        ) from error


def refuse_drafter(folder: Path, config: Mapping[str, object]) -> None:
    """Recognize a DFlash drafter, which calls itself a Qwen3 model and would half load as one."""
    names = as_list(config.get("architectures"))
    if "dflash_config" in config or any(str(name).startswith("DFlash") for name in names):
        raise CheckpointError(
            f"{folder} is a DFlash drafter, not a target: give it as the drafter (--drafter) and "
            "name the model it was trained for as the target"
        )


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder, one or the shards of its index; all of them exist."""
    if (folder / INDEX_NAME).exists():
        names = _shard_names(folder / INDEX_NAME)
    elif (folder / WEIGHTS_NAME).exists():
        names = [WEIGHTS_NAME]
    else:
        pickles = [path.name for path in folder.iterdir() if path.suffix in PICKLE_SUFFIXES]
        if pickles:
            raise CheckpointError(
                f"{folder} has its weights only as pickle ({pickles[0]}), which can run code when "
                "read: convert them to safetensors first"
            )
        raise CheckpointError(f"{folder} has no weights: expected {WEIGHTS_NAME} or {INDEX_NAME}")
    for name in names:
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder} lacks the weight file {name}: fetch it again")
    return [folder / name for name in names]


def is_harmless(tensor_name: str) -> bool:
    """Whether a stored tensor is a buffer of older libraries, which models compute themselves."""
    return tensor_name.endswith(HARMLESS_SUFFIXES)


def _weight_map(index: Path) -> dict[str, str]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index} has no weight_map: fetch it again")
    entries = cast(dict[str, object], weight_map)
    return {name: str(shard) for name, shard in entries.items()}


def _shard_names(index: Path) -> list[str]:
    names = sorted(set(_weight_map(index).values()))
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise CheckpointError(
                f"{index} names {name!r} as a weight file: only safetensors files of the same "
                "folder are read"
            )
    return names


def _check_index(index: Path, found: Mapping[str, frozenset[str]]) -> None:
    """Raise CheckpointError for the first tensor on which index and shards disagree."""
    indexed = _weight_map(index).items()
    stored = {(name, shard) for shard, names in found.items() for name in names}
    for name, shard in sorted(indexed - stored):
        raise CheckpointError(
            f"{index} has tensor {name} in {shard}, which lacks it: fetch both again"
        )
    for name, shard in sorted(stored - indexed):
        if not is_harmless(name):
            raise CheckpointError(
                f"{shard} has a tensor {name} that {index} does not have there: fetch both again"
            )


def _tensor_names(path: Path) -> frozenset[str]:
    try:
        opened = cast("AbstractContextManager[_Reader]", safe_open(str(path), framework="pt"))
        with opened as reader:
            return frozenset(reader.keys())
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path} is no complete safetensors file ({error}): fetch it again"
        ) from error
