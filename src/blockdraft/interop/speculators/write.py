"""A drafter as a speculators folder: body, the target's embedding, head rows, `d2t` and `t2d`.

It decides no causality; `config.py` does. `verifier_*` tensors are not written: vLLM reads none.
"""

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from blockdraft.checkpoint.contents import D2T_NAME, HEAD_NAME, T2D_NAME, DrafterCheckpoint
from blockdraft.checkpoint.mask_embedding import write_mask_embedding
from blockdraft.checkpoint.store import CONFIG_FILE
from blockdraft.errors import CheckpointError
from blockdraft.interop.new_folder import write_json, write_weights
from blockdraft.interop.own_rows import EMBEDDING_NAME, head_rows
from blockdraft.interop.speculators.config import refuse_unrepresentable, render_speculators
from blockdraft.interop.target_facts import TargetFacts, TargetRows


def for_speculators(checkpoint: DrafterCheckpoint, target: TargetFacts) -> DrafterCheckpoint:
    """The same drafter with the target's exact vocabulary (without other padding).

    Raises CheckpointError for what the format can't say.
    """
    refuse_unrepresentable(checkpoint.config, checkpoint.source)
    if target.model_type.startswith("gemma"):
        raise CheckpointError(
            f"{target.name}: a {target.model_type} target scales its embedding inside the model,"
            " and an engine would feed the rows of this folder unscaled; use --format hf"
        )
    if checkpoint.lm_head is not None and checkpoint.d2t is None:
        rows = len(checkpoint.lm_head)
        if rows != target.vocab_size:
            raise CheckpointError(
                f"{checkpoint.source}: the drafter's own head has {rows} rows, the target"
                f" {target.vocab_size}; a head must have a row for each id of the target here"
            )
    d2t = checkpoint.d2t
    if d2t is not None and len(d2t) == target.vocab_size:
        if bool(d2t.any()):
            raise CheckpointError(
                f"{checkpoint.source}: the draft vocabulary is the whole one in another order,"
                " which vLLM does not map; use --format hf"
            )
        d2t = None
    drafted = None if d2t is None else len(d2t)
    config = replace(checkpoint.config, vocab_size=target.vocab_size, draft_vocab_size=drafted)
    return replace(checkpoint, config=config, d2t=d2t)


def write_speculators(
    folder: Path,
    checkpoint: DrafterCheckpoint,
    target: TargetFacts,
    rows: TargetRows,
    verifier: str,
) -> None:
    """Config, weights and mask embedding into the existing, empty `folder`.

    `checkpoint` comes from `for_speculators`; embedding and head rows are cast to its type.
    """
    name = str(checkpoint.dtype).removeprefix("torch.")
    config = render_speculators(checkpoint.config, name, target, verifier)
    write_json(folder / CONFIG_FILE, config)
    write_weights(folder, _tensors(checkpoint, rows))
    write_mask_embedding(folder, checkpoint.mask_embedding, checkpoint.config.mask_token_id)


def _tensors(checkpoint: DrafterCheckpoint, rows: TargetRows) -> dict[str, Tensor]:
    config = checkpoint.config
    tensors = dict(checkpoint.state)
    tensors[EMBEDDING_NAME] = rows.embedding.to(checkpoint.dtype)
    head = checkpoint.lm_head
    if head is None:
        head = head_rows(rows, config, checkpoint.d2t).to(checkpoint.dtype)
    tensors[HEAD_NAME] = head
    if checkpoint.d2t is not None:
        drafted = torch.zeros(config.vocab_size, dtype=torch.bool)
        drafted[torch.arange(len(checkpoint.d2t)) + checkpoint.d2t] = True
        tensors[D2T_NAME] = checkpoint.d2t.long()
        tensors[T2D_NAME] = drafted
    return tensors
