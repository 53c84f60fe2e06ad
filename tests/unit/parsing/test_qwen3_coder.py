"""Qwen3-Coder calls: XML to JSON by the schema of the tool."""

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

SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "flag": {"type": "boolean"},
        "items": {"type": "array", "items": {"type": "string"}},
        "options": {"properties": {"a": {"type": "integer"}}},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "either": {"type": ["integer", "string"]},
        "level": {"enum": [1, 2, 3]},
        "point": {"$ref": "#/$defs/point"},
        "loop": {"$ref": "#/properties/loop"},
    },
    "$defs": {"point": {"type": "object"}},
    "required": ["text"],
}
TOOLS = [
    {"type": "function", "function": {"name": "write", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "now"}},
]


def parsed(text: str) -> list[Part]:
    chosen = choose_tool_format(None, "qwen3-coder")
    assert chosen is not None
    machine = chosen.parser(TOOLS)
    return merged([*machine.feed(text), *machine.end()])


def call(**values: str) -> str:
    parameters = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in values.items())
    return f"<tool_call>\n<function=write>\n{parameters}</function>\n</tool_call>"


def arguments_of(text: str) -> object:
    start, arguments = parsed(text)
    assert start == ToolCallStart(0, "write") and isinstance(arguments, ToolCallArguments)
    return json.loads(arguments.text)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("text", "42", "42"),
        ("text", "true", "true"),
        ("text", 'two\nlines \\ "quoted" <b>\t\u00e9\U0001f600', None),
        ("text", "\n  indented\n\n", None),
        ("text", "<tool_call></tool_call></function>", None),
        ("text", "", ""),
        ("count", "42", 42),
        ("count", " 42 ", 42),
        ("count", "many", "many"),
        ("count", "007", "007"),
        ("ratio", "-1.5e3", -1500.0),
        ("ratio", "NaN", "NaN"),
        ("flag", "true", True),
        ("flag", "False", False),
        ("items", '["a", "b"]', ["a", "b"]),
        ("items", "['a']", "['a']"),
        ("options", '{\n "a": 1}', {"a": 1}),
        ("options", "[" * 5000, None),
        ("maybe", "null", None),
        ("maybe", "none at all", "none at all"),
        ("either", "5", 5),
        ("either", "five", "five"),
        ("level", "2", 2),
        ("point", '{"x": 1}', {"x": 1}),
        ("loop", "1", "1"),
        ("unknown", "1", "1"),
    ],
)
def test_values_follow_the_schema(name: str, text: str, value: object) -> None:
    expected = text if value is None and name != "maybe" else value
    if (name, text) == ("maybe", "null"):
        expected = None
    assert arguments_of(call(**{name: text})) == {name: expected}


def test_long_numbers_stay_exact() -> None:
    parts = parsed(call(count="1" * 5000))
    assert parts[1] == ToolCallArguments(0, '{"count": ' + "1" * 5000 + "}")


def test_additional_properties_have_a_schema_too() -> None:
    chosen = choose_tool_format(None, "qwen3-coder")
    assert chosen is not None
    parameters = {"type": "object", "additionalProperties": {"type": "integer"}}
    machine = chosen.parser([{"function": {"name": "write", "parameters": parameters}}])
    assert machine.feed(call(x="3"))[1] == ToolCallArguments(0, '{"x": 3}')


def test_text_around_calls_and_several_calls() -> None:
    text = f"First.\n\n{call(text='a')}\n{call(text='b', count='1')}\nDone."
    assert parsed(text) == [
        Content("First."),
        ToolCallStart(0, "write"),
        ToolCallArguments(0, '{"text": "a"}'),
        ToolCallStart(1, "write"),
        ToolCallArguments(1, '{"text": "b", "count": 1}'),
        Content("Done."),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "<function=now>\n</function>",
        "<function=now>\n</function>\n</tool_call>",  # the model forgot to open it
        "<tool_call><function=now></function></tool_call>",
        "<tool_call>\n<function=now>\n</function>",
    ],
)
def test_tags_around_a_call_may_be_missing(text: str) -> None:
    assert parsed(text) == [ToolCallStart(0, "now"), ToolCallArguments(0, "{}")]


def test_several_functions_in_one_tag() -> None:
    two = "<tool_call><function=now></function>\n<function=now></function></tool_call>"
    assert [part.index for part in parsed(two) if isinstance(part, ToolCallStart)] == [0, 1]


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\n<function=unknown>\n</function>\n</tool_call>",
        "<function=unknown>",
        "see <function=f(x)> there",
        "<tool_call>\n{}</tool_call>",
        "<tool_call>\n<function=write>\nwords\n</function>",
        "<tool_call>\n<function=write>\n<parameter=te\nxt>a</parameter></function>",
        f"<function={'x' * 300}></function>",
        "a <func",
        "<tool_call>\n<fun",
    ],
)
def test_broken_calls_are_text(text: str) -> None:
    assert parsed(text) == [Content(text)]


@pytest.mark.parametrize("length", range(len(call(text="a", count="1")) - 13))
def test_answers_cut_by_the_length_limit(length: int) -> None:
    """Nothing of a call is passed on before it is complete, so nothing is lost."""
    text = call(text="a", count="1")[:length]
    whole = text.endswith("</function>") or "</function>" in text
    assert whole or parsed(text) == ([Content(text)] if text else [])


def test_many_broken_calls_take_linear_time() -> None:
    """Each nested opening could make the rest be read once more; it must not."""
    text = "<function=write><parameter=text>" * 3000 + "</parameter>junk"
    assert parsed(text) == [Content(text)]
