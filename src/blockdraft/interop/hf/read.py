"""Reading the published HF folder, the learned mask embedding in its published form included.

`checkpoint/store.py` does the work wherever it can.
"""

from collections.abc import Sequence
from pathlib import Path

from blockdraft.checkpoint.contents import DrafterCheckpoint, published_names
from blockdraft.checkpoint.format import parse_config
from blockdraft.checkpoint.provenance import read_recorded_tau
from blockdraft.checkpoint.store import CONFIG_FILE, load_checkpoint
from blockdraft.checkpoint.tensors import list_tensors, read_json, read_tensors
from blockdraft.interop.assemble import assemble, read_mask_embedding, uses_published_mask


def read_hf(folder: Path, source: str, *, taps: Sequence[int] | None = None) -> DrafterCheckpoint:
    """The drafter in `folder`, named `source` in errors; raises CheckpointError as loading does."""
    if not uses_published_mask(folder):
        return load_checkpoint(folder, taps=taps)
    raw = read_json(folder / CONFIG_FILE, source)
    config = parse_config(raw, f"{source}/{CONFIG_FILE}", taps=taps)
    return assemble(
        config,
        published_names(read_tensors(folder, list_tensors(folder, source), source), source),
        source,
        mask_embedding=read_mask_embedding(folder, config, source),
        recorded_tau=read_recorded_tau(folder, source),
    )
