"""The rules that end an answer, token by token."""

import pytest

from blockdraft.decoding.emission import Emission
from blockdraft.testing import ByteTextCodec

A, B, C, STOP = 97, 98, 99, 2


def emission(*, max_tokens: int = 10, min_tokens: int = 0, stop: tuple[str, ...] = ()) -> Emission:
    return Emission(
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        stop_ids=(STOP,),
        stop=stop,
        decode_text=ByteTextCodec().decode,
    )


def test_a_stop_inside_the_budget_ends_with_stop() -> None:
    """B02: ids [a, b, STOP, c, ..], max_tokens 5 -> "stop", 3 tokens."""
    out = emission(max_tokens=5)
    assert out.add([A, B, STOP, C, C]) == (A, B, STOP)
    assert out.finish_reason == "stop"
    assert out.take_text() == "ab"


def test_a_stop_past_the_cap_ends_with_length() -> None:
    """B02: stop at position 6 with cap 5 -> "length", 5 tokens."""
    out = emission(max_tokens=5)
    assert out.add([A, A, A, A, A, STOP]) == (A, A, A, A, A)
    assert out.finish_reason == "length"
    assert out.remaining == 0


def test_a_stop_as_the_last_allowed_token_is_a_stop() -> None:
    """C18: exactly at the length limit."""
    out = emission(max_tokens=3)
    assert out.add([A, B, STOP]) == (A, B, STOP)
    assert out.finish_reason == "stop"


def test_the_token_that_completes_a_stop_string_is_kept_and_its_text_is_not() -> None:
    """B03: ids, text and usage describe the same tokens."""
    out = emission(stop=("bc",))
    assert out.add([A, B, C, A]) == (A, B, C)
    assert out.finish_reason == "stop"
    assert out.take_text() == "a"


@pytest.mark.parametrize("min_tokens", [0, 1, 2, 3])
def test_no_stop_before_the_minimum(min_tokens: int) -> None:
    """B12."""
    out = emission(min_tokens=min_tokens, stop=("c",))
    out.add([A, B, C, C])
    assert len(out.ids) == (3 if min_tokens <= 2 else 4)
    assert out.finish_reason == "stop"


def test_without_a_text_function_there_is_no_text() -> None:
    out = Emission(max_tokens=2, min_tokens=0, stop_ids=(), stop=(), decode_text=None)
    out.add([A, B, C])
    assert (out.take_text(), out.finish_reason, out.ids) == ("", "length", [A, B])
