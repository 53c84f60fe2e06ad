"""Load and save drafter checkpoints in the published layout, strictly and without running code.

It builds no model (`build.py`) and checks no target (`pairing.py`). Files of a checkpoint:

    config.json            shape and rules; `auto_map` in it is never followed
    model.safetensors      the weights, or shards with model.safetensors.index.json
    mask_embedding.pt      optional: a learned row instead of the mask token's
"""

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file  # pyright: ignore[reportUnknownVariableType]: bare PathLike
from torch import Tensor

from blockdraft.checkpoint.assemble import assemble
from blockdraft.checkpoint.contents import (
    D2T_NAME,
    HEAD_NAME,
    DrafterCheckpoint,
    StoredTensor,
    check_names_and_shapes,
    published_names,
)
from blockdraft.checkpoint.format import parse_config, render_config, taps_option
from blockdraft.checkpoint.mask_embedding import read_mask_embedding, write_mask_embedding
from blockdraft.checkpoint.provenance import read_recorded_tau, write_recorded_tau
from blockdraft.checkpoint.resolve import resolve
from blockdraft.checkpoint.tensors import WEIGHTS_FILE, list_tensors, read_json, read_tensors
from blockdraft.drafter.config import DrafterConfig
from blockdraft.errors import CheckpointError

CONFIG_FILE = "config.json"


def load_checkpoint(
    where: str | Path,
    *,
    revision: str | None = None,
    taps: Sequence[int] | None = None,
    dtype: torch.dtype | None = None,
) -> DrafterCheckpoint:
    """Read and check the checkpoint in a folder or hub repository; weights cast to `dtype`.

    `taps` gives the tapped layers of a checkpoint that does not name them, or replaces them.
    Raises CheckpointError, in one line, for anything missing, unexpected, damaged or unsupported,
    FetchError when the hub can't or won't give it.
    """
    _refuse_gguf(Path(where))
    folder, source = resolve(where, revision)
    raw = read_json(folder / CONFIG_FILE, source)
    config = parse_config(raw, f"{source}/{CONFIG_FILE}", taps=taps)
    listed = list_tensors(folder, source)
    stored = published_names(listed, source)
    if taps is not None:
        _check_tap_count(config, stored, source)
    check_names_and_shapes(config, stored, source)
    return assemble(
        config,
        published_names(read_tensors(folder, listed, source), source),
        source,
        mask_embedding=read_mask_embedding(folder, config, source),
        recorded_tau=read_recorded_tau(folder, source),
        dtype=dtype,
    )


def _refuse_gguf(where: Path) -> None:
    """Raise CheckpointError, with the command that reads them, for GGUF files."""
    if where.is_file() and where.suffix == ".gguf":
        found = where
    elif where.is_dir() and not (where / CONFIG_FILE).exists():
        files = sorted(where.glob("*.gguf"))
        drafters = [path for path in files if path.name == "drafter.gguf"]
        if not files:
            return
        found = (drafters or files)[0]
    else:
        return
    raise CheckpointError(
        f"{where}: GGUF files are llama.cpp's and not loaded directly; read the drafter with"
        f" `blockdraft export --format hf --target TARGET --drafter {found} --out NEW_FOLDER"
        " --keep-draft-vocabulary` and give that folder"
    )


def save_checkpoint(folder: str | Path, checkpoint: DrafterCheckpoint) -> None:
    """Write `checkpoint` to `folder`, which appears complete or not at all.

    Raises CheckpointError when the folder exists and is not empty, or when `checkpoint` lacks a
    tensor or has one of a wrong shape.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CheckpointError(f"{folder} exists already; remove it or choose another folder")
    tensors = dict(checkpoint.state)
    if checkpoint.lm_head is not None:
        tensors[HEAD_NAME] = checkpoint.lm_head
    if checkpoint.d2t is not None:
        tensors[D2T_NAME] = checkpoint.d2t
    stored = {name: StoredTensor(WEIGHTS_FILE, tuple(t.shape)) for name, t in tensors.items()}
    check_names_and_shapes(checkpoint.config, stored, str(folder))
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        _write(unfinished, checkpoint, tensors)
        unfinished.chmod(0o755)  # mkdtemp makes it private
        unfinished.rename(folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def _write(folder: Path, checkpoint: DrafterCheckpoint, tensors: dict[str, Tensor]) -> None:
    dtype = str(checkpoint.dtype).removeprefix("torch.")
    text = json.dumps(render_config(checkpoint.config, dtype), indent=2)
    (folder / CONFIG_FILE).write_text(f"{text}\n", encoding="utf-8")
    # Clones, since tensors that share memory can't be saved.
    plain = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    save_file(plain, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    (folder / WEIGHTS_FILE).chmod(0o644)  # safetensors makes it private
    if checkpoint.recorded_tau is not None:
        write_recorded_tau(folder, checkpoint.recorded_tau)
    write_mask_embedding(folder, checkpoint.mask_embedding, checkpoint.config.mask_token_id)


def _check_tap_count(
    config: DrafterConfig, stored: Mapping[str, StoredTensor], source: str
) -> None:
    """Raise CheckpointError when the user named another number of layers than `fc` takes."""
    fusion = stored.get("fc.weight")
    if fusion is None or len(fusion.shape) != 2:
        return
    taken, rest = divmod(fusion.shape[1], config.hidden_size)
    if rest == 0 and taken != len(config.taps):
        raise CheckpointError(
            f"{taps_option(config.taps)} names {len(config.taps)} layers, but fc.weight"
            f" {list(fusion.shape)} of {source} takes {taken} (of hidden size"
            f" {config.hidden_size}); name exactly {taken}"
        )
