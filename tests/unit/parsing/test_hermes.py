"""Hermes calls: what is a call, what is text, and how soon each is certain."""

import json

import pytest

from blockdraft.parsing import (
    Content,
    Part,
    ToolCallArguments,
    ToolCallStart,
    choose_tool_format,
    merged,
)
from blockdraft.parsing.parts import OutputParser

TOOLS = [
    {"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}},
    {"type": "function", "function": {"name": "now"}},
]


def parser() -> OutputParser:
    chosen = choose_tool_format(None, "hermes")
    assert chosen is not None
    return chosen.parser(TOOLS)


def parsed(text: str) -> list[Part]:
    machine = parser()
    return merged([*machine.feed(text), *machine.end()])


def call(arguments: str, name: str = "find") -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def parts_of(index: int, arguments: str, name: str = "find") -> list[Part]:
    return [ToolCallStart(index, name), ToolCallArguments(index, arguments)]


TRICKY = [
    "{}",
    '{"city": "Paris"}',
    '{"a": {"b": [{"c": "}"}, "]", []]}, "d": -1.5e+3, "e": [true, false, null]}',
    '{"text": "say \\"hi\\" \\\\"}',
    '{"text": "</tool_call>", "more": "<tool_call>{"}',
    '{"text": "\\u00e9\\ud83d\\ude00 caf\u00e9 \u4f60\u597d \U0001f600 e\u0301"}',
    '{\n  "a" : 1 ,\n  "b" : [ ]\n}',
    '{"": ""}',
]


@pytest.mark.parametrize("arguments", TRICKY)
def test_arguments_come_out_as_they_were_written(arguments: str) -> None:
    assert parsed(call(arguments)) == parts_of(0, arguments)


def test_text_before_between_and_after_calls() -> None:
    text = f" Let me see.\n{call('{}')}\n And then\n\n{call('{}', 'now')}\n\nDone.\n"
    assert parsed(text) == [
        Content(" Let me see."),
        *parts_of(0, "{}"),
        Content("And then"),
        *parts_of(1, "{}", "now"),
        Content("Done.\n"),
    ]


SEVEN_SHAPES = {
    "text and start": (
        "Well.\n<tool_call>\n",
        '{"name": "find", "arguments": {"a": 1}}\n</tool_call>',
    ),
    "start mid-block": ('l.<tool_call>{"na', 'me": "find", "arguments": {"a": 1}}</tool_call>'),
    "end and newline": ('<tool_call>{"name": "find", "arguments": {"a": 1}}', "</tool_call>\n"),
    "end and text": ('<tool_call>{"name": "find", "arguments": {"a": 1}', "}</tool_call> Done."),
    "full call": ('<tool_call>{"name": "find", "arguments": {"a": 1}}</tool_call>',),
    "two calls": (call('{"a": 1}') + "\n" + call('{"a": 1}'),),
    "end and start fused": (
        '<tool_call>{"name": "find", "arguments": {"a": 1}',
        '}</tool_call><tool_call>{"name"',
        ': "find", "arguments": {"a": 1}}</tool_call>',
    ),
}


@pytest.mark.parametrize("shape", SEVEN_SHAPES)
def test_shapes_of_one_delta(shape: str) -> None:
    """B15: start, body and end of a call in any deltas."""
    machine = parser()
    parts = [part for piece in SEVEN_SHAPES[shape] for part in machine.feed(piece)]
    calls = merged([*parts, *machine.end()])
    num_calls = 2 if shape in ("two calls", "end and start fused") else 1
    expected = [part for index in range(num_calls) for part in parts_of(index, '{"a": 1}')]
    assert [part for part in calls if not isinstance(part, Content)] == expected
    texts = {"text and start": "Well.", "start mid-block": "l.", "end and text": "Done."}
    assert [part.text for part in calls if isinstance(part, Content)] == (
        [texts[shape]] if shape in texts else []
    )


def test_arguments_stream() -> None:
    machine = parser()
    assert machine.feed('<tool_call>\n{"name": "find", "arguments": {"a') == []
    assert machine.feed('": "on') == [*parts_of(0, '{"a": "on')]
    assert machine.feed("e tw") == [ToolCallArguments(0, "e tw")]
    assert machine.feed('o"}') == [ToolCallArguments(0, 'o"}')]
    assert machine.feed("}\n</tool_call>") == []
    assert machine.end() == []


def test_text_is_held_back_no_longer_than_needed() -> None:
    machine = parser()
    assert machine.feed("a <") == [Content("a")]
    assert machine.feed("tool") == []
    assert machine.feed("box") == [Content(" <toolbox")]


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ('{"arguments": {"a": 1}, "name": "find"}', '{"a": 1}'),  # the order of Hermes 2
        ('{"name": "find", "parameters": {"a": 1}}', '{"a": 1}'),
        ('{"name": "find"}', "{}"),
        ('{"name": "find", "arguments": null}', "{}"),
        ('{"name": "find", "arguments": "{\\"a\\": \\"x\\\\n\\"}"}', '{"a": "x\\n"}'),
        ('{"id": 7, "x": [{}], "name": "find", "arguments": {"a": 1}}', '{"a": 1}'),
        ('{"name": "find", "arguments": {"a": "x\ny\t"}}', '{"a": "x\\ny\\t"}'),
        ('{"name": "find", "arguments": {"a": 1}', '{"a": 1}'),  # a brace is missing
    ],
)
def test_what_models_make_of_the_format(body: str, arguments: str) -> None:
    assert parsed(f"<tool_call>{body}</tool_call>") == parts_of(0, arguments)
    assert isinstance(json.loads(arguments), dict)


