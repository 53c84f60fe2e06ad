"""Width control: how wide to draft, how many drafts to verify, and whether to speculate at all.

It runs no model and reads no clock: times and acceptance are told by the engine after each step.

`auto` maximizes expected tokens per second from a cost model and running acceptance. Two accounts
keep it honest whatever the beliefs are worth. The guard earns `GUARD_SHARE` of running time and
pays what every drafted step lost against plain decoding (gains refill it, up to a cap): when it is
empty, steps are plain. The probe account earns `PROBE_SHARE` and pays what probes of other widths
are expected to lose while speculation is on. So plain decoding loses no more than the first share
and a fixed start-up allowance, and good speculation no more than the second.
"""

from collections.abc import Hashable, Sequence

from blockdraft.engine.acceptance import AcceptanceEstimate
from blockdraft.engine.cost_correction import LiveCosts
from blockdraft.engine.costs import CostModel, nominal_costs
from blockdraft.engine.width_budget import Account, Backoff, PlainSchedule
from blockdraft.engine.width_mode import WidthMode, parse_width
from blockdraft.engine.width_plan import (
    Load,
    Plan,
    PlanMemory,
    Survival,
    best_plan,
    extra_seconds,
    plain_plan,
    priced,
)
from blockdraft.engine.width_step import Speculating, StepOutcome, WidthDecision, WidthStats

__all__ = [
    "Speculating",
    "StepOutcome",
    "WidthController",
    "WidthDecision",
    "WidthMode",
    "WidthStats",
    "parse_width",
]

MARGIN = 0.06
GUARD_SHARE = 0.01
PROBE_SHARE = 0.005
START_ALLOWANCE = 3.0
GUARD_CAP = 12.0
PROBE_SPACING = 16
WARM_TRIALS = 16

PROBE = "probe"
WIDTH_PROBE = "width-probe"


