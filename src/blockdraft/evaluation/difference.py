"""Where two answers to one prompt part, and how close the target's choice was there.

A greedy answer with drafts may part from the plain one only where rounding can turn the choice.
"""

from collections.abc import Sequence
from typing import Protocol, cast

import torch

from blockdraft.decoding import TargetModel

NEAR_TIE = {"float64": 1e-9, "float32": 1e-3, "bfloat16": 1.0}
"""Top-two margins (in logits) under which rounding alone may turn a choice, by dtype.

docs/losslessness.md says how they were measured.
"""


class Answered(Protocol):
    """An answer as token ids, and why it ended."""

    @property
    def token_ids(self) -> tuple[int, ...]: ...

    @property
    def finish_reason(self) -> str | None: ...


def first_unequal(plain: Answered, drafted: Answered) -> int | None:
    """The first output position whose ids differ; the last one when only the endings do."""
    if (plain.token_ids, plain.finish_reason) == (drafted.token_ids, drafted.finish_reason):
        return None
    pairs = zip(plain.token_ids, drafted.token_ids, strict=False)
    unequal = (position for position, (left, right) in enumerate(pairs) if left != right)
    shorter_len = min(len(plain.token_ids), len(drafted.token_ids))
    return next(unequal, min(shorter_len, max(len(plain.token_ids), len(drafted.token_ids)) - 1))


def top_two_margin(target: TargetModel, ids: Sequence[int]) -> float:
    """How far the likeliest token after `ids` (at least one) is above the second, as logits."""
    logits = target.open().prefill(torch.tensor(list(ids))).logits[-1]
    best, second = cast(list[float], logits.double().topk(2).values.tolist())
    return best - second
