"""What comes out does not depend on how the text was cut: for every cutting of every text."""

from collections.abc import Sequence
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.parsing import (
    OutputParser,
    Part,
    ToolCallArguments,
    ToolCallStart,
    choose_reasoning_format,
    choose_tool_format,
    combine,
    merged,
)

TOOLS: list[dict[str, object]] = [
    {
        "type": "function",
        "function": {
            "name": "find",
            "parameters": {"type": "object", "properties": {"q": {"type": "string"}}},
        },
    },
    {"type": "function", "function": {"name": "now"}},
]
ARGUMENTS = '{"q": "\\"</tool_call>{\u00e9\U0001f600", "n": [{"a": -1.5}, null]}'
FRAGMENTS = {
    "hermes": [
        f'<tool_call>\n{{"name": "find", "arguments": {ARGUMENTS}}}\n</tool_call>',
        '<tool_call>{"arguments": {}, "name": "now"}</tool_call>',
        '<tool_call>{"name": "find", "arguments": {"q": tru',
        "<tool_call>",
        "</tool_call>",
        '{"name": "now", "arguments": ',
    ],
    "llama3-json": [
        f'{{"name": "find", "parameters": {ARGUMENTS}}}',
        '{"name": "now", "parameters": {}}',
        '{"name": "find", "parameters": {"q": 1,}',
        '{"city": 1}',
        "<|python_tag|>",
        ";",
        "{",
    ],
    "qwen3-coder": [
        "<tool_call>\n<function=find>\n<parameter=q>\na\n<b>\U0001f600\n</parameter>\n</function>\n"
        "</tool_call>",
        "<function=now></function>",
        "<tool_call>",
        "</tool_call>",
        "<function=find><parameter=q>",
        "</parameter></function>",
        "<function=no>",
    ],
}
NOISE = ["text", " ", "\n", "\n\n", "<", "{", '"', "\\", "</think>", "<think>", "\u4f60\u0301"]


def parser(name: str, *, starts_inside: bool = False) -> OutputParser:
    tools = choose_tool_format(None, name)
    reasoning = choose_reasoning_format(None, "think")
    assert tools is not None and reasoning is not None
    return combine(reasoning.parser(starts_inside=starts_inside), tools.parser(TOOLS))


def parsed(machine: OutputParser, pieces: Sequence[str]) -> list[Part]:
    parts = [part for piece in pieces for part in machine.feed(piece)]
    return merged([*parts, *machine.end()])


def cut(text: str, places: Sequence[int]) -> list[str]:
    return [text[start:end] for start, end in pairwise([0, *sorted(places), len(text)])]


def text_of(parts: Sequence[Part]) -> str:
    return "".join("" if isinstance(part, ToolCallStart) else part.text for part in parts)


@st.composite
def answers(draw: st.DrawFn) -> tuple[str, str]:
    name = draw(st.sampled_from(sorted(FRAGMENTS)))
    fragment = st.sampled_from(FRAGMENTS[name]) | st.sampled_from(NOISE) | st.text(max_size=4)
    text = "".join(draw(st.lists(fragment, max_size=7)))
    return name, text[: draw(st.integers(0, len(text)))] if draw(st.booleans()) else text


@given(answers(), st.data(), st.booleans())
def test_any_answer_with_any_cuts(
    answer: tuple[str, str], data: st.DataObject, starts_inside: bool
) -> None:
    name, text = answer
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=12))
    whole = parsed(parser(name, starts_inside=starts_inside), [text])
    assert parsed(parser(name, starts_inside=starts_inside), cut(text, places)) == whole
    assert parsed(parser(name, starts_inside=starts_inside), list(text)) == whole
    check_numbering(whole)


def check_numbering(parts: Sequence[Part]) -> None:
    """Calls are numbered in order, and arguments come only for the call that is open."""
    num_calls = 0
    for part in parts:
        if isinstance(part, ToolCallStart):
            assert part.index == num_calls
            num_calls += 1
        elif isinstance(part, ToolCallArguments):
            assert part.index == num_calls - 1


@given(answers())
def test_without_a_call_nothing_is_lost(answer: tuple[str, str]) -> None:
    name, text = answer
    tools = choose_tool_format(None, name)
    assert tools is not None
    parts = parsed(tools.parser(TOOLS), [text])
    if not any(isinstance(part, ToolCallStart) for part in parts):
        assert text_of(parts) == text


SHORT = {
    "hermes": 'a</think>b<tool_call>{"name":"find","arguments":{"q":1}}</tool_call>',
    "llama3-json": 'a</think>{"name":"find","parameters":{"q":1}};<|python_tag|>{"',
    "qwen3-coder": "a</think>b<function=find><parameter=q>\n</parameter></function></tool_call>c",
}


@pytest.mark.parametrize("name", SHORT)
def test_every_pair_of_cuts(name: str) -> None:
    text = SHORT[name]
    whole = parsed(parser(name, starts_inside=True), [text])
    assert any(isinstance(part, ToolCallStart) for part in whole)
    for places in combinations(range(0, len(text) + 1), 2):
        assert parsed(parser(name, starts_inside=True), cut(text, places)) == whole


@pytest.mark.parametrize("name", FRAGMENTS)
def test_a_long_answer_takes_linear_time(name: str) -> None:
    """Hostile repetitions; quadratic time would be minutes."""
    for fragment in [*FRAGMENTS[name], " ", "<"]:
        machine = parser(name)
        text = fragment * (20_000 // len(fragment))
        for start in range(0, len(text), 8):
            machine.feed(text[start : start + 8])
        machine.end()
