"""Parsers that take the text of an answer apart: reasoning, content, tool calls.

They are pure and incremental, and know neither models nor tokens nor HTTP; docs/tool-calls.md
describes the formats.
"""

from blockdraft.parsing.combined import combine
from blockdraft.parsing.parts import (
    Content,
    OutputParser,
    Part,
    Reasoning,
    ToolCallArguments,
    ToolCallStart,
    merged,
)
from blockdraft.parsing.registry import (
    MARKERS,
    REASONING_PARSERS,
    TOOL_PARSERS,
    ReasoningFormat,
    ToolFormat,
    choose_reasoning_format,
    choose_tool_format,
)

__all__ = [
    "MARKERS",
    "REASONING_PARSERS",
    "TOOL_PARSERS",
    "Content",
    "OutputParser",
    "Part",
    "Reasoning",
    "ReasoningFormat",
    "ToolCallArguments",
    "ToolCallStart",
    "ToolFormat",
    "choose_reasoning_format",
    "choose_tool_format",
    "combine",
    "merged",
]
