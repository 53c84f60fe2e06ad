"""The search: which draft width and which verify widths commit the most tokens per second.

It learns nothing; beliefs come in as survival probabilities and costs.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from blockdraft.engine.cost_correction import LiveCosts

MIN_SURVIVAL = 0.01
REPLAN_STEPS = 4

Survival = Callable[[int, int], Sequence[float]]
"""(request index, draft width) -> P(at least k drafts are accepted), k = 1 .. draft width - 1."""


@dataclass(frozen=True, slots=True)
class Load:
    """A step to plan: how many tokens each speculating request may still emit, and other rows."""

    remaining: tuple[int, ...]
    num_other_rows: int = 0

    @property
    def num_requests(self) -> int:
        return len(self.remaining)


@dataclass(frozen=True, slots=True)
class Plan:
    """Widths with what they are expected to commit and to cost. `draft_width` 1 = plain decoding.

    `seconds` leave out what the other rows add to a plain step: that work is due in any case.
    """

    draft_width: int
    verify: tuple[int, ...]
    tokens: float
    seconds: float

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


def plain_plan(load: Load, costs: LiveCosts) -> Plan:
    """Every request decodes plainly."""
    num = load.num_requests
    seconds = costs.verify_seconds(num) + costs.overhead_seconds
    return Plan(1, (1,) * num, float(num), seconds)


def extra_seconds(load: Load, draft_width: int, verify: Sequence[int], costs: LiveCosts) -> float:
    """What a step with these widths costs more than a plain step of the same load."""
    plain_rows = len(verify) + load.num_other_rows
    rows = sum(verify) + load.num_other_rows
    num_drafting = sum(width > 1 for width in verify)
    extra = costs.verify_seconds(rows) - costs.verify_seconds(plain_rows)
    return extra + costs.draft_seconds(num_drafting, draft_width)


def priced(
    load: Load, draft_width: int, verify: tuple[int, ...], survival: Survival, costs: LiveCosts
) -> Plan:
    """A plan with these very widths."""
    plain = plain_plan(load, costs)
    gains = [sum(survival(i, draft_width)[: v - 1]) for i, v in enumerate(verify) if v > 1]
    seconds = plain.seconds + extra_seconds(load, draft_width, verify, costs)
    return Plan(draft_width, verify, plain.tokens + sum(gains), seconds)


def best_plan(
    load: Load, draft_widths: Sequence[int], survival: Survival, costs: LiveCosts
) -> Plan | None:
    """The speculating plan with the highest rate; None when no request can use a draft.

    For one draft width the best set of m drafts to verify are those of the m highest survival
    probabilities, and since survival never rises along a request such a set is always a prefix of
    each draft. The cost is no convex function of the rows, so that every m is tried.
    """
    plain = plain_plan(load, costs)
    best: Plan | None = None
    for draft_width in draft_widths:
        gains: list[tuple[float, int]] = []
        for i, remaining in enumerate(load.remaining):
            for probability in survival(i, draft_width)[: max(min(draft_width, remaining) - 1, 0)]:
                if probability < MIN_SURVIVAL:
                    break
                gains.append((-probability, i))
        gains.sort()
        found = _best_prefix(gains, draft_width, load, plain, costs)
        if found is not None and (best is None or found.rate > best.rate):
            best = found
    return best


def _best_prefix(
    gains: list[tuple[float, int]], draft_width: int, load: Load, plain: Plan, costs: LiveCosts
) -> Plan | None:
    num_requests = load.num_requests
    rows = num_requests + load.num_other_rows
    always = plain.seconds - costs.verify_seconds(rows)
    verify_seconds, draft_seconds = costs.verify_seconds, costs.draft_seconds
    drafting = [False] * num_requests
    num_drafting, drafting_seconds, tokens = 0, 0.0, plain.tokens
    best_num, best_rate, best_tokens, best_seconds = 0, 0.0, 0.0, 0.0
    for num, (negative, i) in enumerate(gains, start=1):
        if not drafting[i]:
            drafting[i] = True
            num_drafting += 1
            drafting_seconds = draft_seconds(num_drafting, draft_width)
        tokens -= negative
        seconds = always + verify_seconds(rows + num) + drafting_seconds
        if tokens > best_rate * seconds:
            best_num, best_rate = num, tokens / seconds
            best_tokens, best_seconds = tokens, seconds
    if best_num == 0:
        return None
    verify = [1] * num_requests
    for _, i in gains[:best_num]:
        verify[i] += 1
    return Plan(draft_width, tuple(verify), best_tokens, best_seconds)


class PlanMemory:
    """The last plan (None = decode plainly), kept for a few steps while the load stays the same."""

    def __init__(self) -> None:
        self._keys: list[Hashable] | None = None
        self._num_other_rows = 0
        self._plan: Plan | None = None
        self._age = 0

    def holds(self, keys: list[Hashable], num_other_rows: int) -> bool:
        same = self._num_other_rows == num_other_rows and self._keys == keys
        return same and self._age < REPLAN_STEPS + len(keys) // 8

    def keep(self, keys: list[Hashable], num_other_rows: int, plan: Plan | None) -> None:
        self._keys, self._num_other_rows, self._plan, self._age = keys, num_other_rows, plan, 0

    def take(self, remaining: Sequence[int]) -> Plan | None:
        """The plan, cut to what the requests may still emit; None when it drafts nothing now."""
        plan = self._plan
        if plan is None:
            return None
        verify = tuple(min(width, left) for width, left in zip(plan.verify, remaining, strict=True))
        if verify == plan.verify:
            return plan
        if max(verify) < 2:
            return None
        return Plan(plan.draft_width, verify, plan.tokens, plan.seconds)

    def age(self) -> None:
        self._age += 1

    def clear(self) -> None:
        self._keys = None
