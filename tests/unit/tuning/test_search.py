"""Which setting is picked, what is verified, and what is advised; on made-up predictions."""

import pytest

from blockdraft.engine import WidthMode
from blockdraft.errors import ConfigError
from blockdraft.tuning.advice import advise
from blockdraft.tuning.search import (
    AUTO,
    OFF,
    SettingPrediction,
    best_fixed,
    choose,
    level_requests,
)
from blockdraft.tuning.tune import Tuned, TuneOrder
from blockdraft.tuning.verify import Verified

FOUR = WidthMode("fixed", 4)
EIGHT = WidthMode("fixed", 8)


def made_up(mode: WidthMode, level: int, gain: float) -> SettingPrediction:
    return SettingPrediction(
        mode=mode,
        concurrency=level,
        tokens_per_second=40 * level**0.5 * gain,
        latency_seconds=1 / gain,
        speedup=gain,
        latency_speedup=gain,
    )


def table(*rows: tuple[WidthMode, float, float]) -> list[SettingPrediction]:
    """(mode, gain at 1, gain at 8)."""
    return [made_up(mode, 1, one) for mode, one, _ in rows] + [
        made_up(mode, 8, many) for mode, _, many in rows
    ]


PAYS_ALONE = table((OFF, 1.0, 1.0), (FOUR, 1.5, 0.8), (EIGHT, 1.7, 0.5), (AUTO, 1.65, 1.0))
NEVER_PAYS = table((OFF, 1.0, 1.0), (FOUR, 0.9, 0.8), (AUTO, 1.02, 1.0))
ALWAYS_PAYS = table((OFF, 1.0, 1.0), (FOUR, 1.5, 1.3), (EIGHT, 1.7, 1.1), (AUTO, 1.6, 1.35))


def test_latency_looks_at_the_fewest() -> None:
    choice = choose(PAYS_ALONE, "latency")
    assert choice.concurrency == 1
    assert [one.mode for one in choice.finalists] == [EIGHT, AUTO]
    assert [one.mode for one in choice.by_concurrency] == [EIGHT, OFF]
    assert choice.speculate_up_to == 1


def test_throughput_looks_at_the_most_tokens() -> None:
    choice = choose(ALWAYS_PAYS, "throughput")
    assert choice.concurrency == 8
    assert [one.mode for one in choice.finalists] == [AUTO, FOUR]
    assert choice.speculate_up_to == 8
    best = best_fixed(ALWAYS_PAYS, 8, "throughput")
    assert best is not None
    assert best.mode == FOUR


def test_nothing_that_gains_little_is_picked() -> None:
    choice = choose(NEVER_PAYS, "latency")
    assert choice.finalists == ()
    assert choice.speculate_up_to is None
    assert best_fixed(NEVER_PAYS, 1, "latency") is None


def tuned(predictions: list[SettingPrediction], *gains: float) -> Tuned:
    choice = choose(predictions, "latency")
    verified: tuple[Verified, ...] = ()
    if gains:
        best = choice.finalists[0]
        verified = (
            Verified(
                mode=best.mode,
                concurrency=best.concurrency,
                predicted=best,
                speedups=gains,
                latency_speedups=gains,
                tokens_per_second=60.0,
                identical=4,
                compared=4,
            ),
        )
    return Tuned(
        block_size=8,
        goal="latency",
        num_repeats=3,
        predictions=tuple(predictions),
        choice=choice,
        verified=verified,
    )


def test_a_measured_gain_is_advised_with_its_range() -> None:
    found = tuned(PAYS_ALONE, 1.6, 1.5, 1.7)
    assert found.verdict == "speculate"
    assert found.chosen == EIGHT
    text = advise(found)
    assert text is not None
    assert text.startswith("Use fixed:8: 1.60x (from 1.50x to 1.70x) of plain decoding's speed")
    assert "Speculate up to 1 request at a time" in text


def test_a_range_that_reaches_below_one_is_unclear() -> None:
    found = tuned(PAYS_ALONE, 1.1, 0.98, 1.2)
    assert (found.verdict, found.chosen) == ("unclear", OFF)
    text = advise(found)
    assert text is not None
    assert text.startswith("No clear gain")


def test_a_prediction_that_fails_is_off() -> None:
    found = tuned(PAYS_ALONE, 0.9, 0.95, 1.0)
    assert (found.verdict, found.chosen) == ("off", OFF)
    text = advise(found)
    assert text is not None
    assert text.startswith("Leave speculation off: fixed:8 was predicted to give 1.70x")


def test_off_is_said_without_a_measurement() -> None:
    found = tuned(NEVER_PAYS)
    assert (found.verdict, found.chosen) == ("off", OFF)
    text = advise(found)
    assert text is not None
    assert "no width is predicted to gain 3% or more with 1 request at a time" in text


def test_nothing_is_said_before_it_is_measured() -> None:
    found = tuned(PAYS_ALONE)
    assert (found.verdict, advise(found)) == (None, None)


def test_every_slot_has_two_requests() -> None:
    assert level_requests([1, 2, 3], 1) == [1, 2, 3]
    assert level_requests([1, 2, 3], 2) == [1, 2, 3, 1]


@pytest.mark.parametrize("levels", [(), (0, 1), (2, 2)])
def test_impossible_levels(levels: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="--concurrency"):
        TuneOrder(levels=levels)


def test_levels_are_sorted() -> None:
    assert TuneOrder(levels=(4, 1)).levels == (1, 4)
