"""Whether an embedding or a head that a drafter brings is just the target's, row for row.

It compares tensors in the drafter's stored type and reads no files.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from blockdraft.checkpoint.contents import D2T_NAME, HEAD_NAME
from blockdraft.drafter.config import DrafterConfig
from blockdraft.errors import CheckpointError
from blockdraft.interop.target_facts import TargetRows

EMBEDDING_NAME = "embed_tokens.weight"


class OwnRows(NamedTuple):
    """What is left of a drafter's own embedding and head beside the target's.

    `mask_embedding` is the one row in which the embedding differs. `notes` say what was found.
    """

    tensors: dict[str, Tensor]
    mask_embedding: Tensor | None
    notes: tuple[str, ...]


def strip_target_rows(
    tensors: Mapping[str, Tensor],
    config: DrafterConfig,
    rows: TargetRows | None,
    source: str,
    *,
    head_is_targets: bool = False,
) -> OwnRows:
    """`tensors` without an embedding, and without a head that equals the target's.

    Without `rows` nothing can be compared: the embedding is taken to be the target's, the head is
    kept unless `head_is_targets`. Raises CheckpointError for an embedding of the drafter's own.
    """
    left = dict(tensors)
    notes: list[str] = []
    mask_embedding: Tensor | None = None
    embedding = left.pop(EMBEDDING_NAME, None)
    if embedding is not None and rows is None:
        notes.append("its own embedding was not compared with the target's (no target was given)")
    elif embedding is not None and rows is not None:
        mask_embedding = _differing_mask_row(embedding, rows.embedding, config, source)
        if mask_embedding is not None:
            notes.append("its embedding differs from the target's in the mask token's row only")
    head = left.get(HEAD_NAME)
    if head is not None:
        same = head_is_targets
        if rows is not None:
            wanted = head_rows(rows, config, left.get(D2T_NAME))
            same = wanted.shape == head.shape and torch.equal(wanted.to(head.dtype), head)
        if same:
            del left[HEAD_NAME]
            notes.append("its head is made of the target's rows and is left to the target")
        elif rows is not None:
            notes.append("its head differs from the target's and is kept")
    return OwnRows(left, mask_embedding, tuple(notes))


def head_rows(
    rows: TargetRows, config: DrafterConfig, d2t: Int[Tensor, " draft"] | None
) -> Float[Tensor, "rows hidden"]:
    """The target's head for the ids that are drafted; `d2t` are offsets."""
    if d2t is None:
        return rows.head
    ids = torch.arange(len(d2t)) + d2t.long()
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= len(rows.head):
        raise CheckpointError(
            f"d2t maps to ids {low}..{high}, outside the target's head of {len(rows.head)} rows"
            f" (drafter vocabulary {config.vocab_size}); use the target that it was made for"
        )
    return rows.head[ids]


def _differing_mask_row(
    embedding: Tensor, target: Tensor, config: DrafterConfig, source: str
) -> Tensor | None:
    """The mask token's row where it alone differs from the target's; None where none does."""
    if embedding.shape != target.shape:
        raise CheckpointError(
            f"{source}: the drafter's embedding is {list(embedding.shape)}, the target's"
            f" {list(target.shape)}; use the target that it was made for"
        )
    different = (embedding != target.to(embedding.dtype)).any(dim=1).nonzero().flatten()
    if len(different) == 0:
        return None
    if len(different) == 1 and int(different[0]) == config.mask_token_id:
        return embedding[config.mask_token_id].clone()
    raise CheckpointError(
        f"{source}: the drafter's own embedding differs from the target's in {len(different)} rows"
        f" (first: {int(different[0])}), and only the mask token's row can be a drafter's own; give"
        " the target that it was made for, or train with a shared embedding"
    )
