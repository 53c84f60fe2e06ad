"""Grammars of answers that are free until a call begins, whose name and arguments are then held.

They are only written here, as JSON; `structured` compiles them. Calls that must come: `forced`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from blockdraft.parsing.forced import (
    GRAMMAR_NAME,
    LLAMA3_SEPARATOR,
    Tag,
    bare_qwen3_coder_tag,
    check_schemas,
    hermes_tag,
    llama3_tag,
    only_calls,
    qwen3_coder_tag,
    structural_tag,
)
from blockdraft.parsing.hermes import OPEN_TAG
from blockdraft.parsing.llama3 import PYTHON_TAG
from blockdraft.parsing.offered import OfferedTool, offered_tools
from blockdraft.parsing.qwen3_coder import FUNCTION_OPEN
from blockdraft.parsing.think import THINK_CLOSE
from blockdraft.structured.spec import GrammarSpec

HeldOf = Callable[[Sequence[OfferedTool], bool], Mapping[str, object]]
"""From tools, and whether several may be called, to the format of an answer."""


def held_calls(
    tools: Sequence[Mapping[str, object]], held_of: HeldOf, *, parallel: bool
) -> GrammarSpec | None:
    """Free text in which every call is one of `tools`; None where no tool is strict.

    Arguments follow the schema of a strict tool and are any object for another one. With
    `parallel` text and calls may follow a call (for Llama-3: calls), else the answer ends behind
    it. Raises RequestError for definitions that are none, and schemas that no grammar can keep.
    """
    offered = list(offered_tools(tools).values())
    if not any(tool.is_strict for tool in offered):
        return None
    held = [
        tool if tool.is_strict else replace(tool, parameters={"type": "object"}) for tool in offered
    ]
    check_schemas(held)
    return structural_tag(held_of(held, parallel), name=GRAMMAR_NAME)


def hermes_held(tools: Sequence[OfferedTool], parallel: bool) -> Mapping[str, object]:
    return _triggered([OPEN_TAG], [hermes_tag(tool) for tool in tools], parallel)


def qwen3_coder_held(tools: Sequence[OfferedTool], parallel: bool) -> Mapping[str, object]:
    tags = [make(tool) for tool in tools for make in (qwen3_coder_tag, bare_qwen3_coder_tag)]
    return _triggered([OPEN_TAG, FUNCTION_OPEN], tags, parallel)


def llama3_held(tools: Sequence[OfferedTool], parallel: bool) -> Mapping[str, object]:
    """Calls from the first brace on, or text that does not begin with one.

    A brace later in a text is no mark that could be held: a model writes JSON and code. The parser
    reads no call there either, when a tool is strict.
    """
    calls = only_calls(
        [llama3_tag(tool) for tool in tools], LLAMA3_SEPARATOR, is_single=not parallel
    )
    tag = {"type": "optional", "content": {"type": "const_string", "value": PYTHON_TAG}}
    # The tag's first letter may be the one before. Reasoning that is taken for text must not end:
    # what follows it is the beginning of the answer.
    excludes = [PYTHON_TAG[1:], THINK_CLOSE]
    text = [
        {"type": "regex", "pattern": r"[^{ \t\r\n]"},
        {"type": "any_text", "excludes": excludes},
    ]
    answer = [
        {"type": "sequence", "elements": [tag, calls]},
        {"type": "sequence", "elements": text},
    ]
    blanks = {"type": "regex", "pattern": r"[ \t\r\n]*"}
    rest = {"type": "optional", "content": {"type": "or", "elements": answer}}
    return {"type": "sequence", "elements": [blanks, rest]}


def _triggered(
    triggers: Sequence[str], tags: Sequence[Tag], parallel: bool
) -> Mapping[str, object]:
    return {
        "type": "triggered_tags",
        "triggers": list(triggers),
        "tags": list(tags),
        "stop_after_first": not parallel,
    }
