"""A speculators folder back to a `DrafterCheckpoint`.

Its own embedding and head are dropped where they are the target's; `own_rows.py` compares.
"""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from blockdraft.checkpoint.assemble import assemble
from blockdraft.checkpoint.contents import D2T_NAME, T2D_NAME, DrafterCheckpoint
from blockdraft.checkpoint.mask_embedding import read_mask_embedding
from blockdraft.checkpoint.provenance import read_recorded_tau
from blockdraft.checkpoint.store import CONFIG_FILE
from blockdraft.checkpoint.tensors import list_tensors, read_json, read_tensors
from blockdraft.drafter.config import DrafterConfig
from blockdraft.errors import CheckpointError
from blockdraft.interop.own_rows import strip_target_rows
from blockdraft.interop.speculators.config import parse_speculators
from blockdraft.interop.target_facts import TargetRows

_VERIFIER_TENSORS = ("verifier_lm_head.weight", "verifier_norm.weight")


class ReadDrafter(NamedTuple):
    """A drafter, and what was found out on the way."""

    checkpoint: DrafterCheckpoint
    notes: tuple[str, ...]


def read_speculators(
    folder: Path,
    source: str,
    *,
    rows: TargetRows | None = None,
    num_target_layers: int | None = None,
    head_is_targets: bool = False,
) -> ReadDrafter:
    """The drafter in `folder`.

    `rows` are the target's, to tell its embedding and head from the drafter's own;
    `head_is_targets` says so without them. Raises CheckpointError for what is damaged or can't be
    represented.
    """
    raw = read_json(folder / CONFIG_FILE, source)
    config = parse_speculators(raw, f"{source}/{CONFIG_FILE}", num_target_layers=num_target_layers)
    stored = list_tensors(folder, source)
    wanted = {name: entry for name, entry in stored.items() if name not in _VERIFIER_TENSORS}
    tensors = read_tensors(folder, wanted, source)
    config = _check_vocabulary(config, tensors, source)
    own = strip_target_rows(tensors, config, rows, source, head_is_targets=head_is_targets)
    mask_embedding = read_mask_embedding(folder, config, source)
    checkpoint = assemble(
        config,
        own.tensors,
        source,
        mask_embedding=own.mask_embedding if mask_embedding is None else mask_embedding,
        recorded_tau=read_recorded_tau(folder, source),
    )
    return ReadDrafter(checkpoint, own.notes)


def _check_vocabulary(
    config: DrafterConfig, tensors: dict[str, Tensor], source: str
) -> DrafterConfig:
    """`config`, with a vocabulary as reduced as the tensors say; drops maps that reduce nothing."""
    d2t = tensors.get(D2T_NAME)
    if config.draft_vocab_size is None:
        if d2t is not None and bool(d2t.any()):
            # As many draft ids as target ids, in another order: a reduction to all of them.
            return replace(config, draft_vocab_size=config.vocab_size)
        tensors.pop(D2T_NAME, None)
        tensors.pop(T2D_NAME, None)
        return config
    if d2t is None:
        raise CheckpointError(
            f"{source}: draft_vocab_size is {config.draft_vocab_size} of {config.vocab_size}, but"
            " there is no tensor d2t that says which ids are drafted; fetch the checkpoint again"
        )
    return config
