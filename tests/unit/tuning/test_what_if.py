"""The calculator: costs by hand, its table, and what it refuses."""

import pytest

from blockdraft.errors import ConfigError
from blockdraft.tuning.predict import Answers
from blockdraft.tuning.survival import Survival
from blockdraft.tuning.what_if import WhatIf, best_of, costs_by_hand, predict_table

COSTS = costs_by_hand(20.0, {8: 27.0}, {8: 4.0}, 1.0)


def order(**changes: tuple[int, ...]) -> WhatIf:
    return WhatIf(
        survival=Survival.of_tau(3.0, 8),
        acceptance_source="a guess",
        costs=COSTS,
        costs_source="by hand",
        answers=Answers(),
        levels=changes.get("levels", (1, 4)),
        widths=changes.get("widths", ()),
    )


def test_milliseconds_become_costs() -> None:
    assert COSTS.verify_seconds(1) == pytest.approx(0.020)
    assert COSTS.verify_seconds(8) == pytest.approx(0.027)
    assert COSTS.draft_seconds(1, 8) == pytest.approx(0.004)
    assert COSTS.draft_seconds(2, 8) == pytest.approx(0.008), "two blocks have twice the rows"
    assert COSTS.overhead_seconds == pytest.approx(0.001)


def test_every_width_at_every_concurrency() -> None:
    table = predict_table(order())
    assert [(one.width, one.concurrency) for one in table] == [
        (width, level) for level in (1, 4) for width in (1, 2, 3, 4, 6, 8)
    ]
    best = best_of(table)
    assert list(best) == [1, 4]
    assert all(best[one.concurrency].speedup >= one.speedup for one in table)


def test_only_the_widths_asked_for() -> None:
    assert [one.width for one in predict_table(order(widths=(4,), levels=(2,)))] == [1, 4]


def test_plain_decoding_is_best_where_nothing_gains() -> None:
    dear = costs_by_hand(20.0, {8: 160.0}, {8: 40.0})
    found = WhatIf(
        survival=Survival.of_tau(1.2, 8),
        acceptance_source="",
        costs=dear,
        costs_source="",
        answers=Answers(),
        levels=(1,),
    )
    assert best_of(predict_table(found))[1].width == 1


@pytest.mark.parametrize("widths", [(1,), (9,)])
def test_widths_that_nothing_is_known_of(widths: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="widths are 2 to 8"):
        order(widths=widths)


def test_levels_that_can_not_be() -> None:
    with pytest.raises(ConfigError, match="--concurrency"):
        order(levels=())


def test_costs_that_can_not_be() -> None:
    with pytest.raises(ConfigError, match="--plain-step-ms"):
        costs_by_hand(20.0, {1: 19.0}, {8: 4.0})
    with pytest.raises(ConfigError, match="can't be"):
        costs_by_hand(0.0, {}, {8: 4.0})