class WidthController:
    """Decides widths step by step; the engine calls `decide`, runs the step, `observe_step`.

    One controller serves one drafter and all its requests.
    """

    def __init__(
        self,
        mode: WidthMode,
        block_size: int,
        costs: CostModel | None = None,
        *,
        prior: Sequence[float] | None = None,
    ) -> None:
        """`block_size` is the drafter's widest block, anchor counted (1 or less: never drafts).

        `costs` None starts from a nominal table that heals while running. `prior` is the recorded
        conditional acceptance by position, if known.
        """
        self.mode = mode
        self.stats = WidthStats()
        self._block_size = max(block_size, 1)
        self._costs = LiveCosts(nominal_costs() if costs is None else costs)
        self._acceptance = AcceptanceEstimate(self._block_size, prior)
        self._draft_widths = candidate_widths(self._block_size)
        self._guard: Account | None = None
        self._probes = Account(PROBE_SHARE)
        self._backoff = Backoff()
        self._plain_schedule = PlainSchedule()
        self._plans = PlanMemory()
        self._paying: set[Hashable] = set()
        self._turn = 0
        self._since_probe = 0

    @property
    def clamp_warning(self) -> str | None:
        """What to log once when the width asked for is above the drafter's block; else None."""
        width = self.mode.width
        if width is None or width <= self._block_size:
            return None
        return (
            f"width: fixed:{width} is above the {self._block_size} tokens (anchor counted) that "
            f"the drafter was trained for; drafting {self._block_size}"
        )

    def decide(self, requests: Sequence[Speculating], num_other_rows: int = 0) -> WidthDecision:
        """Widths for a step over `requests` and `num_other_rows` rows of prompts in prefill.

        Every verify width is at least 1 and at most the draft width and the request's remaining.
        """
        reason = self._reason_not_to_draft(requests)
        if reason is not None:
            return WidthDecision(1, (1,) * len(requests), reason)
        remaining = tuple(request.remaining for request in requests)
        if self.mode.width is not None:
            width = min(self.mode.width, self._block_size)
            return WidthDecision(width, tuple(min(width, left) for left in remaining), "fixed")
        return self._decide_auto(requests, Load(remaining, num_other_rows))

    def _reason_not_to_draft(self, requests: Sequence[Speculating]) -> str | None:
        if not requests:
            return "idle"
        if self.mode.kind == "off" or self._block_size < 2 or self.mode.width == 1:
            return "off"
        if all(request.remaining <= 1 for request in requests):
            return "last-token"
        return None

    def _decide_auto(self, requests: Sequence[Speculating], load: Load) -> WidthDecision:
        guard = self._open_guard(load)
        keys = [request.key for request in requests]
        plan = self._planned(keys, load)
        if plan is None:
            if guard.balance > 0 and self._backoff.due:
                probe = self._probe_from_plain(keys, load, guard.balance)
                if probe is not None:
                    return probe
            return WidthDecision(1, (1,) * len(keys), "no-gain")
        if guard.balance <= 0:
            return WidthDecision(1, (1,) * len(keys), "guard")
        if self._plain_schedule.due:
            return WidthDecision(1, (1,) * len(keys), WIDTH_PROBE)
        if self._since_probe >= PROBE_SPACING:
            probe = self._probe_from_gain(keys, load, plan)
            if probe is not None:
                return probe
        warm = self._acceptance.num_observed >= WARM_TRIALS
        return WidthDecision(plan.draft_width, plan.verify, "gain" if warm else "warming-up")

    def _open_guard(self, load: Load) -> Account:
        if self._guard is None:
            self._guard = Account(
                GUARD_SHARE, START_ALLOWANCE * plain_plan(load, self._costs).seconds
            )
        return self._guard

    def _planned(self, keys: list[Hashable], load: Load) -> Plan | None:
        """The best plan if it beats plain decoding by the margin, else None."""
        memory = self._plans
        if not memory.holds(keys, load.num_other_rows):
            # Beliefs about narrow drafts come from wide ones, the trained block first.
            warm = self._acceptance.num_observed >= WARM_TRIALS
            widths = self._draft_widths if warm else self._draft_widths[-1:]
            plan = best_plan(load, widths, self._survival(keys), self._costs)
            plain = plain_plan(load, self._costs)
            wins = plan is not None and plan.rate > (1 + MARGIN) * plain.rate
            memory.keep(keys, load.num_other_rows, plan if wins else None)
        return memory.take(load.remaining)

    def _survival(self, keys: list[Hashable]) -> Survival:
        return lambda index, width: self._acceptance.survival(keys[index], width)

    def _probe_from_plain(
        self, keys: list[Hashable], load: Load, budget: float
    ) -> WidthDecision | None:
        """Speculate for one request in turn, if `budget` covers a complete miss and full acceptance
        would pay. Requests whose last probe paid are tried on, each with one more."""
        num = load.num_requests
        plain = plain_plan(load, self._costs)
        paying = [i for i, key in enumerate(keys) if key in self._paying]
        in_turn = [i for j in range(num) if (i := (self._turn + j) % num) not in paying]
        group = paying + in_turn[: max(len(paying), 1)]
        for chosen, width in (
            (group, self._block_size),
            (group[:1], self._block_size),
            (group[:1], 2),
        ):
            verify = [1] * num
            for i in chosen:
                verify[i] = min(width, load.remaining[i])
            cost = extra_seconds(load, width, verify, self._costs)
            won = (sum(verify) - num) / plain.rate
            if won > cost * (1 + MARGIN) and cost <= budget:
                return WidthDecision(width, tuple(verify), PROBE)
        self._turn += 1
        return None

    def _probe_from_gain(
        self, keys: list[Hashable], load: Load, plan: Plan
    ) -> WidthDecision | None:
        """Another draft width than the planned one, one request at full depth, in turn."""
        widths = (self._block_size, *self._draft_widths)
        width = widths[self._turn % len(widths)]
        deep = self._turn % load.num_requests
        verify = tuple(
            min(width, left) if i == deep else min(width, left, planned)
            for i, (left, planned) in enumerate(zip(load.remaining, plan.verify, strict=True))
        )
        if width == plan.draft_width and verify == plan.verify:
            self._turn += 1
            return None
        plan = priced(load, plan.draft_width, plan.verify, self._survival(keys), self._costs)
        probe = priced(load, width, verify, self._survival(keys), self._costs)
        loss = probe.seconds - probe.tokens / plan.rate
        self._probes.cap(max(loss, 4 * plan.seconds))
        if loss > self._probes.balance:
            return None
        self._probes.pay(max(loss, 0.0))
        self._turn += 1
        self._since_probe = 0
        return WidthDecision(width, verify, WIDTH_PROBE)

    def observe_step(self, outcome: StepOutcome) -> None:
        """Learn from a decided step; called once for each, also when the drafter failed."""
        self.stats.add(outcome)
        if self.mode.kind != "auto" or not outcome.keys:
            return
        decision = outcome.decision
        drafted = decision.draft_width > 1 and not outcome.drafter_failed
        self._observe_costs(outcome)
        if drafted:
            results = [
                (key, width - 1, accepted)
                for key, width, accepted in zip(
                    outcome.keys, outcome.verify, outcome.accepted, strict=True
                )
            ]
            self._acceptance.observe(decision.draft_width, results)
        self._settle(outcome)
        self._plans.age()

    def _observe_costs(self, outcome: StepOutcome) -> None:
        rows = sum(outcome.verify) + outcome.num_other_rows
        seconds, decision = outcome.verify_seconds, outcome.decision
        if decision.num_drafting:
            self._plain_schedule.drafted()
        else:
            believed = self._costs.verify_seconds(rows)
            self._plain_schedule.plain(None if seconds is None else seconds / believed)
        if seconds is not None:
            self._costs.observe_verify(rows, seconds)
        if outcome.draft_seconds is not None and not outcome.drafter_failed:
            self._costs.observe_draft(
                decision.num_drafting, decision.draft_width, outcome.draft_seconds
            )

    def _settle(self, outcome: StepOutcome) -> None:
        """Book what the step lost or won against plain decoding."""
        decision = outcome.decision
        load = Load((1,) * len(outcome.keys), outcome.num_other_rows)
        plain = plain_plan(load, self._costs)
        extra = self._extra_seconds(outcome)
        lost = extra - sum(outcome.accepted) / plain.rate
        guard = self._open_guard(load)
        for account in (guard, self._probes):
            account.earn(plain.seconds + extra)
        guard.pay(lost)
        guard.cap(GUARD_CAP * plain.seconds)
        self._since_probe += 1
        self._backoff.step()
        if decision.reason == PROBE:
            self._turn += 1
            shared = self._costs.draft_seconds(min(decision.num_drafting, 1), decision.draft_width)
            fair_share = (extra - shared) * plain.rate / max(decision.num_drafting, 1)
            self._paying = {
                key
                for key, num in zip(outcome.keys, outcome.accepted, strict=True)
                if num > fair_share
            }
            self._backoff.probed(paid=bool(self._paying))
        if decision.reason in (PROBE, WIDTH_PROBE):
            self._plans.clear()

    def _extra_seconds(self, outcome: StepOutcome) -> float:
        """What a step took beyond a plain one, as believed, or as measured where that is telling.

        Measured seconds count at half to twice the believed ones, so that one stall of the machine
        doesn't end speculation, and not at all when prompt rows shared the pass.
        """
        decision, costs = outcome.decision, self._costs
        plain_seconds = costs.verify_seconds(len(outcome.keys) + outcome.num_other_rows)
        rows = sum(outcome.verify) + outcome.num_other_rows
        took = costs.verify_seconds(rows)
        measured = None if outcome.num_other_rows else outcome.verify_seconds
        if measured is not None and decision.num_drafting:
            took = min(max(measured, took / 2), took * 2)
        drafting = costs.draft_seconds(decision.num_drafting, decision.draft_width)
        return took - plain_seconds + drafting + outcome.catch_up_seconds

    def forget(self, key: Hashable) -> None:
        """A request has ended: drop what is remembered of it."""
        self._acceptance.forget(key)


def candidate_widths(block_size: int) -> tuple[int, ...]:
    """Draft widths worth a try: all up to 4, then about 1.4 times apart, and the block itself."""
    widths = [width for width in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64) if width < block_size]
    return (*widths, block_size) if block_size > 1 else ()
