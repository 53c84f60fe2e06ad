"""Width control in simulated engines: never slower than plain decoding, near the best fixed width.

Time is what the true cost model says; the controller sees those times (with noise) and which
drafts were accepted, nothing else.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from blockdraft.engine.costs import CostModel, nominal_costs
from blockdraft.engine.width import Speculating, StepOutcome, WidthController, parse_width

BLOCK = 8

Law = Callable[[int, float, int, int], float]
"""(request number, share of the run done, draft width, draft position from 1) -> acceptance."""

MEMORY_BOUND = CostModel.fit(
    {1: 0.017, 8: 0.020, 16: 0.026, 32: 0.040, 64: 0.070},
    {(1, 8): 0.006, (4, 8): 0.010, (16, 8): 0.026},
    overhead_seconds=0.001,
)
COMPUTE_BOUND = CostModel.fit(
    {rows: 0.004 + 0.006 * rows for rows in (1, 2, 4, 8, 16, 32, 64)},
    {(1, 8): 0.005, (16, 8): 0.060},
)
DEAR_DRAFTER = CostModel.fit(
    {1: 0.017, 8: 0.020, 16: 0.026, 32: 0.040, 64: 0.070},
    {(1, 8): 0.060, (4, 8): 0.100, (16, 8): 0.260},
)
COSTS = {"memory": MEMORY_BOUND, "compute": COMPUTE_BOUND, "dear": DEAR_DRAFTER}


def accepts_nothing(request: int, done: float, width: int, position: int) -> float:
    return 0.0


def accepts_much(request: int, done: float, width: int, position: int) -> float:
    return 0.85 if width >= 6 else 0.75


def accepts_some(request: int, done: float, width: int, position: int) -> float:
    return 0.55 - 0.04 * position


def drifts(request: int, done: float, width: int, position: int) -> float:
    return 0.85 if int(done * 4) % 2 else 0.05


def is_mixed(request: int, done: float, width: int, position: int) -> float:
    return 0.9 if request % 2 else 0.02


LAWS: dict[str, Law] = {
    "nothing": accepts_nothing,
    "much": accepts_much,
    "some": accepts_some,
    "drifts": drifts,
    "mixed": is_mixed,
}


@dataclass(slots=True)
class Live:
    number: int
    remaining: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A closed loop: `concurrency` requests at any time, each replaced when it ends."""

    costs: CostModel
    law: Law
    concurrency: int
    num_tokens: int
    longest: int = 200
    noise: float = 0.05
    seed: int = 1

    def seconds_per_token(self, controller: WidthController) -> float:
        rng = random.Random(self.seed)
        live: list[Live] = []
        number, tokens, seconds = 0, 0, 0.0
        while tokens < self.num_tokens:
            while len(live) < self.concurrency:
                live.append(Live(number, rng.randint(max(self.longest // 4, 1), self.longest)))
                number += 1
            decision = controller.decide([Speculating(r.number, r.remaining) for r in live])
            done = tokens / self.num_tokens
            accepted = tuple(
                self._accept(rng, r, done, decision.draft_width, v)
                for r, v in zip(live, decision.verify, strict=True)
            )
            verify = self.costs.verify_seconds(sum(decision.verify))
            draft = self.costs.draft_seconds(decision.num_drafting, decision.draft_width)
            seconds += verify + draft + self.costs.overhead_seconds
            controller.observe_step(
                StepOutcome(
                    decision=decision,
                    keys=tuple(r.number for r in live),
                    verify=decision.verify,
                    accepted=accepted,
                    verify_seconds=verify * rng.lognormvariate(0, self.noise),
                    draft_seconds=draft * rng.lognormvariate(0, self.noise),
                )
            )
            for request, num in zip(live, accepted, strict=True):
                request.remaining -= num + 1
                tokens += num + 1
                if request.remaining == 0:
                    controller.forget(request.number)
            live = [request for request in live if request.remaining > 0]
        return seconds / tokens

    def _accept(self, rng: random.Random, live: Live, done: float, draft: int, verify: int) -> int:
        for position in range(1, verify):
            if rng.random() >= self.law(live.number, done, draft, position):
                return position - 1
        return verify - 1

    def auto(self, believed: CostModel | None = None) -> float:
        return self.seconds_per_token(
            WidthController(parse_width("auto"), BLOCK, believed or self.costs)
        )

    def fixed(self, width: int) -> float:
        return self.seconds_per_token(
            WidthController(parse_width(f"fixed:{width}"), BLOCK, self.costs)
        )

    @property
    def off(self) -> float:
        plain = self.costs.verify_seconds(self.concurrency) + self.costs.overhead_seconds
        return plain / self.concurrency


@pytest.mark.parametrize("concurrency", [1, 6, 64])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("costs", COSTS)
def test_auto_is_never_slower_than_plain_decoding(costs: str, law: str, concurrency: int) -> None:
    """P02, P04, P05: whatever the drafter is worth, and whatever the machine."""
    num_tokens = max(2500, 500 * concurrency)
    run = Run(costs=COSTS[costs], law=LAWS[law], concurrency=concurrency, num_tokens=num_tokens)
    assert run.auto() <= 1.02 * run.off


@pytest.mark.parametrize("concurrency", [1, 8])
@pytest.mark.parametrize("longest", [4, 12])
def test_many_short_requests_don_t_multiply_the_cost_of_probes(
    longest: int, concurrency: int
) -> None:
    run = Run(
        costs=MEMORY_BOUND,
        law=accepts_nothing,
        concurrency=concurrency,
        num_tokens=1200 * concurrency,
        longest=longest,
    )
    assert run.auto() <= 1.02 * run.off


@pytest.mark.parametrize(
    ("law", "concurrency"),
    [("much", 1), ("much", 4), ("much", 8), ("some", 1), ("some", 2), ("mixed", 4), ("drifts", 1)],
)
def test_auto_is_close_to_the_best_fixed_width(law: str, concurrency: int) -> None:
    run = Run(
        costs=MEMORY_BOUND,
        law=LAWS[law],
        concurrency=concurrency,
        num_tokens=max(4000, 2000 * concurrency),
    )
    best = min(run.fixed(width) for width in (2, 3, 4, 6, 8))
    assert run.auto() <= min(best, run.off) / 0.95


@pytest.mark.parametrize(("law", "concurrency"), [("mixed", 2), ("mixed", 4), ("drifts", 2)])
def test_auto_beats_every_fixed_width_where_requests_or_times_differ(
    law: str, concurrency: int
) -> None:
    run = Run(
        costs=MEMORY_BOUND, law=LAWS[law], concurrency=concurrency, num_tokens=1500 * concurrency
    )
    best = min(run.fixed(width) for width in (2, 4, 6, 8))
    assert run.auto() * 1.1 <= min(best, run.off)


def test_speculation_comes_back_when_the_text_gets_easier() -> None:
    """P04: switched off by hard text, on again by easy text, within the probes' budget."""

    def gets_easier(request: int, done: float, width: int, position: int) -> float:
        return 0.85 if done > 0.3 else 0.0

    run = Run(costs=MEMORY_BOUND, law=gets_easier, concurrency=1, num_tokens=5000)
    # 30% at plain speed, 70% about three times as fast, and some hundred tokens to notice.
    assert run.auto() <= 0.62 * run.off


@pytest.mark.parametrize("law", ["much", "nothing"])
@pytest.mark.parametrize("believed", ["nominal", "ten times too cheap", "ten times too dear"])
def test_table_of_a_wrong_scale_heals(law: str, believed: str) -> None:
    scale = {"nominal": 1.0, "ten times too cheap": 0.1, "ten times too dear": 10.0}[believed]
    table = nominal_costs()
    if believed != "nominal":
        table = CostModel.fit(
            {rows: scale * seconds for rows, seconds in MEMORY_BOUND.verify.points},
            {(1, 8): scale * 0.006, (4, 8): scale * 0.010, (16, 8): scale * 0.026},
        )
    run = Run(costs=MEMORY_BOUND, law=LAWS[law], concurrency=2, num_tokens=4000)
    seconds = run.auto(table)
    assert seconds <= (1.02 if law == "nothing" else 1 / 2.0) * run.off


@pytest.mark.parametrize("law", ["much", "nothing"])
def test_table_of_a_wrong_shape_heals(law: str) -> None:
    """A table from a machine where rows were nearly free, on one where they are not.

    It costs some hundred steps until that is known.
    """
    run = Run(costs=COMPUTE_BOUND, law=LAWS[law], concurrency=2, num_tokens=20000)
    assert run.auto(MEMORY_BOUND) <= 1.04 * run.off
