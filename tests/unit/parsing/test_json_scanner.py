"""The scanner against Python's JSON reader, on JSON and on near misses."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.parsing.json_scanner import MAX_DEPTH, is_json

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def python_reads(text: str) -> bool:
    def refuse(word: str) -> object:
        raise ValueError(word)

    try:
        json.loads(text, strict=False, parse_constant=refuse)
    except ValueError:
        return False
    return True


@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_all_json_is_json(value: object, escape: bool, indent: int | None) -> None:
    assert is_json(json.dumps(value, ensure_ascii=escape, indent=indent))


@given(VALUES, st.integers(0, 60), st.sampled_from(list('{}[]",:\\0-+.eEtrue nulfx')))
def test_near_misses_are_judged_as_python_does(value: object, place: int, char: str) -> None:
    text = json.dumps(value)
    for changed in (text[:place] + char + text[place:], text[:place] + text[place + 1 :]):
        assert is_json(changed) == python_reads(changed)


@given(st.text(alphabet='{}[]",:\\01-+.eEtrufalsn \n', max_size=12))
def test_noise_is_judged_as_python_does(text: str) -> None:
    assert is_json(text) == python_reads(text)


@pytest.mark.parametrize("depth", [MAX_DEPTH, MAX_DEPTH + 1])
def test_depth_is_bounded(depth: int) -> None:
    assert is_json("[" * depth + "]" * depth) is (depth <= MAX_DEPTH)
