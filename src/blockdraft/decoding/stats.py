"""`AcceptanceStats`: the one definition of acceptance length and everything counted beside it.

It reads no clock; seconds are told by the caller.
"""

from dataclasses import dataclass, replace
from itertools import zip_longest

Counts = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCount:
    """One target verification, as it counts.

    `num_drafted` slots were drafted, of which the first `num_accepted` were accepted and kept.
    `num_cut` further ones were accepted but cut off by a stop or a limit; they count nowhere.
    `num_unusable` slots had nothing that could be verified. `num_committed` tokens were emitted.
    """

    num_committed: int
    num_drafted: int
    num_accepted: int
    num_cut: int = 0
    num_unusable: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceStats:
    """Counts over one or more requests; everything else derives from them.

    `steps` are target verifications (prefill is not one), `drafted_steps` those with at least one
    draft. `tokens` are emitted ids, stop token included; the first of each request comes from its
    prefill. `drafted[k]` and `accepted[k]` count steps that drafted, and that accepted, draft k
    (0 = the first after the anchor). `histogram[n]` counts drafted steps that kept n drafts.
    `unusable_drafts` are slots whose logits or ids were not finite or out of range: rejected.
    `seconds` runs from request start to last token with both prefills inside, `prefill_seconds` is
    the part before the first verification.
    """

    requests: int = 0
    steps: int = 0
    tokens: int = 0
    drafted_steps: int = 0
    drafted_step_tokens: int = 0
    drafted: Counts = ()
    accepted: Counts = ()
    histogram: Counts = ()
    unusable_drafts: int = 0
    seconds: float = 0.0
    prefill_seconds: float = 0.0

    @property
    def tau(self) -> float | None:
        """Acceptance length: tokens committed per verification, pooled; plain decoding gives 1."""
        return (self.tokens - self.requests) / self.steps if self.steps else None

    @property
    def tau_drafted(self) -> float | None:
        """Acceptance length over the steps that had a draft."""
        return self.drafted_step_tokens / self.drafted_steps if self.drafted_steps else None

    @property
    def acceptance_by_position(self) -> tuple[float, ...]:
        """For each draft position, drafted steps that accepted it / steps that drafted it."""
        return tuple(a / d if d else 0.0 for a, d in zip(self.accepted, self.drafted, strict=True))

    @property
    def tokens_per_second(self) -> float | None:
        return self.tokens / self.seconds if self.seconds else None

    def with_prefill_token(self) -> "AcceptanceStats":
        """One more request, whose first token has just been emitted."""
        return replace(self, requests=self.requests + 1, tokens=self.tokens + 1)

    def with_step(self, step: StepCount) -> "AcceptanceStats":
        """One more verification."""
        counted = replace(
            self,
            steps=self.steps + 1,
            tokens=self.tokens + step.num_committed,
            unusable_drafts=self.unusable_drafts + step.num_unusable,
        )
        if step.num_drafted == 0:
            return counted
        uncut = [1] * step.num_accepted + [0] * step.num_cut
        uncut += [1] * (step.num_drafted - len(uncut))
        return replace(
            counted,
            drafted_steps=self.drafted_steps + 1,
            drafted_step_tokens=self.drafted_step_tokens + step.num_committed,
            drafted=_add(self.drafted, tuple(uncut)),
            accepted=_add(
                self.accepted,
                tuple(int(k < step.num_accepted) for k in range(step.num_drafted)),
            ),
            histogram=_add(self.histogram, (0,) * step.num_accepted + (1,)),
        )

    def with_time(self, *, seconds: float, prefill_seconds: float) -> "AcceptanceStats":
        return replace(self, seconds=seconds, prefill_seconds=prefill_seconds)

    def merge(self, other: "AcceptanceStats") -> "AcceptanceStats":
        """Counts and seconds of both, pooled."""
        return AcceptanceStats(
            requests=self.requests + other.requests,
            steps=self.steps + other.steps,
            tokens=self.tokens + other.tokens,
            drafted_steps=self.drafted_steps + other.drafted_steps,
            drafted_step_tokens=self.drafted_step_tokens + other.drafted_step_tokens,
            drafted=_add(self.drafted, other.drafted),
            accepted=_add(self.accepted, other.accepted),
            histogram=_add(self.histogram, other.histogram),
            unusable_drafts=self.unusable_drafts + other.unusable_drafts,
            seconds=self.seconds + other.seconds,
            prefill_seconds=self.prefill_seconds + other.prefill_seconds,
        )


def _add(left: Counts, right: Counts) -> Counts:
    return tuple(a + b for a, b in zip_longest(left, right, fillvalue=0))
