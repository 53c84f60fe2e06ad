"""Strict tools through the decoder: held calls, and the same tokens for every block size."""

import json
from collections.abc import Sequence
from functools import cache

import pytest
from pieces import MERGES, PROMPT, STOP_ID, VOCAB_SIZE, decode_text, encode, token_bytes

from blockdraft.decoding import (
    Completion,
    Drafter,
    NoDrafter,
    RowProcessor,
    SamplingParams,
    collect,
    decode,
)
from blockdraft.parsing import (
    Content,
    Part,
    Reasoning,
    ToolCallArguments,
    ToolCallStart,
    choose_reasoning_format,
    choose_tool_format,
    combine,
    merged,
)
from blockdraft.structured.limits import GrammarLimits
from blockdraft.structured.spec import GrammarSpec
from blockdraft.testing import OracleDrafter, ScriptedTarget, script_logits

pytest.importorskip("xgrammar")
import xgrammar

from blockdraft.structured.native import CompiledGrammar, Vocabulary
from blockdraft.structured.processor import GrammarProcessor

TOOLS: list[dict[str, object]] = [
    {
        "type": "function",
        "function": {
            "name": "find",
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {"q": {"type": "string"}},
                "required": ["q"],
                "additionalProperties": False,
            },
        },
    },
    {"type": "function", "function": {"name": "note"}},
]
REASONED = 'maybe <tool_call> {"name": "x"}</think>\n\n'
RIGHT = {
    "hermes": REASONED + 'ok\n<tool_call>\n{"name": "find", "arguments": {"q": "\u00e9 '
    '\U0001f600 \\" </tool_call>"}}\n</tool_call> and <tool_call>\n{"name": "note", "arguments": '
    '{"x": [1]}}\n</tool_call> done',
    "llama3-json": REASONED + '{"name": "find", "parameters": {"q": "a; \U0001f600"}}'
    '; {"name": "note", "parameters": {"x": [1]}}',
    "qwen3-coder": REASONED + "ok<tool_call>\n<function=find>\n<parameter=q>\n\u00e9 </b>"
    "\U0001f600\n</parameter>\n</function>\n</tool_call>\n<function=note>\n<parameter=x>\n[1]\n"
    "</parameter>\n</function> done",
}
TEXT = REASONED + 'As JSON:\n{"name": "find"} < \u00e9'
# What the target would rather write: a name that was not offered, then a key that is none.
WRONG = {
    name: text.replace('"find"', '"fond"').replace('{"q"', '{"x"')
    for name, text in RIGHT.items()
    if name != "qwen3-coder"
} | {
    "qwen3-coder": RIGHT["qwen3-coder"].replace("=find>", "=fond>").replace("ter=q", "ter=x"),
}


@cache
def vocabulary() -> Vocabulary:
    pieces = [b"" if i == STOP_ID else token_bytes(i) for i in range(VOCAB_SIZE)]
    info = xgrammar.TokenizerInfo(pieces, xgrammar.VocabType.RAW, stop_token_ids=[STOP_ID])
    return Vocabulary(info, frozenset(), VOCAB_SIZE, (STOP_ID,), "")


@cache
def compiled(spec: GrammarSpec) -> CompiledGrammar:
    compiler = xgrammar.GrammarCompiler(vocabulary().info, max_threads=1)
    return CompiledGrammar(compiler.compile_structural_tag(spec.value), 0)


def held(name: str, *, parallel: bool = True) -> RowProcessor:
    tools, think = choose_tool_format(None, name), choose_reasoning_format(None, "think")
    assert tools is not None and think is not None
    spec = tools.held(TOOLS, parallel=parallel)
    assert spec is not None
    spec = think.behind(spec, starts_inside=True, is_free=True)
    return GrammarProcessor(compiled(spec), vocabulary(), GrammarLimits())


def target_of(text: str) -> ScriptedTarget:
    law = script_logits(VOCAB_SIZE, [*PROMPT, *encode(text), STOP_ID], after=STOP_ID)
    return ScriptedTarget(law, VOCAB_SIZE, stop_ids=(STOP_ID,))


def answer(
    target: ScriptedTarget, drafter: Drafter, name: str = "", *, parallel: bool = True
) -> Completion:
    """Free without a name."""
    processors = (lambda: held(name, parallel=parallel),) if name else ()
    params = SamplingParams(temperature=0.0, max_new_tokens=400, processors=processors)
    return collect(PROMPT, decode(target, drafter, PROMPT, params, decode_text=decode_text))


def parsed(name: str, text: str) -> list[Part]:
    tools, think = choose_tool_format(None, name), choose_reasoning_format(None, "think")
    assert tools is not None and think is not None
    machine = combine(think.parser(starts_inside=True), tools.parser(TOOLS))
    return merged([*machine.feed(text), *machine.end()])


def calls(parts: Sequence[Part]) -> list[tuple[str, list[str]]]:
    names = [part.name for part in parts if isinstance(part, ToolCallStart)]
    texts = [part.text for part in parts if isinstance(part, ToolCallArguments)]
    return [(name, list(json.loads(text))) for name, text in zip(names, texts, strict=True)]


@cache
def plain(name: str, text: str, *, parallel: bool = True) -> Completion:
    return answer(target_of(text), NoDrafter(), name, parallel=parallel)


@pytest.mark.parametrize("name", RIGHT)
def test_right_calls_and_text_stay_as_they_are(name: str) -> None:
    for text in (RIGHT[name], TEXT, "no end of it", REASONED):
        assert plain(name, text).token_ids == answer(target_of(text), NoDrafter()).token_ids
    assert calls(parsed(name, plain(name, RIGHT[name]).text)) == [("find", ["q"]), ("note", ["x"])]


@pytest.mark.parametrize("name", WRONG)
def test_a_target_that_writes_wrong_calls_is_held(name: str) -> None:
    free, kept = (parsed(name, text) for text in (WRONG[name], plain(name, WRONG[name]).text))
    assert ("find", ["q"]) not in calls(free)
    assert calls(kept)[0] == ("find", ["q"])
    assert isinstance(kept[0], Reasoning) and kept[0] == free[0]


@pytest.mark.parametrize("name", RIGHT)
def test_one_call_ends_the_answer_when_not_parallel(name: str) -> None:
    completion = plain(name, RIGHT[name], parallel=False)
    parts = parsed(name, completion.text)
    assert calls(parts) == [("find", ["q"])] and completion.finish_reason == "stop"
    assert not isinstance(parts[-1], Content)


@pytest.mark.parametrize("num_right", [None, 2])
@pytest.mark.parametrize("block_size", [1, 2, 7, 16])
@pytest.mark.parametrize("name", RIGHT)
def test_drafting_changes_nothing(name: str, block_size: int, num_right: int | None) -> None:
    for text in (RIGHT[name], WRONG[name], TEXT):
        target = target_of(text)
        drafter = OracleDrafter(target, block_size, num_right=num_right)
        for parallel in (True, False):
            drafted = answer(target, drafter, name, parallel=parallel)
            assert drafted.token_ids == plain(name, text, parallel=parallel).token_ids
            assert drafted.text == plain(name, text, parallel=parallel).text


def test_tokens_reach_across_the_marks() -> None:
    """What makes block sizes and masks hard: no token border where the free text ends."""
    assert {"call>\n", ">\n<", '{"', "ction="} <= set(MERGES)
