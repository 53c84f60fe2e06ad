"""Widths, counts and the verdict of `blockdraft verify`."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from blockdraft.api import PromptOptions
from blockdraft.cli.answers import AnswerOptions
from blockdraft.cli.comparison import Difference
from blockdraft.cli.pair import Pair
from blockdraft.cli.prompts import PromptRecord
from blockdraft.cli.verification import (
    Check,
    check_record,
    choose_widths,
    count_by_width,
    difference_text,
    open_sessions,
)
from blockdraft.decoding import AcceptanceStats, SamplingParams
from blockdraft.engine import EngineConfig, WidthMode
from blockdraft.errors import ConfigError
from blockdraft.testing import RandomDrafter, hashed_logits
from blockdraft.testing.laws import LogitsOf


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured costs stay out of the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def pair(make_pair: Callable[[LogitsOf, int], Pair]) -> Pair:
    made = make_pair(hashed_logits(16), 16)
    return replace(made, drafter=RandomDrafter(16, 8))


def test_default_widths_follow_the_drafter(pair: Pair) -> None:
    assert choose_widths(None, pair) == ("off", 2, 4, 8, "auto")
    assert choose_widths((8, "auto", 3, 3), pair) == (8, "auto", 3)
    assert choose_widths(None, replace(pair, width=WidthMode("fixed", 3))) == (3,)


@pytest.mark.parametrize("width", [0, 9])
def test_a_width_beyond_the_drafter_is_refused(pair: Pair, width: int) -> None:
    """L09: asking for more than trained is told, not clamped in silence."""
    with pytest.raises(ConfigError, match=f"--widths has {width}, .* 1 to 8"):
        choose_widths((2, width), pair)


def test_widths_without_room_for_a_draft_are_refused(pair: Pair) -> None:
    with pytest.raises(ConfigError, match="nothing to compare"):
        choose_widths((1, 1), pair)
    with pytest.raises(ConfigError, match="nothing to compare"):
        choose_widths(None, replace(pair, drafter=RandomDrafter(16, 1)))
    with pytest.raises(ConfigError, match="nothing to compare"):
        choose_widths(None, replace(pair, width=WidthMode("off")))
    assert choose_widths((1, 2), pair) == (1, 2)


@pytest.mark.parametrize(
    "params",
    [SamplingParams(max_new_tokens=12), SamplingParams(max_new_tokens=12, temperature=1.0, seed=4)],
    ids=["greedy", "seeded"],
)
def test_every_width_gives_plain_decodings_tokens(pair: Pair, params: SamplingParams) -> None:
    record = PromptRecord(id="a", prompt_ids=(1, 2, 3))
    options = AnswerOptions(prompt=PromptOptions())
    config = EngineConfig(slots=1, kv_memory=10**6)
    sessions = open_sessions(pair, ("off", 1, 2, 8, "auto"), config)
    checks = list(check_record(pair, record, params, options, sessions, epsilon=0.0))
    assert [check.width for check in checks] == ["off", 1, 2, 8, "auto"]
    assert all(check.difference is None for check in checks)


def check(width: int, margin: float | None) -> Check:
    difference = None
    if margin is not None:
        difference = Difference(
            position=4, plain_id=7, drafted_id=None, margin=margin, is_near_tie=margin < 0.5
        )
    record = PromptRecord(id="a", prompt_ids=(1,))
    stats = AcceptanceStats(requests=1, steps=2, tokens=5)
    return Check(record=record, turn=0, width=width, stats=stats, difference=difference)


def test_counts_tell_near_ties_from_other_differences() -> None:
    checks = [check(2, None), check(2, 0.1), check(4, None), check(4, 3.0)]
    first, second = count_by_width(checks, (2, 4))
    assert (first.identical, first.near_ties, first.different) == (1, 1, 0)
    assert (second.identical, second.near_ties, second.different) == (1, 0, 1)
    assert first.stats.tokens == 10


def test_a_difference_is_told_with_position_and_margin() -> None:
    """C03: the first difference and its margin."""
    found = check(2, 0.1)
    assert found.difference is not None
    text = difference_text(found, found.difference, 0.5)
    assert "token 4 is the end, plainly 7; top-two margin 0.1, near-tie (under 0.5)" in text
