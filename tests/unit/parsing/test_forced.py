"""Forced calls: xgrammar takes the grammars, and whatever they accept is parsed back into calls."""

import json
import random
from collections.abc import Sequence

import pytest

from blockdraft.errors import RequestError
from blockdraft.parsing import (
    Content,
    Part,
    Reasoning,
    ToolCallArguments,
    ToolCallStart,
    choose_reasoning_format,
    merged,
)
from blockdraft.structured.spec import GrammarSpec

pytest.importorskip("xgrammar")
from grammars import Matching, format_of

TOOLS: list[dict[str, object]] = [
    {
        "type": "function",
        "function": {
            "name": "find",
            "parameters": {
                "type": "object",
                "properties": {
                    "q": {"type": "string"},
                    "num": {"type": "integer"},
                    "deep": {"type": "boolean"},
                    "where": {
                        "type": "object",
                        "properties": {"x": {"type": "number"}},
                        "required": ["x"],
                    },
                    "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
                },
                "required": ["q", "where"],
            },
        },
    },
    {"type": "function", "function": {"name": "now"}},
    {"type": "function", "function": {"name": "free", "parameters": {"type": "object"}}},
]
NAMES = ("hermes", "llama3-json", "qwen3-coder")

# Single characters and some longer tokens. Those that lead out of strings and objects come first:
# the walk below turns to them after a while.
CLOSING = [
    "</parameter>",
    "</function>\n</tool_call>",
    "}\n</tool_call>",
    '"}}',
    '"',
    "}",
    "]",
    ">",
]
VOCAB = [
    *CLOSING,
    *(chr(code) for code in range(32, 127)),
    "\n",
    "\u00e9",
    "; ",
    '{"name": ',
    "<end>",
]
STOP_ID = len(VOCAB) - 1
MATCHING = Matching(VOCAB)
accepts, matcher_of = MATCHING.accepts, MATCHING.matcher_of
EXAMPLES = {
    "hermes": [
        '<tool_call>\n{"name": "find", "arguments": {"q": "</tool_call>", "where": {"x": 1.5}}}\n'
        "</tool_call>",
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
    ],
    "llama3-json": [
        '{"name": "find", "parameters": {"q": "; {", "where": {"x": 1.5}}}',
        '{"name": "now", "parameters": {}}',
    ],
    "qwen3-coder": [
        "<tool_call>\n<function=find>\n<parameter=q>\na\nb\n</parameter>\n<parameter=where>\n"
        '{"x": 1.5}\n</parameter>\n</function>\n</tool_call>',
        "<tool_call>\n<function=now>\n</function>\n</tool_call>",
    ],
}
BETWEEN = {"hermes": "\n", "llama3-json": "; ", "qwen3-coder": "\n"}


def parsed(name: str, text: str) -> list[Part]:
    machine = format_of(name).parser(TOOLS)
    return merged([*machine.feed(text), *machine.end()])


def walk(spec: GrammarSpec, seed: int) -> str:
    """A text that the grammar accepts, drawn token by token from its masks."""
    choice = random.Random(seed)
    matcher = matcher_of(spec)
    text = ""
    for num_tokens in range(2000):
        allowed = MATCHING.allowed(matcher)
        if STOP_ID in allowed:
            allowed.remove(STOP_ID)
            if not allowed or num_tokens > 400 or choice.random() < 0.5:
                return text
        leads_out = [i for i in allowed if i < len(CLOSING)]
        is_late = num_tokens > 60
        token_id = choice.choice(leads_out if leads_out and is_late else allowed)
        assert matcher.accept_token(token_id)
        text += VOCAB[token_id]
    raise AssertionError(f"no end after {text!r}")


def check_calls(parts: Sequence[Part], names: Sequence[str]) -> int:
    """Nothing but calls of these tools with proper arguments; how many."""
    starts = [part for part in parts if isinstance(part, ToolCallStart)]
    arguments = [part for part in parts if isinstance(part, ToolCallArguments)]
    assert len(parts) == 2 * len(starts) == 2 * len(arguments) > 0
    for start, pieces in zip(starts, arguments, strict=True):
        assert start.name in names
        values = json.loads(pieces.text)
        if start.name == "find":
            assert isinstance(values["q"], str) and {"q", "where"} <= values.keys()
            assert isinstance(values["where"]["x"], int | float)
            assert isinstance(values.get("num", 0), int)
            assert isinstance(values.get("deep", False), bool)
            assert set(values.get("tags", [])) <= {"a", "b"}
        else:
            assert start.name == "free" or values == {}
    return len(starts)


