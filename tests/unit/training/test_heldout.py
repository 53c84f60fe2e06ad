"""Whole conversations are held out, categories take turns, and the choice is stable."""

from collections.abc import Sequence
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from blockdraft.training.batches.heldout import Named, choose_heldout


def named(names: Sequence[tuple[str, str | None]]) -> list[Named]:
    return [Named(row, name, category) for row, (name, category) in enumerate(names)]


ANSWERS = named([(f"c{i // 2}", ("math", "chat")[i // 2 % 2]) for i in range(40)])
"""Twenty conversations of two turns."""

conversations = st.lists(
    st.tuples(st.sampled_from("abcdefghijkl"), st.sampled_from(["math", "chat", None])), max_size=40
)


def test_conversations_are_not_split() -> None:
    chosen = choose_heldout(ANSWERS, 0.4, 100)
    assert len(chosen) == 16 and chosen == tuple(sorted(chosen))
    assert {ANSWERS[row].conversation for row in chosen}.isdisjoint(
        ANSWERS[row].conversation for row in range(40) if row not in chosen
    )


def test_categories_take_turns() -> None:
    skewed = named([(f"m{i}", "math") for i in range(90)] + [(f"c{i}", "chat") for i in range(10)])
    chosen = choose_heldout(skewed, 0.1, 100)
    assert [skewed[row].category for row in chosen].count("chat") == 5
    assert len(choose_heldout(skewed, 0.5, 100)) == 50, "one category may run out"


@given(conversations, st.floats(0, 0.99), st.integers(1, 20))
def test_bounds_hold_and_conversations_stay_whole(
    names: list[tuple[str, str | None]], share: float, most: int
) -> None:
    # A conversation has one category.
    answers = named([(name, category) for name, category in dict(names).items() for _ in range(2)])
    chosen = frozenset(choose_heldout(answers, share, most))
    assert len(chosen) <= min(most, int(share * len(answers)))
    for row in chosen:
        same = {a.row for a in answers if a.conversation == answers[row].conversation}
        assert same <= chosen


def test_the_order_of_the_answers_does_not_matter() -> None:
    rows = count()
    shuffled = [a._replace(row=next(rows)) for a in sorted(ANSWERS, key=lambda a: a.row % 7)]
    names = [
        {answers[row].conversation for row in choose_heldout(answers, 0.3, 100)}
        for answers in (ANSWERS, shuffled)
    ]
    assert names[0] == names[1]


def test_appending_answers_only_adds_to_those_held_out() -> None:
    """What was held out of a training stays held out of its continuation with more data: at the
    same limit only conversations of new names take places."""
    more = ANSWERS + [Named(40 + i, f"new{i}", ("math", "chat")[i % 2]) for i in range(4)]
    before = {ANSWERS[row].conversation for row in choose_heldout(ANSWERS, 0.9, 12)}
    after = {more[row].conversation for row in choose_heldout(more, 0.9, 12)}
    assert len(before - after) <= len({name for name in after if name.startswith("new")})


def test_no_share_or_no_answers_hold_nothing_out() -> None:
    assert choose_heldout(ANSWERS, 0.0, 100) == ()
    assert choose_heldout([], 0.5, 100) == ()
