"""B15, B16: the same tool calls for every block size, through the decoder, on a scripted target."""

from functools import cache

import pytest
from pieces import PROMPT, STOP_ID, VOCAB_SIZE, decode_text, encode

from blockdraft.decoding import Drafter, NoDrafter, SamplingParams, decode
from blockdraft.parsing import (
    Part,
    ToolCallStart,
    choose_reasoning_format,
    choose_tool_format,
    combine,
    merged,
)
from blockdraft.testing import OracleDrafter, ScriptedTarget, script_logits

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "find",
            "parameters": {"type": "object", "properties": {"q": {"type": "string"}}},
        },
    }
]
ANSWERS = {
    "hermes": 'look it up</think>\n\nok\n<tool_call>\n{"name": "find", "arguments": {"q": "\u00e9 '
    '\U0001f600 \\" </tool_call>"}}\n</tool_call>\n<tool_call>{"name": "find", "arguments": {}}'
    "</tool_call> done",
    "llama3-json": 'hm</think><|python_tag|>{"name": "find", "parameters": {"q": "a; \U0001f600"}}'
    '; {"name": "find", "parameters": {}}',
    "qwen3-coder": "hm</think>ok<tool_call>\n<function=find>\n<parameter=q>\n\u00e9 </b>\U0001f600"
    "\n</parameter>\n</function>\n</tool_call>\n<function=find></function>\n</tool_call>",
}


def target_of(name: str) -> ScriptedTarget:
    ids = [*PROMPT, *encode(ANSWERS[name]), STOP_ID]
    law = script_logits(VOCAB_SIZE, ids, after=STOP_ID)
    return ScriptedTarget(law, VOCAB_SIZE, stop_ids=(STOP_ID,))


def answer(name: str, target: ScriptedTarget, drafter: Drafter) -> list[Part]:
    tools = choose_tool_format(None, name)
    reasoning = choose_reasoning_format(None, "think")
    assert tools is not None and reasoning is not None
    machine = combine(reasoning.parser(starts_inside=True), tools.parser(TOOLS))
    params = SamplingParams(temperature=0.0, max_new_tokens=400)
    parts: list[Part] = []
    for commit in decode(target, drafter, PROMPT, params, decode_text=decode_text):
        parts += machine.feed(commit.text)
    return merged([*parts, *machine.end()])


@cache
def plain_answer(name: str) -> tuple[Part, ...]:
    return tuple(answer(name, target_of(name), NoDrafter()))


@pytest.mark.parametrize("name", ANSWERS)
def test_the_plain_answer_has_both_calls(name: str) -> None:
    calls = [part for part in plain_answer(name) if isinstance(part, ToolCallStart)]
    assert [call.name for call in calls] == ["find", "find"]


@pytest.mark.parametrize("num_right", [None, 2])
@pytest.mark.parametrize("block_size", range(1, 17))
@pytest.mark.parametrize("name", ANSWERS)
def test_drafting_changes_nothing(name: str, block_size: int, num_right: int | None) -> None:
    target = target_of(name)
    drafter = OracleDrafter(target, block_size, num_right=num_right)
    assert tuple(answer(name, target, drafter)) == plain_answer(name)
