"""Simulated acceptance length: walk each held-out answer as real decoding would, without decoding.

The drafts of every position of an answer come from one training forward; a walk then jumps from
anchor to anchor by what would have been accepted. Anchors drawn at random instead are biased: long
accepted runs cover many of them, so they over-count easy stretches. The counts are those of
`AcceptanceStats`, so that a simulated and a measured tau are the same figure.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import cast

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from blockdraft.decoding.stats import AcceptanceStats, StepCount
from blockdraft.training.batches.anchors import AnchorConfig
from blockdraft.training.batches.batch import Batch, Sample
from blockdraft.training.batches.layout import Labels, Layout, lay_out
from blockdraft.training.batches.packing import PackedRow, PackingConfig, make_batch

DraftBatch = Callable[[Batch, Layout], Int[Tensor, "blocks slots"]]
"""The drafted target ids of every block of a packed row."""


def leading_hits(drafts: Int[Tensor, "blocks slots"], labels: Labels) -> Int[Tensor, " blocks"]:
    """How many drafts of each block are right before the first wrong one."""
    right: Bool[Tensor, "blocks slots"] = (drafts == labels.ids) & (labels.ids >= 0)
    return right.cumprod(1).sum(1)


def walk(accepted: Sequence[int], slots: int, *, has_ended: bool = True) -> AcceptanceStats:
    """Decode one answer on paper.

    `accepted[i]` of `slots` drafts are right when the i-th answer token is the anchor. The first
    token comes from the prefill; what lies behind the answer's last token is neither committed nor
    counted as drafted. Of an answer that has not ended by itself the last token is the target's
    own: decoding knows its limit and drafts only what is followed by one more token.
    """
    stats = AcceptanceStats().with_prefill_token()
    position, last = 0, len(accepted) - 1
    while position < last:
        left = last - position
        committed = min(accepted[position] + 1, left)
        room = left if has_ended else left - 1
        stats = stats.with_step(
            StepCount(
                num_committed=committed,
                num_drafted=min(slots, room),
                num_accepted=min(accepted[position], room),
            )
        )
        position += committed
    return stats


def every_anchor_rows(samples: Sequence[Sample], packing: PackingConfig) -> Iterator[PackedRow]:
    """Packed rows in which every position of every answer can be an anchor."""
    members: list[int] = []
    tokens = anchors = 0
    for index, sample in enumerate(samples):
        full = (
            tokens + len(sample.ids) > packing.row_tokens
            or anchors + sample.answer_len > packing.row_anchors
        )
        if members and full:
            yield PackedRow(0, tuple(members))
            members, tokens, anchors = [], 0, 0
        members.append(index)
        tokens += len(sample.ids)
        anchors += sample.answer_len
    if members:
        yield PackedRow(0, tuple(members))


@torch.no_grad()
def simulate(
    draft: DraftBatch,
    samples: Sequence[Sample],
    block_size: int,
    packing: PackingConfig,
    *,
    stop_ids: Collection[int] = (),
    device: torch.device | str = "cpu",
) -> list[AcceptanceStats]:
    """The walk of every sample, in their order; pool them with `pool`.

    An answer has ended by itself when its last token is one of `stop_ids`. `device` is where
    `draft` computes.
    """
    walks: list[AcceptanceStats] = []
    everywhere = AnchorConfig(per_sample=max(sample.answer_len for sample in samples), stride=1)
    for row in every_anchor_rows(samples, packing):
        batch = make_batch(row, samples, everywhere, block_size, seed=0)
        layout = lay_out(batch, device)
        hits = leading_hits(draft(batch, layout), layout.labels)
        for sample, span in zip(batch.samples, layout.spans, strict=True):
            accepted = cast(list[int], hits[span.first_block : span.end_block].tolist())
            # The last token is no anchor of the training forward; it is never walked from.
            has_ended = sample.ids[-1] in stop_ids
            walks.append(walk([*accepted, 0], block_size - 1, has_ended=has_ended))
    return walks


def pool(walks: Sequence[AcceptanceStats]) -> AcceptanceStats:
    """All walks as one."""
    pooled = AcceptanceStats()
    for stats in walks:
        pooled = pooled.merge(stats)
    return pooled
