"""What decoding hands to its callers: a `Commit` for each step, a `Completion` at the end.

Plain values; nothing here decides a token.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from blockdraft.decoding.emission import FinishReason
from blockdraft.decoding.stats import AcceptanceStats


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probability of an emitted token under the unmodified target, and of the likeliest."""

    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The tokens that one step emitted.

    The first `num_accepted` of them are accepted drafts; the one after these, if any, is from the
    target itself. `text` is the text that may be shown now: whole characters, cut before a stop, so
    it may lag behind the ids. `logprobs` has an entry for each id, or is empty when not asked for.
    `stats` cover the request so far. `num_cached` tokens of the prompt were not computed for this
    request: an earlier one had left their keys and values behind.
    """

    ids: tuple[int, ...]
    num_accepted: int
    text: str
    logprobs: tuple[TokenLogprobs, ...]
    stats: AcceptanceStats
    finish_reason: FinishReason | None
    num_cached: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One finished answer. Ids, logprobs and stats include the stop token; the text does not."""

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    drafted: tuple[bool, ...]
    text: str
    finish_reason: FinishReason
    logprobs: tuple[TokenLogprobs, ...]
    stats: AcceptanceStats


def collect(prompt_ids: Iterable[int], commits: Iterable[Commit]) -> Completion:
    """Run a stream of commits to its end."""
    steps = list(commits)
    last = steps[-1]
    assert last.finish_reason is not None, "decoding ended without a reason"
    return Completion(
        prompt_ids=tuple(prompt_ids),
        token_ids=tuple(i for step in steps for i in step.ids),
        drafted=tuple(k < step.num_accepted for step in steps for k in range(len(step.ids))),
        text="".join(step.text for step in steps),
        finish_reason=last.finish_reason,
        logprobs=tuple(entry for step in steps for entry in step.logprobs),
        stats=last.stats,
    )


def read_logprobs(
    target_logits: Float[Tensor, "rows vocab"], ids: tuple[int, ...], num_top: int | None
) -> tuple[TokenLogprobs, ...]:
    """Log-softmax of the unmodified target logits, for `ids` and the `num_top` likeliest tokens.

    Row i of `target_logits` decided ids[i]; rows beyond the ids are ignored. Empty when `num_top`
    is None.
    """
    if num_top is None:
        return ()
    wide = target_logits[: len(ids)].to(torch.promote_types(target_logits.dtype, torch.float32))
    logprobs = wide.log_softmax(-1)
    top = logprobs.topk(num_top, dim=-1)
    top_ids = cast(list[list[int]], top.indices.tolist())
    top_values = cast(list[list[float]], top.values.tolist())
    return tuple(
        TokenLogprobs(
            float(logprobs[row, token_id]),
            tuple(zip(top_ids[row], top_values[row], strict=True)),
        )
        for row, token_id in enumerate(ids)
    )
