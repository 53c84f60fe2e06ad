import time
from dataclasses import replace

import pytest
import torch
from tiny_bench import CONFIG, oracle, plan, run_all, workload

from blockdraft.bench import RequestSettings
from blockdraft.bench.config import Arrival
from blockdraft.bench.figures import acceptance_figures, figures_of
from blockdraft.bench.in_process import InProcessBench
from blockdraft.bench.in_process.energy import NoMeter
from blockdraft.bench.in_process.quality import Guard
from blockdraft.bench.levels import LevelResult
from blockdraft.bench.records import RequestRecord
from blockdraft.decoding.interfaces import Draft, DraftLogits, DraftState
from blockdraft.engine import WidthMode
from blockdraft.errors import DrafterError
from blockdraft.target import HFTarget
from blockdraft.testing.tiny import tiny_target


@pytest.fixture(scope="module")
def target() -> HFTarget:
    return tiny_target()


def levels_of(bench: InProcessBench, lane: str) -> list[LevelResult]:
    return [level for level in bench.levels if level.lane == lane]


@pytest.mark.parametrize("num_right", [0, 2, 3])
def test_known_acceptance_gives_the_known_tau(target: HFTarget, num_right: int) -> None:
    """Every step accepts `num_right` drafts: tau is one more, whatever the concurrency."""
    per_step = num_right + 1
    settings = RequestSettings(max_tokens=1 + 6 * per_step, ignore_eos=True)
    drafter = oracle(target, num_right=num_right)
    order = plan(drafter, settings=settings, arrivals=[Arrival(concurrency=2)])
    bench = run_all(target, order)
    (level,) = levels_of(bench, "dflash fixed:4")
    figures = acceptance_figures([level])
    assert figures.tau == per_step
    assert figures.tau_interval == (per_step, per_step)
    assert figures.by_position == tuple(float(k < num_right) for k in range(3))
    assert figures.histogram == (*[0] * per_step, 4 * 6)
    assert level.acceptance.best is not None and level.acceptance.best.tau == per_step
    (plain,) = levels_of(bench, "plain")
    assert acceptance_figures([plain]).tau == 1


def test_the_engine_counts_the_same(target: HFTarget) -> None:
    bench = run_all(target, plan(oracle(target, num_right=1)))
    (level,) = levels_of(bench, "dflash fixed:4")
    counts = [record.counts for record in level.records if record.counts is not None]
    best = level.acceptance.best
    assert best is not None
    assert best.accepted == sum(one.accepted for one in counts)
    assert best.drafted == sum(one.drafted or 0 for one in counts)


def test_all_lanes_answer_the_same(target: HFTarget) -> None:
    arrivals = [Arrival(concurrency=1), Arrival(concurrency=3), Arrival(rate=1000.0)]
    order = plan(oracle(target, num_right=2), arrivals=arrivals, repeats=(2, 1, 1))
    bench = run_all(target, order)
    assert bench.is_complete and len(bench.levels) == 12
    answers = {
        tuple(record.token_ids for record in sorted(level.records, key=lambda r: r.number)[:3])
        for level in bench.levels
    }
    assert len(answers) == 1
    plain = levels_of(bench, "plain")
    one = [level for level in levels_of(bench, "dflash fixed:4") if level.arrival == arrivals[0]]
    figures = figures_of(one, plain)
    assert figures.speedup is not None and figures.speedup_spread is not None
    assert figures.repeats == 2 and figures.speedup_spread[0] <= figures.speedup
    assert figures.draft_share is not None and 0 < figures.draft_share < 1


def test_lanes_begin_in_turn(target: HFTarget) -> None:
    """A Latin square: over as many repeats as lanes, each lane has each place once."""
    order = plan(
        oracle(target),
        widths=(WidthMode("fixed", 2), WidthMode("fixed", 4)),
        repeats=(4,),
    )
    names = [turn.lane for turn in order.turns]
    rows = [names[start : start + 4] for start in range(0, 16, 4)]
    assert all(len({row[place] for row in rows}) == 4 for place in range(4))
    assert all(len(set(row)) == 4 for row in rows)


class Broken:
    """Raises whenever it is asked."""

    block_size = 4
    taps: tuple[int, ...] = ()

    def open(self) -> DraftState:
        return BrokenState()


class BrokenState:
    context_len = 0

    def extend(self, ids: object, features: object) -> None:
        pass

    def propose(self, anchor: int, width: int) -> Draft:
        raise DrafterError("broken on purpose")


def test_a_broken_drafter_costs_its_drafts_only(target: HFTarget) -> None:
    """U01: it shows, instead of passing for a drafter without luck."""
    bench = run_all(target, plan(Broken()))
    (level,) = levels_of(bench, "dflash fixed:4")
    assert level.is_complete and level.num_failed == 0
    assert acceptance_figures([level]).tau == 1
    (warning,) = level.acceptance.warnings
    assert warning.startswith("the drafter failed in ") and "without drafts" in warning


def test_an_auto_lane_of_a_broken_drafter_goes_on_too(target: HFTarget) -> None:
    """auto measures costs as it opens: a drafter that fails there must not end the other lanes."""
    widths = (WidthMode("fixed", 4), WidthMode("auto"))
    bench = run_all(target, plan(Broken(), widths=widths))
    assert bench.is_complete and len(bench.levels) == 4
    (level,) = levels_of(bench, "dflash auto")
    assert level.num_failed == 0 and acceptance_figures([level]).tau == 1
    first, second = level.acceptance.warnings
    assert "so auto has nothing to go by and drafts at fixed:4" in first
    assert second.startswith("the drafter failed in ")


