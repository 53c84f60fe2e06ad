"""Replays by hand: what a step costs, and who is in it."""

import pytest

from blockdraft.engine import WidthMode
from blockdraft.engine.costs import CostModel
from blockdraft.tuning.fit import drift, fit_costs
from blockdraft.tuning.policy import StepWidths, plain_policy, policy_of
from blockdraft.tuning.predict import Answers, predict
from blockdraft.tuning.replay import PairCosts, Replayed, ReplayRequest, replay
from blockdraft.tuning.samples import StepSample
from blockdraft.tuning.survival import Survival

PASSES = CostModel.fit({1: 1.0, 2: 1.2, 4: 1.6, 8: 2.4}, {(1, 4): 0.3, (2, 4): 0.4}, 0.1)
COSTS = PairCosts(passes=PASSES, intake_seconds=0.01)
ALL = Survival(((4, (1.0, 1.0, 1.0)),))
NONE = Survival(((4, (0.0, 0.0, 0.0)),))


def run(mode: str, requests: list[ReplayRequest], slots: int, survival: Survival) -> Replayed:
    width = WidthMode("off") if mode == "off" else WidthMode("fixed", int(mode))
    return replay(requests, slots, policy_of(width, 4, survival, PASSES), survival, COSTS)


def test_plain_answers_one_after_the_other() -> None:
    """A prompt of 2 rows, then two plain steps; twice."""
    found = run("off", [ReplayRequest(2, 3, 3)] * 2, 1, ALL)
    assert found.seconds == pytest.approx(2 * (1.3 + 2 * 1.1))
    assert found.latency_seconds == pytest.approx(1.3 + 2 * 1.1)
    assert found.tokens == 6


def test_two_at_once_share_their_steps() -> None:
    found = run("off", [ReplayRequest(2, 3, 3)] * 2, 2, ALL)
    assert found.seconds == pytest.approx(1.7 + 2 * 1.3)


def test_a_longer_answer_ends_alone() -> None:
    found = run("off", [ReplayRequest(2, 2, 9), ReplayRequest(2, 4, 9)], 2, ALL)
    assert found.seconds == pytest.approx(1.7 + 1.3 + 2 * 1.1)
    assert found.latency_seconds == pytest.approx((3.0 + 5.2) / 2)


def test_blocks_are_cut_by_the_limit_and_the_last_token_is_plain() -> None:
    """9 tokens: prefill 1, a block of 4, a block of 4 that is cut to 4 left: 8 tokens."""
    found = run("4", [ReplayRequest(3, 9, 9)], 1, ALL)
    prefill, block = 1.4 + 0.1, 1.6 + 0.3 + 0.1
    assert found.seconds == pytest.approx(prefill + (block + 0.03) + (block + 0.04))
    found = run("4", [ReplayRequest(3, 6, 6)], 1, ALL)
    assert found.seconds == pytest.approx(prefill + (block + 0.03) + 1.1)


def test_what_is_rejected_commits_one() -> None:
    found = run("4", [ReplayRequest(1, 3, 100)], 1, NONE)
    assert found.seconds == pytest.approx(1.1 + 2 * 2.0 + 0.01 + 0.01)


def test_alike_answers_agree_with_the_closed_form() -> None:
    survival = Survival(((4, (0.8, 0.7, 0.6)),))
    costs = PairCosts(passes=PASSES)
    mode = WidthMode("fixed", 4)
    requests = [ReplayRequest(1, 41, 41)] * 8
    policy = policy_of(mode, 4, survival, PASSES)
    replayed = replay(requests, 1, policy, survival, costs, num_draws=60)
    closed = predict(4, 1, survival, PASSES, Answers(prefill_seconds=1.1, num_tokens=41))
    assert closed.seconds is not None
    assert replayed.latency_seconds == pytest.approx(closed.seconds, rel=0.02)


def plain_seconds(costs: PairCosts, num: int) -> float:
    return costs.step(num_prompts=0, prompt_rows=0, widths=plain_policy([9] * num), num_taken_in=0)


def plain_step(num: int, seconds: float) -> StepSample:
    return StepSample(num, 0, num, 0, 1, 0, seconds)


def test_a_fit_keeps_what_was_measured() -> None:
    """Beliefs that are a third too low, and steps that say so."""
    steps = [plain_step(rows, 1.5 * PASSES.verify_seconds(rows)) for rows in (1, 8)] * 20
    fitted = fit_costs(PairCosts(passes=PASSES), [steps])
    ratios = [plain_seconds(fitted, rows) / PASSES.verify_seconds(rows) for rows in (1, 4, 8)]
    assert ratios == pytest.approx([1.5] * 3, rel=0.03)


def test_one_stall_hardly_counts() -> None:
    steps = [plain_step(1, 1.1)] * 40 + [plain_step(1, 500.0)]
    fitted = fit_costs(PairCosts(passes=PASSES), [steps])
    assert plain_seconds(fitted, 1) == pytest.approx(1.1, rel=0.06)


@pytest.mark.parametrize(("wobble", "tolerance"), [(0.08, 0.025), (0.0, 0.10)])
def test_a_slow_minute_is_not_taken_for_dear_drafts(wobble: float, tolerance: float) -> None:
    """All steps of the drafted run took 8% longer, its plain ones too: likely only on a machine
    whose pace changes within a run as well."""
    costs, widths = PairCosts(passes=PASSES), StepWidths(4, (4,))
    drafted = costs.step(num_prompts=0, prompt_rows=0, widths=widths, num_taken_in=0)
    plain = plain_seconds(costs, 1)
    block = StepSample(1, 0, 4, 1, 4, 0, 1.08 * drafted)
    slow = [block] * 200 + [plain_step(1, 1.08 * plain)] * 10
    paces = (1 - wobble, 1 + wobble, 1 + wobble, 1 - wobble)
    steady = [plain_step(1, pace * plain) for pace in paces for _ in range(50)]
    assert drift([steady]) == pytest.approx(wobble * (4 / 3) ** 0.5)
    fitted = fit_costs(costs, [steady, slow])
    found = fitted.step(num_prompts=0, prompt_rows=0, widths=widths, num_taken_in=0)
    assert found / plain_seconds(fitted, 1) == pytest.approx(drafted / plain, rel=tolerance)
