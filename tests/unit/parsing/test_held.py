"""Strict tools where the model chooses: text is free, calls are held, however they are written."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import pytest

from blockdraft.errors import RequestError
from blockdraft.parsing import (
    Content,
    Part,
    Reasoning,
    ToolCallArguments,
    ToolCallStart,
    choose_reasoning_format,
    combine,
    merged,
)
from blockdraft.structured.spec import GrammarSpec

pytest.importorskip("xgrammar")
from grammars import Matching, format_of


def tool(name: str, *, strict: bool) -> dict[str, object]:
    parameters = {
        "type": "object",
        "properties": {"q": {"type": "string"}, "n": {"type": "integer"}},
        "required": ["q", "n"],
        "additionalProperties": False,
    }
    return {
        "type": "function",
        "function": {"name": name, "parameters": parameters, "strict": strict},
    }


TOOLS = [tool("find", strict=True), tool("note", strict=False)]
NAMES = ("hermes", "llama3-json", "qwen3-coder")

# The marks come first: the walk below turns to them often.
MARKS = [
    "<tool_call>", "<|python_tag|>", "<function=", "</parameter>", "</function>", "</tool_call>",
    "</think>", "<think>", '{"name": "', '{"', "}}", '"', "}", "find", "note", "\n{", "\n",
]  # fmt: skip
VOCAB = [*MARKS, *(chr(code) for code in range(32, 127)), "\u00e9", "<end>"]
STOP_ID = len(VOCAB) - 1
MATCHING = Matching(VOCAB)
accepts, matcher_of = MATCHING.accepts, MATCHING.matcher_of


@dataclass(frozen=True, slots=True)
class Samples:
    """Calls of one format."""

    find: str
    note: str
    bad_name: str
    bad_type: str
    missing: str
    between: str


def hermes(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def llama3(name: str, arguments: str) -> str:
    return f'{{"name": "{name}", "parameters": {arguments}}}'


def qwen3_coder(name: str, **values: str) -> str:
    pairs = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function={name}>\n{pairs}</function>\n</tool_call>"


GOOD, FREE = '{"q": "a", "n": 1}', '{"any": [{"x": null}], "n": "?"}'
SAMPLES = {
    **{
        name: Samples(
            find=write("find", GOOD),
            note=write("note", FREE),
            bad_name=write("fund", GOOD),
            bad_type=write("find", '{"q": "a", "n": "1"}'),
            missing=write("find", '{"q": "a"}'),
            between=between,
        )
        for name, write, between in (("hermes", hermes, "\n"), ("llama3-json", llama3, "; "))
    },
    "qwen3-coder": Samples(
        find=qwen3_coder("find", q="a", n="1"),
        note=qwen3_coder("note", any="x < y", n="?"),
        bad_name=qwen3_coder("fund", q="a", n="1"),
        bad_type=qwen3_coder("find", q="a", n="x"),
        missing=qwen3_coder("find", q="a"),
        between="\n",
    ),
}
MARKED = ("hermes", "qwen3-coder")


def held(name: str, *, parallel: bool = True) -> GrammarSpec:
    spec = format_of(name).held(TOOLS, parallel=parallel)
    assert spec is not None
    return spec


def behind(name: str, *, starts_inside: bool) -> GrammarSpec:
    think = choose_reasoning_format(None, "think")
    assert think is not None
    return think.behind(held(name), starts_inside=starts_inside, is_free=True)


def parsed(name: str, text: str, *, starts_inside: bool | None = None) -> list[Part]:
    think = choose_reasoning_format(None, "think")
    assert think is not None
    reasoning = None if starts_inside is None else think.parser(starts_inside=starts_inside)
    machine = combine(reasoning, format_of(name).parser(TOOLS))
    return merged([*machine.feed(text), *machine.end()])


def calls(parts: Sequence[Part]) -> list[tuple[str, str]]:
    found: list[list[str]] = []
    for part in parts:
        if isinstance(part, ToolCallStart):
            found.append([part.name, ""])
        elif isinstance(part, ToolCallArguments):
            found[-1][1] += part.text
    return [(name, arguments) for name, arguments in found]


def check_calls(parts: Sequence[Part]) -> int:
    """Every call has an offered name and arguments as promised; how many there are."""
    for name, text in calls(parts):
        arguments: object = json.loads(text)
        assert name in ("find", "note") and isinstance(arguments, dict)
        if name == "find":
            types = [type(value) for value in cast(dict[str, object], arguments).values()]
            assert list(cast(dict[str, object], arguments)) == ["q", "n"] and types == [str, int]
    return len(calls(parts))


@pytest.mark.parametrize("name", NAMES)
def test_text_is_free(name: str) -> None:
    spec = held(name)
    for text in ("", "Hello", " \n", "a < b {x} [1]", "<tool", "f(x) {\n{}\n}", '\u00e9 {"a": 1}'):
        assert accepts(spec, text)
        assert check_calls(parsed(name, text)) == 0


@pytest.mark.parametrize("name", NAMES)
def test_calls_are_held(name: str) -> None:
    spec, samples = held(name), SAMPLES[name]
    texts = ["", "Let me see.\n"] if name in MARKED else ["", "\n "]
    for before in texts:
        for good in (samples.find, samples.note):
            assert accepts(spec, before + good)
            assert check_calls(parsed(name, before + good)) == 1
        for bad in (samples.bad_name, samples.bad_type, samples.missing, samples.find[:-1]):
            assert not accepts(spec, before + bad)


@pytest.mark.parametrize("name", NAMES)
def test_what_follows_a_call(name: str) -> None:
    several, single, samples = held(name), held(name, parallel=False), SAMPLES[name]
    two = samples.between.join([samples.find, samples.note])
    assert accepts(several, two) and check_calls(parsed(name, two)) == 2
    assert accepts(single, samples.find) and not accepts(single, two)
    assert not accepts(several, samples.between.join([samples.find, samples.bad_type]))
    if name in MARKED:
        assert accepts(several, f"a{samples.find} b {samples.note} c")
        assert not accepts(single, samples.find + " b")
        assert accepts(single, f"a {samples.find}")


def test_a_call_without_its_tag_is_held() -> None:
    """Qwen3-Coder often forgets <tool_call>."""
    spec, samples = held("qwen3-coder"), SAMPLES["qwen3-coder"]
    bare = samples.find.removeprefix("<tool_call>\n")
    assert accepts(spec, f"So: {bare}") and check_calls(parsed("qwen3-coder", f"So: {bare}")) == 1
    assert accepts(spec, bare.removesuffix("\n</tool_call>"))
    assert not accepts(spec, samples.bad_type.removeprefix("<tool_call>\n"))
    assert not accepts(spec, "<tool_call><function=find>")


def test_llama3_calls_stand_at_the_beginning() -> None:
    """Nothing marks a bare object, so one inside a text is text when a tool is strict."""
    spec, samples = held("llama3-json"), SAMPLES["llama3-json"]
    for bad in (samples.bad_type, samples.find):
        text = f"As JSON:\n{bad}"
        assert accepts(spec, text) and parsed("llama3-json", text) == [Content(text)]
    assert accepts(spec, f"<|python_tag|>{samples.find}")
    assert check_calls(parsed("llama3-json", f"<|python_tag|>{samples.find}")) == 1
    for text in ("{}", '{"a": 1}', "<|python_tag|>print()", f"<|python_tag|>{samples.bad_type}",
                 f"a<|python_tag|>{samples.find}", f"{samples.find} b"):  # fmt: skip
        assert not accepts(spec, text)
    loose = format_of("llama3-json").parser([tool("find", strict=False)])
    assert calls(loose.feed(f"As JSON:\n{samples.find}"))


@pytest.mark.parametrize("name", NAMES)
def test_reasoning_before_is_free(name: str) -> None:
    samples = SAMPLES[name]
    inside, outside = (behind(name, starts_inside=starts) for starts in (True, False))
    for thought in ("hm", samples.bad_type, f"a\n{samples.bad_name}\n"):
        for end in ("done", samples.find, "\n\nok {"):
            text = f"{thought}</think>{end}"
            assert accepts(inside, text) and accepts(outside, f"<think>{text}")
            assert accepts(outside, f"\n<think>{text}")
            parts = parsed(name, text, starts_inside=True)
            assert isinstance(parts[0], Reasoning) and check_calls(parts) == (end == samples.find)
        for bad in (samples.bad_type, samples.missing, f"\n\n{samples.bad_name}"):
            assert not accepts(inside, f"{thought}</think>{bad}")
            assert not accepts(outside, f"<think>{thought}</think>{bad}")
    assert accepts(inside, "no end of it") and accepts(inside, "")
    assert accepts(outside, "no reasoning") and accepts(outside, samples.find)
    assert accepts(outside, "<think>no end of it")
    assert not accepts(outside, samples.bad_type)


def walk(spec: GrammarSpec, seed: int) -> str:
    """A text that the grammar accepts, or the beginning of one, drawn from its masks."""
    choice = random.Random(seed)
    matcher = matcher_of(spec)
    text = ""
    for _ in range(150):
        allowed = MATCHING.allowed(matcher)
        marks = [i for i in allowed if i < len(MARKS)]
        token_id = choice.choice(marks if marks and choice.random() < 0.8 else allowed)
        if token_id == STOP_ID:
            break
        assert matcher.accept_token(token_id)
        text += VOCAB[token_id]
    return text


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", NAMES)
def test_no_accepted_text_holds_a_wrong_call(name: str, seed: int) -> None:
    """Calls that are complete; a text that a limit has cut may end inside one."""
    for starts_inside in (None, True, False):
        spec = held(name) if starts_inside is None else behind(name, starts_inside=starts_inside)
        text = walk(spec, seed)
        parts = parsed(name, text, starts_inside=starts_inside)
        if not matcher_of(spec).accept_string(text) or not accepts(spec, text):
            parts = parts[: max((i for i, p in enumerate(parts) if isinstance(p, ToolCallStart)),
                                default=len(parts))]  # fmt: skip
        check_calls(parts)


@pytest.mark.parametrize("name", NAMES)
def test_without_a_strict_tool_nothing_is_held(name: str) -> None:
    assert format_of(name).held([tool("find", strict=False)], parallel=True) is None
    assert format_of(name).held([], parallel=True) is None


def test_names_that_xml_cannot_carry_are_refused() -> None:
    with pytest.raises(RequestError, match="plain characters"):
        format_of("qwen3-coder").held([tool("a>b", strict=True)], parallel=True)
