"""Llama-3 calls: bare objects, the tag, separators, and JSON that is no call."""

import pytest

from blockdraft.parsing import (
    Content,
    Part,
    ToolCallArguments,
    ToolCallStart,
    choose_tool_format,
    merged,
)

TOOLS = [
    {"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}},
    {"type": "function", "function": {"name": "now"}},
]
FIND = '{"name": "find", "parameters": {"q": "a;b}"}}'
NOW = '{"type": "function", "name": "now", "parameters": {}}'
FIND_PARTS = [ToolCallStart(0, "find"), ToolCallArguments(0, '{"q": "a;b}"}')]
NOW_PARTS = [ToolCallStart(1, "now"), ToolCallArguments(1, "{}")]


def parsed(text: str) -> list[Part]:
    chosen = choose_tool_format(None, "llama3-json")
    assert chosen is not None
    machine = chosen.parser(TOOLS)
    return merged([*machine.feed(text), *machine.end()])


@pytest.mark.parametrize(
    "text", [FIND, f"\n\n{FIND}\n", f"<|python_tag|>{FIND}", f"{FIND};", FIND[:-1]]
)
def test_one_call(text: str) -> None:
    assert parsed(text) == FIND_PARTS


@pytest.mark.parametrize(
    "between", [";", "; ", " ;\n", "\n", "", "<|python_tag|>", "; <|python_tag|>\n"]
)
def test_two_calls(between: str) -> None:
    assert parsed(FIND + between + NOW) == [*FIND_PARTS, *NOW_PARTS]


def test_text_around_calls() -> None:
    assert parsed(f"I look:\n  {FIND}\nSo.") == [Content("I look:"), *FIND_PARTS, Content("So.")]
    assert parsed(f"I look: <|python_tag|>{FIND}") == [Content("I look:"), *FIND_PARTS]
    assert parsed(f"{FIND}; more") == [*FIND_PARTS, Content("; more")]
    assert parsed(f"{FIND}; {{1}}") == [*FIND_PARTS, Content("; {1}")]


def test_arguments_stream() -> None:
    chosen = choose_tool_format(None, "llama3-json")
    assert chosen is not None
    machine = chosen.parser(TOOLS)
    assert machine.feed('{"name": "find", "parameters": {"q"') == []
    assert machine.feed(': "a') == [ToolCallStart(0, "find"), ToolCallArguments(0, '{"q": "a')]


@pytest.mark.parametrize(
    "text",
    [
        '{"city": "Paris", "name": "find"}',
        '{"name": "unknown", "parameters": {}}',
        '{"name": "find"}',
        '{"name": "find", "parameters": {"q',
        f"Write {FIND}",
        '<|python_tag|>find.call(q="a")',
        "<|python_tag|>",
        "<|python_",
        "{} {",
        "[1]\n{2",
    ],
)
def test_other_json_and_broken_calls_are_text(text: str) -> None:
    assert parsed(text) == [Content(text)]


def test_a_json_answer_is_not_held_back() -> None:
    chosen = choose_tool_format(None, "llama3-json")
    assert chosen is not None
    machine = chosen.parser(TOOLS)
    assert machine.feed('{"city": "Pa') == [Content('{"city": "Pa')]
