"""Who sees whom in the training forward: one definition, used by every attention there is.

`sees` works on numbers of any shape that broadcast, so that the same lines make a dense mask, a
slice of it and the `mask_mod` of flex_attention. A block sees its document's context strictly
before its anchor and itself, and nothing of other blocks.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from blockdraft.drafter.config import MaskRule
from blockdraft.training.batches.layout import Layout


class Queries(NamedTuple):
    """Block rows: `blocks` tells them apart, `anchors` is their anchor's position, `positions`
    their own, both in the document."""

    blocks: Tensor
    documents: Tensor
    anchors: Tensor
    positions: Tensor


class Keys(NamedTuple):
    """Context tokens (`blocks` = -1) and block rows."""

    blocks: Tensor
    documents: Tensor
    positions: Tensor


def sees(query: Queries, key: Keys, rule: MaskRule) -> Tensor:
    """True where a block row may look.

    Blocks are told apart by their index and not by position: two anchors closer than a block
    overlap in positions and still may not see each other.
    """
    is_context = key.blocks < 0
    before_anchor = (key.documents == query.documents) & (key.positions < query.anchors)
    own_block = key.blocks == query.blocks
    allowed = torch.where(is_context, before_anchor, own_block)
    distance = query.positions - key.positions
    if rule.causal:
        allowed = allowed & (distance >= 0)
    if rule.window is not None:
        allowed = allowed & (distance.abs() < rule.window)
    return allowed


def queries_of(layout: Layout) -> Queries:
    """All block rows, block after block."""
    width = layout.width
    blocks = torch.arange(layout.num_blocks, device=layout.anchor_positions.device)
    return Queries(
        blocks.repeat_interleave(width),
        layout.anchor_documents.repeat_interleave(width),
        layout.anchor_positions.repeat_interleave(width),
        layout.block_positions.flatten(),
    )


def keys_of(layout: Layout) -> Keys:
    """All context tokens, then all block rows."""
    rows = queries_of(layout)
    context = torch.full_like(layout.token_positions, -1)
    return Keys(
        torch.cat((context, rows.blocks)),
        torch.cat((layout.token_documents, rows.documents)),
        torch.cat((layout.token_positions, rows.positions)),
    )


def dense_mask(layout: Layout, rule: MaskRule) -> Bool[Tensor, "queries keys"]:
    """The whole mask of a packed row; queries = blocks * width, keys = tokens + queries."""
    query, key = queries_of(layout), keys_of(layout)
    columns = Queries(*(numbers[:, None] for numbers in query))
    return sees(columns, key, rule)
