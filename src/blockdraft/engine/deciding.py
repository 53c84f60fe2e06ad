"""Tokens for many requests from the logits of one pass, by each request's own `Chooser`.

Where a request only wants the likeliest token of a row, one reduction over all rows finds it; the
others are decided row by row. The rules themselves are in `decoding/choose.py`.
"""

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor

from blockdraft.decoding.choose import Chooser, DraftedBlock
from blockdraft.decoding.interfaces import Draft, DraftLogits
from blockdraft.drafter.dflash import over_vocabulary
from blockdraft.engine.sides import DraftRows


class Likeliest(NamedTuple):
    """For each row, its likeliest token and whether the row's largest logit is finite."""

    ids: list[int]
    finite: list[bool]


def likeliest(logits: Float[Tensor, "rows vocab"]) -> Likeliest:
    """One pass over the logits; a NaN anywhere in a row makes it not finite."""
    values, ids = logits.max(-1)
    return Likeliest(cast(list[int], ids.tolist()), cast(list[bool], values.isfinite().tolist()))


class Wanted(NamedTuple):
    """One request's part in deciding drafts: at most `max_slots` from output `position` on."""

    chooser: Chooser
    position: int
    max_slots: int


def decide_drafts(
    drafts: DraftRows | list[Draft], wanted: Sequence[Wanted], vocab_size: int
) -> list[DraftedBlock]:
    """The drafted tokens of each request, in the same order. Raises DrafterError."""
    if not isinstance(drafts, DraftRows):
        return [
            request.chooser.decide_draft(draft, request.position, request.max_slots)
            for draft, request in zip(drafts, wanted, strict=True)
        ]
    logits, to_target = drafts.logits, drafts.to_target
    best = Likeliest([], [])
    if any(request.chooser.drafts_argmax for request in wanted) and logits.shape[0]:
        best = likeliest(logits)
        if to_target is not None:
            drafted = torch.tensor(best.ids, device=to_target.device)
            mapping = cast(list[int], to_target[drafted].tolist())
            best = Likeliest(mapping, best.finite)
    blocks: list[DraftedBlock] = []
    start = 0
    for request, num_slots in zip(wanted, drafts.num_slots, strict=True):
        end = start + min(num_slots, request.max_slots)
        if request.chooser.drafts_argmax:
            block = request.chooser.decide_argmax(best.ids[start:end], best.finite[start:end])
        else:
            rows = over_vocabulary(logits[start:end], to_target, vocab_size)
            draft = DraftLogits(rows)
            block = request.chooser.decide_draft(draft, request.position, request.max_slots)
        blocks.append(block)
        start += num_slots
    return blocks
