"""Reasoning, alone and in front of tool calls."""

import pytest

from blockdraft.parsing import (
    Content,
    OutputParser,
    Part,
    Reasoning,
    ToolCallArguments,
    ToolCallStart,
    choose_reasoning_format,
    choose_tool_format,
    combine,
    merged,
)

TOOLS = [{"type": "function", "function": {"name": "now"}}]
CALL = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
CALL_PARTS = [ToolCallStart(0, "now"), ToolCallArguments(0, "{}")]
THINK = choose_reasoning_format(None, "think")
HERMES = choose_tool_format(None, "hermes")


def parser(*, starts_inside: bool) -> OutputParser:
    assert THINK is not None
    return THINK.parser(starts_inside=starts_inside)


def both(*, starts_inside: bool) -> OutputParser:
    assert HERMES is not None
    return combine(parser(starts_inside=starts_inside), HERMES.parser(TOOLS))


def parsed(machine: OutputParser, *pieces: str) -> list[Part]:
    parts = [part for piece in pieces for part in machine.feed(piece)]
    return merged([*parts, *machine.end()])


@pytest.mark.parametrize(
    ("text", "starts_inside", "parts"),
    [
        ("<think>\nhm\n</think>\n\nYes.", False, [Reasoning("hm"), Content("Yes.")]),
        ("\n<think>hm</think>Yes.", False, [Reasoning("hm"), Content("Yes.")]),
        ("\nhm\n\nso\n</think>\n\nYes.\n", True, [Reasoning("hm\n\nso"), Content("Yes.\n")]),
        ("<think>\nhm</think>Yes.", True, [Reasoning("hm"), Content("Yes.")]),
        ("<think>\n\n</think>\n\nYes.", False, [Content("Yes.")]),
        ("</think>\n\nYes.", True, [Content("Yes.")]),
        (" Yes <think>no</think>", False, [Content(" Yes <think>no</think>")]),
        ("a</think>b</think><think>c", True, [Reasoning("a"), Content("b</think><think>c")]),
        ("a < b </thin </th</think>c", True, [Reasoning("a < b </thin </th"), Content("c")]),
        ("<think>cut o", False, [Reasoning("cut o")]),
        ("cut </thi", True, [Reasoning("cut </thi")]),
        ("cut \n", True, [Reasoning("cut \n")]),
        ("<thi", False, [Content("<thi")]),
        ("<thi", True, [Reasoning("<thi")]),
        ("\n", False, [Content("\n")]),
        ("\n", True, []),
        ("", False, []),
    ],
)
def test_reasoning(text: str, starts_inside: bool, parts: list[Part]) -> None:
    assert parsed(parser(starts_inside=starts_inside), text) == parts
    assert parsed(parser(starts_inside=starts_inside), *text) == parts


def test_end_of_thinking_content_and_call_in_one_delta() -> None:
    """B14, and the first of the shapes of B15."""
    assert parsed(both(starts_inside=True), f"x</think>y{CALL}") == [
        Reasoning("x"),
        Content("y"),
        *CALL_PARTS,
    ]


def test_calls_inside_reasoning_are_text() -> None:
    assert parsed(both(starts_inside=True), f"try {CALL}</think>{CALL}") == [
        Reasoning(f"try {CALL}"),
        *CALL_PARTS,
    ]


def test_reasoning_streams() -> None:
    machine = both(starts_inside=True)
    assert machine.feed("one two") == [Reasoning("one two")]
    assert machine.feed(" </") == []
    assert machine.feed("p>") == [Reasoning(" </p>")]


def test_combine_with_less() -> None:
    assert parsed(combine(None, None), "<think>", "", "x") == [Content("<think>x")]
    assert HERMES is not None
    assert parsed(combine(None, HERMES.parser(TOOLS)), CALL) == CALL_PARTS
    assert parsed(combine(parser(starts_inside=True), None), f"a</think>{CALL}") == [
        Reasoning("a"),
        Content(CALL),
    ]
