"""Words and shingles: what counts as the same, and hashes that never change."""

import pytest

from blockdraft.data.words import fingerprint, shingles_of, words_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello,  WORLD!", ["hello", "world"]),
        ("\u201cDon\u2019t\u201d\u2028stop", ["don't", "stop"]),
        ("3 + 5?", ["3", "+", "5"]),
        ("\uff21\uff22 caf\u00e9", ["ab", "caf\u00e9"]),
        ("\u4f60\u597d world", ["\u4f60", "\u597d", "world"]),
        ("?!", ["?!"]),
        (" ", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert words_of(text) == words


def test_signs_tell_prompts_apart() -> None:
    assert fingerprint([words_of("3 + 5")]) != fingerprint([words_of("3 - 5")])


def test_turns_tell_conversations_apart() -> None:
    assert fingerprint([["a", "b"]]) != fingerprint([["a"], ["b"]])


@pytest.mark.parametrize(("num_words", "num_shingles"), [(0, 1), (1, 1), (7, 1), (8, 1), (9, 2)])
def test_number_of_shingles(num_words: int, num_shingles: int) -> None:
    assert len(shingles_of([str(number) for number in range(num_words)])) == num_shingles


def test_a_short_text_is_one_shingle_of_its_own() -> None:
    long = [str(number) for number in range(9)]
    assert not shingles_of(long[:7]) & shingles_of(long)
    assert shingles_of(long[:8]) < shingles_of(long)


def test_hashes_are_the_same_in_every_process() -> None:
    assert shingles_of(["a", "b"]) == {2952434739088078779}