@pytest.mark.parametrize(
    "text",
    [
        call("{}", "unknown"),
        "<tool_call>{'name': 'find', 'arguments': {}}</tool_call>",
        '<tool_call>{"name": "find", "arguments": {\'a\': 1}}</tool_call>',
        '<tool_call>{"name": "find", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "find", "arguments": 5}</tool_call>',
        '<tool_call>{"name": "find", "arguments": "no"}</tool_call>',
        '<tool_call>{"name": "find", "arguments": "{\\"a\\": \\"\\ud800\\"}"}</tool_call>',
        '<tool_call>{"name": {"a": 1}, "arguments": {}}</tool_call>',
        '<tool_call>{"name": null, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "now", "name": "find", "arguments": {}}</tool_call>',
        "<tool_call>{}</tool_call>",
        "<tool_call>find</tool_call>",
        "<tool_call><tool_call>",
        f'<tool_call>{{"{"x" * 600}": 1}}',
        f"<tool_call>{' ' * 600}{{}}",
        call('{"a": ' + "[" * 200 + "}").replace('{"a": ', '{"a" : '),
        '  <tool_call>{"name": "find", "argu',
        "<tool_call>\n",
        "x <tool",
        "x \n",
    ],
)
def test_broken_and_unfinished_calls_are_text(text: str) -> None:
    parts = parsed(text)
    if parts[0] != Content(text):  # broken behind its beginning: the rest is text
        start, arguments, rest = parts
        assert start == ToolCallStart(0, "find")
        assert isinstance(arguments, ToolCallArguments) and isinstance(rest, Content)
        assert text.endswith(arguments.text + rest.text)


def test_a_call_right_behind_a_broken_one_is_found() -> None:
    text = f'<tool_call>\n{{"name": "find", {call("{}")}'
    assert parsed(text) == [Content('<tool_call>\n{"name": "find", '), *parts_of(0, "{}")]


def test_arguments_that_stop_being_json_end_there() -> None:
    assert parsed(call('{"a": tru}')) == [
        *parts_of(0, '{"a": tru'),
        Content("}}\n</tool_call>"),
    ]


@pytest.mark.parametrize("length", range(len(call('{"a": "x"}')) + 1))
def test_answers_cut_by_the_length_limit(length: int) -> None:
    text = call('{"a": "x"}')
    parts = parsed(text[:length])
    calls = [part for part in parts if isinstance(part, ToolCallArguments)]
    if calls:
        assert '{"a": "x"}'.startswith(calls[0].text)
    else:
        assert parts == ([Content(text[:length])] if length else [])


def test_without_tools_everything_is_text() -> None:
    chosen = choose_tool_format(None, "hermes")
    assert chosen is not None
    machine = chosen.parser([])
    assert merged([*machine.feed(call("{}")), *machine.end()]) == [Content(call("{}"))]