@pytest.mark.parametrize("name", NAMES)
def test_what_templates_show_is_accepted(name: str) -> None:
    several = format_of(name).forced(TOOLS, name=None, parallel=True)
    single = format_of(name).forced(TOOLS, name=None, parallel=False)
    two = BETWEEN[name].join(EXAMPLES[name])
    for example in EXAMPLES[name]:
        assert accepts(several, example) and accepts(single, example)
        assert check_calls(parsed(name, example), ["find", "now"]) == 1
    assert accepts(several, two) and not accepts(single, two)
    assert check_calls(parsed(name, two), ["find", "now"]) == 2


@pytest.mark.parametrize("name", NAMES)
def test_text_and_wrong_calls_are_not_accepted(name: str) -> None:
    """B17: forced means no free text."""
    spec = format_of(name).forced(TOOLS, name=None, parallel=True)
    example = EXAMPLES[name][0]
    for text in ("", "Hello", f"Hello {example}", f"{example} Hello", example[:-1]):
        assert not accepts(spec, text)
    assert not accepts(spec, example.replace("find", "other"))
    assert not accepts(spec, example.replace("1.5", '"x"'))


@pytest.mark.parametrize("name", NAMES)
def test_a_named_tool_is_called_once(name: str) -> None:
    find, now = EXAMPLES[name]
    spec = format_of(name).forced(TOOLS, name="now", parallel=True)
    assert accepts(spec, now)
    assert not accepts(spec, find) and not accepts(spec, BETWEEN[name].join([now, now]))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", NAMES)
def test_whatever_is_accepted_is_parsed_back(name: str, seed: int) -> None:
    names = ["find", "now", "free"]
    several = walk(format_of(name).forced(TOOLS, name=None, parallel=True), seed)
    check_calls(parsed(name, several), names)
    one = walk(format_of(name).forced(TOOLS, name="find", parallel=False), seed)
    assert check_calls(parsed(name, one), ["find"]) == 1


@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_be_forced_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match="add tools"):
        format_of(name).forced([], name=None, parallel=True)
    with pytest.raises(RequestError, match=r"'zoom', which is not among the tools \(find, now"):
        format_of(name).forced(TOOLS, name="zoom", parallel=True)


def test_names_that_xml_cannot_carry_are_refused() -> None:
    tools = [{"function": {"name": "a>b"}}]
    assert format_of("hermes").forced(tools, name=None, parallel=True)
    with pytest.raises(RequestError, match="plain characters"):
        format_of("qwen3-coder").forced(tools, name=None, parallel=True)


SPECS = {
    "json_object": (GrammarSpec(kind="json_object"), '{"a": 1}'),
    "json_schema": (GrammarSpec(kind="json_schema", value='{"type": "integer"}'), "42"),
    "regex": (GrammarSpec(kind="regex", value="[ab]+"), "abba"),
    "choice": (GrammarSpec(kind="choice", value='["yes", "no"]'), "no"),
    "grammar": (GrammarSpec(kind="grammar", value='root ::= "x" | "y"'), "y"),
    "forced": (
        format_of("hermes").forced(TOOLS, name="now", parallel=False),
        EXAMPLES["hermes"][1],
    ),
}


@pytest.mark.parametrize("kind", SPECS)
def test_grammars_behind_reasoning(kind: str) -> None:
    spec, answer = SPECS[kind]
    think = choose_reasoning_format(None, "think")
    assert think is not None
    inside = think.behind(spec, starts_inside=True)
    assert accepts(inside, f"Hm, {answer}?\n</think>\n\n{answer}")
    assert accepts(inside, f"</think>{answer}")
    assert not accepts(inside, answer) and not accepts(inside, f"a</think>\n\nZ{answer}")
    outside = think.behind(spec, starts_inside=False)
    assert accepts(outside, answer) and accepts(outside, f"<think>a</think>\n\n{answer}")
    assert not accepts(outside, f"a</think>{answer}")
    machine = think.parser(starts_inside=True)
    parts = merged([*machine.feed(f"a\n</think>\n\n{answer}"), *machine.end()])
    assert parts == [Reasoning("a"), Content(answer)]


@pytest.mark.parametrize(
    "spec",
    [
        GrammarSpec(kind="json_schema", value="{"),
        GrammarSpec(kind="choice", value="[" * 100_000),
        GrammarSpec(kind="structural_tag", value="{}"),
    ],
)
def test_specs_that_cannot_be_read_are_refused(spec: GrammarSpec) -> None:
    think = choose_reasoning_format(None, "think")
    assert think is not None
    with pytest.raises(RequestError, match=spec.kind.split("_")[0]):
        think.behind(spec, starts_inside=True)
