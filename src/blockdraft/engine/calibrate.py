"""Measures what passes of target and drafter cost here, for the width control's cost model.

Runs on scratch rows of the sides it is given, before any request; the result is cached per
machine and model (`cost_cache.py`).
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch

from blockdraft.engine.costs import CostModel
from blockdraft.engine.sides import DraftRequest, DraftSide, Extension, Feed, TargetSide
from blockdraft.engine.width import candidate_widths
from blockdraft.native.tuning import Clock, best_seconds

CONTEXT_LEN = 128
"""Tokens before each measured pass, where they fit: enough that attention is not free."""

NUM_RUNS = 4
"""Of each pass; the first warms up."""

MOST_ROWS = 64
MOST_ROWS_ALONE = 16
"""Where requests take turns, a pass has the rows of one."""


class Limits(NamedTuple):
    """What an engine may do. `pass_rows`: a batch-invariant target's rows a pass, else None."""

    num_slots: int
    num_rows: int
    max_context: int
    pass_rows: int | None = None


class Scratch(NamedTuple):
    """Rows to measure on: `slots` made-up requests, `room` rows each, part of them context.

    A verification has at most `most_rows` rows, and `most_each` of one request.
    """

    slots: int
    room: int
    context_len: int
    most_each: int
    most_rows: int


def measure_costs(
    target: TargetSide,
    drafts: DraftSide | None,
    limits: Limits,
    *,
    feature_size: int,
    dtype: torch.dtype,
    clock: Clock,
) -> CostModel:
    """Seconds of target passes by rows and of drafter passes by requests and width.

    `feature_size` and `dtype` are those of the context features (taps * hidden).
    """
    scratch = _scratch(limits, can_batch=target.can_batch)
    verify = dict(_measure_verify(target, scratch, clock))
    draft: dict[tuple[int, int], float] = {}
    if drafts is not None and drafts.block_size > 1:
        features = torch.zeros(scratch.context_len, feature_size, dtype=dtype)
        draft = dict(_measure_drafts(drafts, features, scratch, clock))
    for key in range(scratch.slots):
        target.forget(key)
        if drafts is not None:
            drafts.forget(key)
    return CostModel.fit(verify, draft)


def _scratch(limits: Limits, *, can_batch: bool) -> Scratch:
    room = min(CONTEXT_LEN + MOST_ROWS, limits.num_rows)
    context_len = min(max(room // 2, room - MOST_ROWS), limits.max_context // 2)
    return Scratch(
        slots=min(limits.num_slots, limits.num_rows // room),
        room=room,
        context_len=context_len,
        most_each=min(room, limits.max_context) - context_len,
        most_rows=limits.pass_rows or (MOST_ROWS if can_batch else MOST_ROWS_ALONE),
    )


def _measure_verify(
    target: TargetSide, scratch: Scratch, clock: Clock
) -> Iterator[tuple[int, float]]:
    slots, room, context_len, most_each, most_rows = scratch
    for key in range(slots):
        prompt = (1,) * context_len
        target.run([Feed(key, key * room, 0, prompt, is_prompt=True, wants_logits=False)])
    for rows in (1, 2, 4, 8, 16, 32, 64):
        used = min(rows, slots) if target.can_batch else 1
        if -(-rows // used) > most_each or rows > most_rows:
            return
        shares = [rows // used + (i < rows % used) for i in range(used)]
        feeds = [
            Feed(key, key * room, context_len, (1,) * share, is_prompt=False, wants_logits=True)
            for key, share in enumerate(shares)
        ]
        yield rows, best_seconds(lambda feeds=feeds: _verify_once(target, feeds), clock, NUM_RUNS)


def _verify_once(target: TargetSide, feeds: list[Feed]) -> None:
    target.run(feeds).logits.max(-1)
    for feed in feeds:
        target.commit(feed, ())


def _measure_drafts(
    drafts: DraftSide, features: torch.Tensor, scratch: Scratch, clock: Clock
) -> Iterator[tuple[tuple[int, int], float]]:
    slots, room, context_len = scratch.slots, scratch.room, scratch.context_len
    ids = (1,) * context_len
    tapped = features if features.shape[1] else None
    for key in range(slots):
        drafts.extend([Extension(key, key * room, 0, ids, tapped)])
    for width in candidate_widths(drafts.block_size):
        for used in (1, 2, 4, 8, 16, 32):
            if used > slots:
                break
            requests = [DraftRequest(key, key * room, context_len, 1, width) for key in range(used)]
            yield (used, width), best_seconds(lambda r=requests: drafts.draft(r), clock, NUM_RUNS)