class NotANumber(Broken):
    def open(self) -> DraftState:
        return NotANumberState()


class NotANumberState(BrokenState):
    def propose(self, anchor: int, width: int) -> Draft:
        return DraftLogits(torch.full((width - 1, 96), float("nan")))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_drafter_of_not_a_number_costs_its_drafts_only(
    target: HFTarget, temperature: float
) -> None:
    widths = (WidthMode("fixed", 4), WidthMode("auto"))
    settings = RequestSettings(max_tokens=9, temperature=temperature, ignore_eos=True)
    bench = run_all(target, plan(NotANumber(), widths=widths, settings=settings))
    assert bench.is_complete
    for level in bench.levels:
        assert level.num_failed == 0
        assert level.lane == "prompt-lookup" or acceptance_figures([level]).tau == 1


def test_answers_of_one_token_have_no_steps(target: HFTarget) -> None:
    order = plan(oracle(target), settings=RequestSettings(max_tokens=1))
    bench = run_all(target, order)
    for level in bench.levels:
        assert level.is_complete and level.step_time is None
        assert figures_of([level], bench.levels).acceptance.tau is None


def test_a_rate_that_nothing_keeps_up_with(target: HFTarget) -> None:
    """All come at once; their wait counts, and none is lost."""
    order = plan(
        oracle(target),
        arrivals=[Arrival(rate=1e5)],
        prompts=workload(20),
        settings=RequestSettings(max_tokens=3),
    )
    bench = run_all(target, order)
    for level in bench.levels:
        assert len(level.answered) == 20
        waits = [record.first_token_seconds or 0.0 for record in level.answered]
        assert max(waits) > 2 * min(waits)


def test_a_prompt_that_is_too_long_fails_alone(target: HFTarget) -> None:
    """The others are measured, and the record says why."""
    prompts = workload(3, lengths=(5, 600, 9))
    bench = run_all(target, plan(oracle(target), prompts=prompts))
    for level in bench.levels:
        failed = [record for record in level.records if record.failure is not None]
        assert [record.id for record in failed] == ["p1"] and level.is_complete
        assert failed[0].failure is not None and failed[0].failure.kind == "prompt too long"
        assert len(level.answered) == 2


def test_an_interrupt_keeps_what_was_measured(target: HFTarget) -> None:
    bench = InProcessBench(target, plan(oracle(target)), NoMeter(None))
    bench.open(CONFIG)
    first, second, *_ = bench.remaining
    bench.measure(first, lambda record: None)

    def interrupt(record: RequestRecord) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.measure(second, interrupt)
    assert [level.is_complete for level in bench.levels] == [True, False]
    assert len(bench.levels[1].records) == 1
    assert bench.remaining[0] == second
    level = bench.measure(second, lambda record: None)
    assert level.is_complete and len(level.records) == 3
    assert [level.is_complete for level in bench.levels] == [True, True]


def test_step_times_add_up(target: HFTarget) -> None:
    began = time.perf_counter()
    bench = run_all(target, plan(oracle(target, num_right=1)))
    whole = time.perf_counter() - began
    for level in bench.levels:
        spent = level.step_time
        assert spent is not None and 0 < spent.verify_seconds < spent.seconds < whole
        steps = sum(len(record.steps or ()) for record in level.records)
        assert spent.steps == steps  # one request at a time
        assert (spent.draft_seconds > 0) == (level.lane != "plain")


def test_a_lane_that_differs_is_found(target: HFTarget) -> None:
    """The guard says where, and how close the target's choice was there."""
    bench = run_all(target, plan(oracle(target)))
    guard = Guard(
        target=target,
        plain_lane="plain",
        epsilon=1e-9,
        is_greedy=lambda prompt_id: True,
        prompt_ids=bench.prompt_ids,
    )
    assert all(one.identical == one.compared == 3 for one in guard.compare(bench.levels))
    changed = [with_other_answers(level) for level in bench.levels]
    lookup, drafted = guard.compare(changed)
    assert (lookup.identical, drafted.compared, drafted.identical) == (3, 3, 2)
    (divergence,) = drafted.divergences
    assert divergence.id == "p1" and divergence.position == 4
    assert divergence.margin > 0 and not divergence.near_tie
    sampled = Guard(
        target=target,
        plain_lane="plain",
        epsilon=1e-9,
        is_greedy=lambda prompt_id: False,
        prompt_ids=bench.prompt_ids,
    )
    assert all(one.compared == 0 and one.reason for one in sampled.compare(bench.levels))


def with_other_answers(level: LevelResult) -> LevelResult:
    """The drafted lane's second answer says something else from its fifth token on."""
    if level.lane != "dflash fixed:4":
        return level
    records = [
        replace(r, token_ids=(*ids[:4], ids[4] + 1, *ids[5:]))
        if r.id == "p1" and (ids := r.token_ids) is not None
        else r
        for r in level.records
    ]
    return replace(level, records=tuple(records))


def test_pass_costs_are_of_trained_drafters_only(target: HFTarget) -> None:
    bench = run_all(target, plan(oracle(target)))
    assert bench.costs is not None and bench.costs.verify[0][0] == 1
    assert {one.tokens for one in bench.costs.draft} == {1, 2, 3}
    assert all(one.seconds > 0 for one in bench.costs.draft)
