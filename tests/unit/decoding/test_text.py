"""Streaming text: whole characters, stop strings, and equality with one-shot decoding."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.decoding.text import TextStream
from blockdraft.testing import ByteTextCodec

CODEC = ByteTextCodec()


def pieces(data: Sequence[int], stops: Sequence[str] = ()) -> list[str]:
    stream = TextStream(CODEC.decode, stops)
    out: list[str] = []
    for token_id in data:
        stopped = stream.push(token_id)
        out.append(stream.take())
        if stopped:
            break
    return [*out, stream.finish()]


def test_an_emoji_split_over_four_tokens_appears_whole() -> None:
    """B13: no replacement character before the character is complete."""
    assert pieces("a\N{GRINNING FACE}b".encode()) == [
        "a", "", "", "", "\N{GRINNING FACE}", "b", "",
    ]  # fmt: skip


def test_an_answer_that_ends_inside_a_character_shows_the_replacement_at_the_end() -> None:
    """B13: max_tokens may cut a character; nothing is lost and nothing is shown early."""
    data = "x\N{GRINNING FACE}".encode()[:-1]
    assert pieces(data) == ["x", "", "", "", "\N{REPLACEMENT CHARACTER}"]


@given(st.lists(st.one_of(st.integers(0, 255), st.sampled_from([256, 257, 260])), max_size=24))
def test_pieces_join_to_the_one_shot_text_for_any_bytes(ids: list[int]) -> None:
    """B13: deliberately invalid bytes and special tokens included."""
    assert "".join(pieces(ids)) == CODEC.decode(ids)


@given(st.text(max_size=30))
def test_no_piece_ends_in_half_a_character(text: str) -> None:
    for piece in pieces(text.encode()):
        assert "\N{REPLACEMENT CHARACTER}" not in piece or "\N{REPLACEMENT CHARACTER}" in text


def test_the_earliest_stop_in_the_text_wins_not_the_first_in_the_list() -> None:
    """B04."""
    assert "".join(pieces(b"this, a", ["a", "is", ","])) == "th"


def test_a_stop_string_over_several_tokens_is_never_partly_shown() -> None:
    """B01."""
    out = pieces(b"ab STOP cd", ["STOP"])
    assert out == ["a", "b", " ", "", "", "", "", ""]


def test_a_false_start_of_a_stop_string_is_released() -> None:
    assert "".join(pieces(b"STORM", ["STOP"])) == "STORM"
    assert pieces(b"STOx", ["STOP"]) == ["", "", "", "STOx", ""]


@given(st.text(alphabet="ab", max_size=20), st.lists(st.text("ab", min_size=1, max_size=4)))
def test_stops_cut_where_a_search_of_the_whole_text_would(text: str, stops: list[str]) -> None:
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    if not ends:
        expected = text
    else:
        # The first token that completes any stop decides; of several, the earliest start.
        seen = text[: min(ends)]
        expected = seen[: min(seen.find(stop) for stop in stops if stop in seen)]
    assert "".join(pieces(text.encode(), stops)) == expected


def test_a_stop_before_the_minimum_is_no_stop_later() -> None:
    stream = TextStream(CODEC.decode, ["long stop", "a"])
    assert not stream.push(ord("a"), find_stop=False)
    assert not stream.push(ord("b"))
    assert stream.push(ord("a"))
    assert stream.finish() == "ab"


@pytest.mark.parametrize("text", ["e\N{COMBINING ACUTE ACCENT}", "\N{CJK UNIFIED IDEOGRAPH-4E2D}"])
def test_combining_marks_and_cjk(text: str) -> None:
    """B13."""
    assert "".join(pieces(text.encode())) == text
