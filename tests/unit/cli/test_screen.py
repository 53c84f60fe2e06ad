"""What one watches: text token by token, live or written once."""

import io
from collections.abc import Sequence

import pytest
from rich.console import Console

from blockdraft.cli.screen import DRAFTED_STYLE, LaneText, show_race
from blockdraft.decoding import AcceptanceStats, Commit


def decode_text(ids: Sequence[int]) -> str:
    return bytes(ids).decode("utf-8", errors="replace")


def commit(ids: tuple[int, ...], num_accepted: int, *, last: bool = False) -> Commit:
    return Commit(
        ids=ids,
        num_accepted=num_accepted,
        text="",
        logprobs=(),
        stats=AcceptanceStats(requests=1, steps=2, tokens=5, seconds=2.0),
        finish_reason="length" if last else None,
    )


def test_drafted_tokens_have_their_style() -> None:
    lane = LaneText(decode_text)
    lane.add(commit(tuple(b"abc"), 2))
    styled = {lane.text.plain[span.start : span.end]: span.style for span in lane.text.spans}
    assert lane.text.plain == "abc"
    assert styled == {"a": DRAFTED_STYLE, "b": DRAFTED_STYLE}
    assert lane.title == "5 tokens, 2.5 tok/s, tau 2.00"


def test_a_character_of_several_tokens_is_shown_whole() -> None:
    """B13: never half a character."""
    lane = LaneText(decode_text)
    first, second = "\u00e9".encode()
    lane.add(commit((first,), 1))
    assert lane.text.plain == ""
    lane.add(commit((second,), 0))
    assert lane.text.plain == "\u00e9"


def test_ids_are_shown_without_a_tokenizer() -> None:
    lane = LaneText(None)
    lane.add(commit((7, 8), 1))
    assert lane.text.plain == "7 8 "


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_race_shows_its_heading_and_the_drafted_answer(is_terminal: bool) -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=80, force_terminal=is_terminal)
    with show_race(console, "a prompt [bold]", decode_text) as watch:
        watch("plain", commit(tuple(b"answer one"), 0, last=True))
        watch("drafted", commit(tuple(b"answer two"), 0, last=True))
    shown = stream.getvalue()
    assert "a prompt [bold]" in shown
    assert "answer two" in shown
    assert ("answer one" in shown) is is_terminal
