"""Grammars that force tool calls: structural tags in the shape that xgrammar reads.

They are only written here, as JSON; `structured` compiles them.
"""

import json
from collections.abc import Callable, Mapping, Sequence

from blockdraft.errors import RequestError
from blockdraft.parsing.hermes import CLOSE_TAG, OPEN_TAG
from blockdraft.parsing.llama3 import SEPARATOR
from blockdraft.parsing.offered import OfferedTool, offered_tools
from blockdraft.parsing.qwen3_coder import FUNCTION_CLOSE, FUNCTION_OPEN
from blockdraft.structured.schema import check_schema
from blockdraft.structured.spec import GrammarSpec

MAX_WHITE_SPACE = 16
"""Longest run of white space in forced JSON: a model may otherwise write blanks until the limit."""

GRAMMAR_NAME = "grammar of the tools"
"""What messages call it."""

Tag = Mapping[str, object]
TagOf = Callable[[OfferedTool], Tag]


def hermes_tag(tool: OfferedTool) -> Tag:
    name = json.dumps(tool.name, ensure_ascii=False)
    begin = f'{OPEN_TAG}\n{{"name": {name}, "arguments": '
    return _tag(begin, _schema_format(tool, "json"), f"}}\n{CLOSE_TAG}")


def llama3_tag(tool: OfferedTool) -> Tag:
    name = json.dumps(tool.name, ensure_ascii=False)
    return _tag(f'{{"name": {name}, "parameters": ', _schema_format(tool, "json"), "}")


def qwen3_coder_tag(tool: OfferedTool) -> Tag:
    return _qwen3_coder_tag(tool, f"{OPEN_TAG}\n", f"\n{CLOSE_TAG}")


def bare_qwen3_coder_tag(tool: OfferedTool) -> Tag:
    """The call alone: the model often forgets what should stand around it."""
    return _qwen3_coder_tag(tool, "", "")


def forced_calls(
    tools: Sequence[Mapping[str, object]],
    tag_of: TagOf,
    *,
    separator: str,
    name: str | None,
    parallel: bool,
) -> GrammarSpec:
    """Calls and nothing else: one or more of any tool, or exactly one of the tool `name`.

    Raises RequestError when no tool is offered, or not that one.
    """
    offered = offered_tools(tools)
    if not offered:
        raise RequestError("tool_choice asks for a call but no tools are given: add tools")
    if name is not None and name not in offered:
        names = ", ".join(offered)
        raise RequestError(f"tool_choice names {name!r}, which is not among the tools ({names})")
    chosen = list(offered.values()) if name is None else [offered[name]]
    check_schemas(chosen)
    tags = [tag_of(tool) for tool in chosen]
    return structural_tag(
        only_calls(tags, separator, is_single=name is not None or not parallel), name=GRAMMAR_NAME
    )


def check_schemas(tools: Sequence[OfferedTool]) -> None:
    """Raises RequestError naming the tool whose schema no grammar can keep."""
    for tool in tools:
        try:
            check_schema(tool.parameters)
        except RequestError as error:
            raise RequestError(f"tool {tool.name!r}: {error}") from error


def only_calls(tags: Sequence[Tag], separator: str, *, is_single: bool) -> Mapping[str, object]:
    """The format of one call, or of several, and nothing else."""
    return {
        "type": "tags_with_separator",
        "tags": list(tags),
        "separator": separator,
        "at_least_one": True,
        "stop_after_first": is_single,
    }


def structural_tag(
    output_format: Mapping[str, object], *, name: str = "", asked: GrammarSpec | None = None
) -> GrammarSpec:
    """The spec of a whole output in one of xgrammar's formats; `name`, `asked`: see GrammarSpec."""
    value = json.dumps({"type": "structural_tag", "format": output_format}, ensure_ascii=False)
    return GrammarSpec(kind="structural_tag", value=value, name=name, asked=asked)


def _qwen3_coder_tag(tool: OfferedTool, before: str, behind: str) -> Tag:
    if set(tool.name) & set("<>\n"):
        raise RequestError(f"tool name {tool.name!r} can't be written in XML: use plain characters")
    begin = f"{before}{FUNCTION_OPEN}{tool.name}>\n"
    return _tag(begin, _schema_format(tool, "qwen_xml"), f"{FUNCTION_CLOSE}{behind}")


def _tag(begin: str, content: Mapping[str, object], end: str) -> Tag:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def _schema_format(tool: OfferedTool, style: str) -> Mapping[str, object]:
    return {
        "type": "json_schema",
        "json_schema": tool.parameters,
        "style": style,
        "max_whitespace_cnt": MAX_WHITE_SPACE,
    }


HERMES_SEPARATOR = QWEN3_CODER_SEPARATOR = "\n"
LLAMA3_SEPARATOR = f"{SEPARATOR} "
