"""The bootstrap interval: repeatable, around tau, and only where it means something."""

from blockdraft.decoding import AcceptanceStats
from blockdraft.evaluation.bootstrap import tau_interval


def counted(steps: int, committed: int) -> AcceptanceStats:
    return AcceptanceStats(requests=1, steps=steps, tokens=committed + 1)


ANSWERS = [counted(10, 20), counted(10, 40), counted(40, 60), counted(5, 6)]


def test_equal_seeds_give_equal_intervals() -> None:
    assert tau_interval(ANSWERS) == tau_interval(ANSWERS)
    many = [counted(10 + i, 20 + i * i) for i in range(20)]
    assert tau_interval(many, seed=1) != tau_interval(many, seed=2)


def test_the_interval_lies_around_tau_and_within_the_extremes() -> None:
    interval = tau_interval(ANSWERS)
    assert interval is not None
    assert 1.2 <= interval.low < 126 / 65 < interval.high <= 4.0


def test_a_lower_level_is_narrower() -> None:
    wide, narrow = tau_interval(ANSWERS, level=0.99), tau_interval(ANSWERS, level=0.5)
    assert wide is not None and narrow is not None
    assert wide.low < narrow.low < narrow.high < wide.high


def test_equal_answers_leave_no_doubt() -> None:
    assert tau_interval([counted(4, 10)] * 3) == (2.5, 2.5)


def test_one_answer_says_nothing_about_others() -> None:
    assert tau_interval(ANSWERS[:1]) is None
    assert tau_interval([ANSWERS[0], AcceptanceStats(requests=1, tokens=1)]) is None
