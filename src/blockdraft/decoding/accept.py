"""Verification of drafts as pure functions, vectorized over trials: greedy, one-hot, rejection.

docs/losslessness.md proves each rule. There is no randomness here: uniforms are arguments.

In formulas p = target_probs, q = draft_probs, d = the draft. Trials are independent draws, one slot
each; decoding passes a single one (no trial dimension), tests thousands.
"""

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class SlotVerdict(NamedTuple):
    """Outcome for one slot: whether the draft stands, and the token that is emitted there."""

    accepted: Bool[Tensor, "*trials"]
    ids: Int[Tensor, "*trials"]


def draw(
    probs: Float[Tensor, "*trials vocab"], uniforms: Float[Tensor, "*trials"]
) -> Int[Tensor, "*trials"]:
    """The inverse-CDF draw: the first token whose cumulative mass exceeds the uniform in [0, 1).

    `probs` need not be normalized; a token of probability 0 is never drawn.
    """
    cumulative = probs.double().cumsum(-1)
    total = cumulative[..., -1:]
    target = uniforms.to(cumulative)[..., None] * total
    ids = torch.searchsorted(cumulative, target, right=True)
    # Rounding may put u * total at total itself; the last token with mass is then the answer.
    last = torch.searchsorted(cumulative, total.contiguous())
    return torch.minimum(ids, last)[..., 0]


def count_accepted(draft_ids: Sequence[int], target_ids: Sequence[int]) -> int:
    """Length of the longest prefix on which the drafts equal the target's own tokens."""
    pairs = zip(draft_ids, target_ids, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def verify_point_mass(
    draft_ids: Int[Tensor, "*trials"],
    target_probs: Float[Tensor, "*trials vocab"],
    token_uniforms: Float[Tensor, "*trials"],
) -> SlotVerdict:
    """Draw the target's token with its position's uniform; the draft stands if it is that token.

    This is rejection sampling for a one-hot proposal: P(accept) = p(draft), and given rejection
    the emitted token follows p without the draft, renormalized. The emitted token never depends on
    the draft at all, which is why seeded output equals plain decoding.
    """
    ids = draw(target_probs, token_uniforms)
    return SlotVerdict(ids == draft_ids, ids)


def verify_sampled(
    draft_ids: Int[Tensor, "*trials"],
    draft_probs: Float[Tensor, "*trials vocab"],
    target_probs: Float[Tensor, "*trials vocab"],
    token_uniforms: Float[Tensor, "*trials"],
    residual_uniforms: Float[Tensor, "*trials"],
) -> SlotVerdict:
    """Rejection sampling of a draft drawn from `draft_probs` (Leviathan et al. 2023, Algorithm 1).

    Accept with probability min(1, p(d) / q(d)); else draw from max(p - q, 0), renormalized. The
    draft must have been drawn from exactly `draft_probs`, with a uniform used nowhere else.
    """
    p_draft = target_probs.gather(-1, draft_ids[..., None])[..., 0]
    q_draft = draft_probs.gather(-1, draft_ids[..., None])[..., 0]
    accepted = token_uniforms.to(p_draft) * q_draft < p_draft
    residual = (target_probs - draft_probs).clamp(min=0)
    # Without residual mass p equals q, and rejection has probability 0 but for rounding.
    residual = torch.where(residual.sum(-1, keepdim=True) > 0, residual, target_probs)
    return SlotVerdict(
        accepted, torch.where(accepted, draft_ids, draw(residual, residual_uniforms))
    )
