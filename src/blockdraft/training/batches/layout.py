"""`Layout`: where the tokens and blocks of a packed row stand, and what each slot should say.

Index tensors only; nothing is computed with a model here.

Shape legend: tokens = context rows of the packed row, blocks = anchors, width = block size,
slots = width - 1 drafted slots.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, cast

import torch
from jaxtyping import Int
from torch import Tensor

from blockdraft.training.batches.batch import Batch

NO_LABEL = -1
"""The label of a slot past the end of its answer (and so of its document)."""


class DocumentSpan(NamedTuple):
    """Half-open ranges of one document: its tokens in the row, its blocks in the batch."""

    first_token: int
    end_token: int
    first_block: int
    end_block: int


class Labels(NamedTuple):
    """`ids` the token each slot should say (NO_LABEL = none), `rows` the row of the token whose
    target output decides it."""

    ids: Int[Tensor, "blocks slots"]
    rows: Int[Tensor, "blocks slots"]


@dataclass(frozen=True)
class Layout:
    """The index tensors of one batch, on its device, made once a step."""

    token_positions: Int[Tensor, " tokens"]
    """Position in its document of every token."""
    token_documents: Int[Tensor, " tokens"]
    anchor_positions: Int[Tensor, " blocks"]
    """Position in its document of every anchor."""
    anchor_documents: Int[Tensor, " blocks"]
    anchor_ids: Int[Tensor, " blocks"]
    labels: Labels
    spans: tuple[DocumentSpan, ...]
    width: int

    @property
    def num_tokens(self) -> int:
        return self.token_positions.shape[0]

    @property
    def num_blocks(self) -> int:
        return self.anchor_positions.shape[0]

    @cached_property
    def block_positions(self) -> Int[Tensor, "blocks width"]:
        """Position of every block row: slot j of a block stands at its anchor + j."""
        slots = torch.arange(self.width, device=self.anchor_positions.device)
        return self.anchor_positions[:, None] + slots


def lay_out(batch: Batch, device: torch.device | str = "cpu") -> Layout:
    """The layout of a packed row.

    Slot k = 1 .. width - 1 of the block at anchor p is labelled with token p + k of the document
    (the slot's own position, not the next one); labels end with the document.
    """
    starts = torch.tensor(batch.starts)
    lengths = starts.diff()
    documents = torch.repeat_interleave(torch.arange(len(batch.samples)), lengths)
    positions = torch.arange(batch.num_tokens) - starts[:-1][documents]
    slots = torch.arange(1, batch.block_size)
    rows = batch.anchors[:, None] + slots
    ends = starts[1:][batch.document_of]
    ids = batch.ids
    inside = rows < ends[:, None]
    label_ids = torch.where(inside, ids[rows.clamp(max=batch.num_tokens - 1)], NO_LABEL)
    return Layout(
        token_positions=positions.to(device),
        token_documents=documents.to(device),
        anchor_positions=(batch.anchors - starts[:-1][batch.document_of]).to(device),
        anchor_documents=batch.document_of.to(device),
        anchor_ids=ids[batch.anchors].to(device),
        labels=Labels(label_ids.to(device), (rows - 1).clamp(max=batch.num_tokens - 1).to(device)),
        spans=_spans(batch),
        width=batch.block_size,
    )


def _spans(batch: Batch) -> tuple[DocumentSpan, ...]:
    counts = torch.bincount(batch.document_of, minlength=len(batch.samples))
    ends = cast(list[int], counts.cumsum(0).tolist())
    starts = batch.starts
    firsts = [0, *ends[:-1]]
    return tuple(
        DocumentSpan(starts[d], starts[d + 1], firsts[d], ends[d])
        for d in range(len(batch.samples))
    )
