"""Reads from disk what a launch has to know of a target and a drafter: layout, block, heads.

It reads config files and headers, no weights; whether the two fit is `blockdraft check`'s business.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from blockdraft.builtin import builtin_drafter_path, builtin_models
from blockdraft.errors import CheckpointError
from blockdraft.json_values import as_list, as_object, read_object
from blockdraft.launch.headers import read_gguf_header, tensor_names
from blockdraft.launch.order import LaunchDrafter, LaunchTarget, PairForLaunch

TARGET_GGUF = "target.gguf"
DRAFTER_GGUF = "drafter.gguf"
"""The names that `blockdraft export --format gguf` gives its files."""

OPENVINO_MODEL = "openvino_model.xml"
GGUF_BLOCK_SIZE = 16
"""What llama.cpp takes where a file does not say."""

EMBEDDINGS = {"embed_tokens", "wte", "tok_embeddings", "word_embeddings", "embed_in"}
"""What families call their input matrix."""

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


def read_pair(target: str, drafter: str) -> PairForLaunch:
    """What engines are told of `target` and `drafter`.

    Each is a built-in name, a folder (HF, speculators, OpenVINO, or one into which export wrote
    GGUF files), a GGUF file or a hub id. Local paths become absolute. Raises CheckpointError for
    what is missing, damaged, or the other of the two.
    """
    return PairForLaunch(target=read_target(target), drafter=read_drafter(drafter))


def read_target(where: str) -> LaunchTarget:
    builtin = next((model for model in builtin_models() if model.name == where), None)
    if builtin is not None and not builtin.cached:
        raise CheckpointError(
            f"the built-in target {where} is not on this machine yet: `blockdraft demo` fetches it"
        )
    path = Path(where) if builtin is None else builtin.path
    gguf = _gguf_of(path, TARGET_GGUF)
    if gguf is not None:
        arch = read_gguf_header(gguf).get("general.architecture")
        if arch == "dflash":
            raise CheckpointError(f"{gguf} is a drafter, not a target; give it as --drafter")
        return LaunchTarget(where=str(gguf), layout="gguf")
    config = _config_of(path, where)
    if config is None:
        return LaunchTarget(where=where, layout="remote")
    if _is_drafter(config):
        raise CheckpointError(
            f"{path} is a DFlash drafter, not a target: give it as --drafter, and the model it was "
            "trained for as --target"
        )
    return LaunchTarget(
        where=str(path.absolute()),
        layout="openvino" if (path / OPENVINO_MODEL).is_file() else "hf",
        num_heads=_integer(config, "num_attention_heads"),
        has_only_head=_has_only_head(path),
    )


def read_drafter(where: str) -> LaunchDrafter:
    path = builtin_drafter_path(where) or Path(where)
    gguf = _gguf_of(path, DRAFTER_GGUF)
    if gguf is not None:
        return _gguf_drafter(gguf)
    config = _config_of(path, where)
    if config is None:
        return LaunchDrafter(where=where, layout="remote")
    if not _is_drafter(config):
        raise CheckpointError(
            f"{path} is no DFlash drafter: its config.json has neither dflash_config nor "
            "speculators_model_type; give the folder that training or export wrote"
        )
    nested = as_object(config.get("dflash_config"))
    is_speculators = "speculators_model_type" in config
    shape = as_object(config.get("transformer_layer_config")) if is_speculators else config
    drafted = _integer(nested, "draft_vocab_size") or _integer(config, "draft_vocab_size")
    block_size = _integer(nested, "block_size") or _integer(config, "block_size")
    if block_size is None:
        raise CheckpointError(f"{path / 'config.json'} has no block_size; add what was trained")
    if is_speculators:
        layout = "speculators"
    else:
        layout = "openvino" if (path / OPENVINO_MODEL).is_file() else "hf"
    return LaunchDrafter(
        where=str(path.absolute()),
        layout=layout,
        block_size=block_size,
        num_heads=_integer(shape, "num_attention_heads"),
        max_positions=_integer(shape, "max_position_embeddings"),
        has_reduced_vocabulary=drafted not in (None, _integer(shape, "vocab_size")),
    )


def _gguf_drafter(path: Path) -> LaunchDrafter:
    header = read_gguf_header(path)
    arch = header.get("general.architecture")
    if arch != "dflash":
        raise CheckpointError(
            f"{path} is a GGUF file of architecture {arch}, not a DFlash drafter (dflash)"
        )
    return LaunchDrafter(
        where=str(path),
        layout="gguf",
        block_size=_integer(header, "dflash.block_size") or GGUF_BLOCK_SIZE,
        num_heads=_integer(header, "dflash.attention.head_count"),
        max_positions=_integer(header, "dflash.context_length"),
    )


def _gguf_of(path: Path, name: str) -> Path | None:
    """The GGUF file that `path` is, or holds as export names it."""
    if path.suffix == ".gguf" and path.is_file():
        return path.absolute()
    inside = path / name
    return inside.absolute() if inside.is_file() else None


def _config_of(path: Path, where: str) -> Mapping[str, object] | None:
    """The config.json of a folder; None for a hub id. Raises CheckpointError."""
    if not path.is_dir():
        if not path.exists() and _HUB_ID.fullmatch(where):
            return None
        raise CheckpointError(
            f"{where}: there is no such folder or GGUF file, and it is not a hub id (owner/name)"
        )
    file = path / "config.json"
    try:
        return read_object(file)
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} holds no config.json and no GGUF file of export; give a model's folder"
        ) from None
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{file} is no valid JSON object ({error}); write it again"
        ) from error


def _has_only_head(folder: Path) -> bool:
    """Whether the weights in `folder` have an output matrix and no input matrix."""
    names: set[str] = set()
    for path in sorted(folder.glob("*.safetensors")):
        names.update(tensor_names(path))
    ends = {name.rpartition(".weight")[0].rpartition(".")[2] for name in names}
    return "lm_head" in ends and not ends & EMBEDDINGS


def _is_drafter(config: Mapping[str, object]) -> bool:
    if config.get("speculators_model_type") is not None:
        return config["speculators_model_type"] == "dflash"
    names = as_list(config.get("architectures"))
    return "dflash_config" in config or any(str(name).startswith("DFlash") for name in names)


def _integer(config: Mapping[str, object], name: str) -> int | None:
    value = config.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
