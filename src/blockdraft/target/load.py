"""`load_target`: from a name, folder, hub id or GGUF file to a target that is ready to decode.

It resolves and checks; reading weights is in `hf_load.py`, the model itself in `hf.py`.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import PreTrainedModel

from blockdraft.builtin import builtin_target_names, ensure_builtin_target
from blockdraft.builtin.model_cache import cache_root, make_once
from blockdraft.errors import CheckpointError, ConfigError
from blockdraft.target.folder import check_model_folder
from blockdraft.target.hf import MOST_PASS_ROWS, NO_META, HFTarget, check_pass_width
from blockdraft.target.hf_gguf import dequantize_gguf
from blockdraft.target.hf_load import load_model, load_text
from blockdraft.target.hub import fetch_snapshot, parse_hub_id
from blockdraft.target.quiet import first_line, quiet
from blockdraft.target.text import TextCodec

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}

TARGET_FILES = ("*.json", "*.safetensors", "*.jinja", "*.txt", "*.model")
"""What is fetched of a target: configuration, tokenizer and weights; no code and no pickle."""

CONVERSION = 2
"""Counts what `dequantize_gguf` made of files, so that copies of older kinds are not used: 1 had
lost scaled rotary embeddings and biases."""

Report = Callable[[str], None]
"""Takes one line for people, such as how much is about to be downloaded."""


class LoadedParts(NamedTuple):
    """A model with all its weights, and its tokenizer (None when it has none)."""

    model: PreTrainedModel
    text: TextCodec | None


def load_target(
    source: str | Path,
    *,
    dtype: str | torch.dtype = "float32",
    device: str | torch.device | None = None,
    revision: str | None = None,
    batch_invariant: int | None = None,
    attn: str | None = None,
    report: Report | None = None,
) -> HFTarget:
    """Load a target model, its tokenizer included (`.text`, None when it has none).

    `source` is a built-in name, a folder with safetensors weights, a GGUF file, or a hub id
    `owner/name[@revision]`. `batch_invariant` = n makes a token's logits independent of what is
    verified with it, at n rows a pass. Raises CheckpointError for a source that is missing or
    damaged, FetchError when it can't be downloaded, UnsupportedTarget for a model that can't be
    rolled back, ConfigError for a setting that makes no sense.
    """
    if batch_invariant is not None and attn is not None:
        raise ConfigError("batch_invariant brings its own attention: leave attn out")
    check_pass_width(batch_invariant, MOST_PASS_ROWS)
    parts = load_parts(
        source,
        dtype=parse_dtype(dtype),
        device=device,
        revision=revision,
        attn="eager" if batch_invariant is not None else attn,
        report=report or _say_nothing,
    )
    with quiet():
        return HFTarget(
            parts.model, name=str(source), text=parts.text, batch_invariant=batch_invariant
        )


def load_parts(
    source: str | Path,
    *,
    dtype: torch.dtype,
    device: str | torch.device | None,
    revision: str | None,
    attn: str | None,
    report: Report,
) -> LoadedParts:
    """Find, check and read a model and its tokenizer; what they are used for is the caller's."""
    if str(device).partition(":")[0] == "meta":
        raise ConfigError(NO_META)
    folder = resolve_source(str(source), revision, report)
    check_model_folder(folder)
    model = load_model(folder, dtype, attn)
    if device is not None:
        move_to(model, device)
    with quiet():
        return LoadedParts(model, load_text(folder, str(source)))


def parse_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """The torch dtype of a name; ConfigError for one that is not offered."""
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype not in DTYPES:
        raise ConfigError(f"dtype {dtype!r} is unknown: use one of {', '.join(DTYPES)}")
    return DTYPES[dtype]


def move_to(model: torch.nn.Module, device: str | torch.device) -> None:
    """Move the weights; ConfigError for a device that does not exist here or is too small."""
    try:
        model.to(device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(
            f"the model can't be put on device {device}: {first_line(error)}"
        ) from error


def resolve_source(source: str, revision: str | None, report: Report) -> Path:
    """The folder that `source` names, after any download or conversion."""
    path = Path(source).expanduser()
    hub_id = None if path.exists() else parse_hub_id(source, revision)
    if revision is not None and hub_id is None:
        raise ConfigError(f"a revision ({revision}) belongs to a hub id, and {source} is none")
    if source in builtin_target_names():
        return ensure_builtin_target(source, dequantize_gguf, report)
    if path.suffix == ".gguf":
        return convert_gguf(path, report)
    if path.is_dir():
        return path
    if path.exists():
        raise CheckpointError(f"{source} is a file: give the model's folder, or a .gguf file")
    if hub_id is not None:
        report(f"Looking up {hub_id.name} on the Hugging Face hub (downloads it the first time)")
        with quiet():
            return fetch_snapshot(hub_id, TARGET_FILES)
    raise CheckpointError(
        f"no target {source!r}: give a folder, a .gguf file, a hub id (owner/name) or a built-in "
        f"name ({', '.join(builtin_target_names())})"
    )


def convert_gguf(gguf: Path, report: Report) -> Path:
    """A safetensors copy of `gguf` in the user's cache, made once for this file as it is now."""
    try:
        status = gguf.stat()
    except OSError as error:
        raise CheckpointError(f"there is no file {gguf}: check the path") from error
    identity = f"{gguf.resolve()}\n{status.st_size}\n{status.st_mtime_ns}\n{CONVERSION}"
    key = hashlib.sha256(identity.encode()).hexdigest()[:16]
    folder = cache_root() / "gguf" / f"{gguf.stem}-{key}"

    def build(empty: Path) -> None:
        report(f"Dequantizing {gguf.name} into {folder}, once")
        dequantize_gguf(gguf, empty)

    return make_once(folder, build)


def _say_nothing(line: str) -> None:
    pass
