"""The closed form: cases by hand, limits, and what must never go the wrong way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.engine.costs import CostModel
from blockdraft.errors import ConfigError
from blockdraft.tuning.predict import Answers, decoding_seconds, predict, wave_seconds
from blockdraft.tuning.survival import Survival

COSTS = CostModel.fit({1: 0.020, 4: 0.023, 16: 0.035}, {(1, 4): 0.004, (4, 4): 0.007}, 0.001)
ENDLESS = Answers()


def test_without_an_end_it_is_tau_steps_over_one() -> None:
    found = predict(4, 1, Survival.of_positions((0.8, 0.6, 0.4)), COSTS, ENDLESS)
    assert found.tau == pytest.approx(2.8)
    assert found.speedup == pytest.approx(2.8 * 0.021 / 0.028)
    assert found.tokens_per_second == pytest.approx(2.8 / 0.028)
    assert found.seconds is None
    assert found.break_even_tau == pytest.approx(0.028 / 0.021)


def test_several_at_once_share_a_step() -> None:
    found = predict(4, 4, Survival.of_positions((0.8, 0.6, 0.4)), COSTS, ENDLESS)
    assert found.speedup == pytest.approx(2.8 * 0.024 / 0.043)
    assert found.tokens_per_second == pytest.approx(4 * 2.8 / 0.043)
    assert found.user_tokens_per_second == pytest.approx(2.8 / 0.043)


def test_an_end_cuts_the_last_block_by_hand() -> None:
    """Width 2, acceptance 0.5. T(1) = a plain step; T(2) = drafted + 0.5 T(1); T(3) likewise."""
    costs = CostModel.fit({1: 1.0, 2: 1.5}, {(1, 2): 0.5})
    assert decoding_seconds(1, 2, 1, (0.5,), costs) == pytest.approx(1.0)
    assert decoding_seconds(2, 2, 1, (0.5,), costs) == pytest.approx(2.0 + 0.5)
    assert decoding_seconds(3, 2, 1, (0.5,), costs) == pytest.approx(2.0 + 0.5 * 2.5 + 0.5 * 1.0)


def test_prefills_are_inside_on_both_sides() -> None:
    answers = Answers(prefill_seconds=0.1, drafter_prefill_seconds=0.02, num_tokens=11)
    plain = wave_seconds(1, 2, (), COSTS, answers)
    assert plain == pytest.approx(2 * 0.1 + 10 * (0.021 + 0.001))
    found = predict(4, 2, Survival.of_positions((1.0, 1.0, 1.0)), COSTS, answers)
    # 10 tokens in blocks of 4, 4 and 2, which the limit cuts.
    draft = 0.004 + 0.003 / 3
    steps = 3 * (0.001 + draft) + 2 * COSTS.verify_seconds(8) + COSTS.verify_seconds(4)
    assert found.seconds == pytest.approx(2 * 0.12 + steps)
    assert found.speedup == pytest.approx(plain / (2 * 0.12 + steps))


def test_a_long_answer_comes_near_an_endless_one() -> None:
    survival = Survival.of_tau(3.0, 4)
    long = predict(4, 1, survival, COSTS, Answers(num_tokens=4000)).speedup
    assert long == pytest.approx(predict(4, 1, survival, COSTS, ENDLESS).speedup, rel=2e-3)


def test_plain_decoding_is_one_exactly() -> None:
    found = predict(1, 3, Survival.of_tau(2.0, 4), COSTS, Answers(num_tokens=7))
    assert (found.speedup, found.tau, found.break_even_tau) == (1.0, 1.0, 1.0)


def test_what_can_never_pay_has_no_break_even() -> None:
    dear = CostModel.fit({1: 0.02}, {(1, 4): 0.5})
    assert predict(4, 1, Survival.of_tau(4.0, 4), dear, ENDLESS).break_even_tau is None


def test_at_its_break_even_a_width_gains_nothing() -> None:
    answers = Answers(prefill_seconds=0.05, num_tokens=40)
    tau = predict(4, 2, Survival.of_tau(2.0, 4), COSTS, answers).break_even_tau
    assert tau is not None
    assert predict(4, 2, Survival.of_tau(tau, 4), COSTS, answers).speedup == pytest.approx(1.0)


@pytest.mark.parametrize(("width", "concurrency"), [(0, 1), (4, 0)])
def test_impossible_settings(width: int, concurrency: int) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        predict(width, concurrency, Survival.of_tau(2.0, 4), COSTS, ENDLESS)


def test_impossible_answers() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        Answers(num_tokens=0)
    with pytest.raises(ConfigError, match="takes no time"):
        Answers(num_tokens=1)
    with pytest.raises(ConfigError, match="negative"):
        Answers(prefill_seconds=-1.0)


WIDTHS = st.integers(2, 8)
LEVELS = st.integers(1, 16)
TOKENS = st.one_of(st.none(), st.integers(2, 40))


@st.composite
def cost_models(draw: st.DrawFn) -> CostModel:
    verify = {rows: draw(st.floats(0.001, 0.1)) for rows in (1, 8, 64)}
    draft = {(n, w): draw(st.floats(0.001, 0.05)) for n in (1, 8) for w in (2, 8)}
    return CostModel.fit(verify, draft, draw(st.floats(0, 0.01)))


@given(cost_models(), WIDTHS, LEVELS, TOKENS, st.floats(1, 8), st.floats(1, 8))
def test_more_tau_never_predicts_less(
    costs: CostModel, width: int, level: int, tokens: int | None, one: float, other: float
) -> None:
    answers = Answers(prefill_seconds=0.03, num_tokens=tokens)
    less, more = (
        predict(width, level, Survival.of_tau(tau, 8), costs, answers).speedup
        for tau in sorted((one, other))
    )
    assert more >= less * (1 - 1e-9)


@given(cost_models(), WIDTHS, LEVELS, TOKENS, st.floats(1, 8))
def test_gains_are_those_above_the_break_even(
    costs: CostModel, width: int, level: int, tokens: int | None, tau: float
) -> None:
    answers = Answers(num_tokens=tokens)
    survival = Survival.of_tau(tau, 8)
    found = predict(width, level, survival, costs, answers)
    if found.break_even_tau is None:
        assert found.speedup < 1 + 1e-9
    elif found.tau > found.break_even_tau + 1e-6:
        assert found.speedup >= 1 - 1e-9


@given(cost_models(), WIDTHS, LEVELS, st.floats(1, 8), st.floats(1.0, 3.0))
def test_a_dearer_drafter_never_predicts_more(
    costs: CostModel, width: int, level: int, tau: float, factor: float
) -> None:
    dearer = CostModel.fit(
        dict(costs.verify.points),
        {(n, w): s * factor for w, curve in costs.draft for n, s in curve.points},
        costs.overhead_seconds,
    )
    survival, answers = Survival.of_tau(tau, 8), Answers(num_tokens=20)
    cheap = predict(width, level, survival, costs, answers).speedup
    assert predict(width, level, survival, dearer, answers).speedup <= cheap * (1 + 1e-9)


@given(WIDTHS, LEVELS, st.floats(1, 8))
def test_the_speedup_is_at_most_tau(width: int, level: int, tau: float) -> None:
    found = predict(width, level, Survival.of_tau(tau, 8), COSTS, ENDLESS)
    assert found.speedup <= found.tau + 1e-9
