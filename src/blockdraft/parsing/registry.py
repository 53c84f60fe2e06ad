"""The formats by name, and which one a chat template speaks.

A template is only looked at as text; it is not run.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from blockdraft.errors import ConfigError
from blockdraft.parsing.behind_reasoning import behind_reasoning
from blockdraft.parsing.forced import (
    HERMES_SEPARATOR,
    LLAMA3_SEPARATOR,
    QWEN3_CODER_SEPARATOR,
    TagOf,
    forced_calls,
    hermes_tag,
    llama3_tag,
    qwen3_coder_tag,
)
from blockdraft.parsing.held import (
    HeldOf,
    held_calls,
    hermes_held,
    llama3_held,
    qwen3_coder_held,
)
from blockdraft.parsing.hermes import CLOSE_TAG, OPEN_TAG, HermesMachine
from blockdraft.parsing.llama3 import PYTHON_TAG, Llama3Machine
from blockdraft.parsing.offered import OfferedTool, offered_tools
from blockdraft.parsing.parts import OutputParser
from blockdraft.parsing.qwen3_coder import FUNCTION_OPEN, PARAMETER_OPEN, Qwen3CoderMachine
from blockdraft.parsing.stepping import Machine, Sink, SteppedParser
from blockdraft.parsing.think import THINK_CLOSE, THINK_OPEN, ThinkMachine
from blockdraft.structured.spec import GrammarSpec


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """How a model writes tool calls."""

    name: str
    make_machine: Callable[[Sink, Mapping[str, OfferedTool]], Machine]
    tag_of: TagOf
    separator: str
    held_of: HeldOf

    def parser(self, tools: Sequence[Mapping[str, object]]) -> OutputParser:
        """A parser for one answer; only calls of `tools` are calls. RequestError: bad tools."""
        sink = Sink()
        return SteppedParser(self.make_machine(sink, offered_tools(tools)), sink)

    def forced(
        self, tools: Sequence[Mapping[str, object]], *, name: str | None, parallel: bool
    ) -> GrammarSpec:
        """The grammar of calls and nothing else: of any tools, or exactly one of the tool `name`.

        `parallel` allows several (of any tool). Raises RequestError when there is no such tool.
        """
        return forced_calls(
            tools, self.tag_of, separator=self.separator, name=name, parallel=parallel
        )

    def held(self, tools: Sequence[Mapping[str, object]], *, parallel: bool) -> GrammarSpec | None:
        """The grammar of a free answer whose calls are held to `tools`; None: none is strict.

        Without `parallel` the answer ends behind a call. Raises RequestError for bad tools.
        """
        return held_calls(tools, self.held_of, parallel=parallel)


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """How a model marks what it writes for itself."""

    name: str

    def parser(self, *, starts_inside: bool) -> OutputParser:
        """A parser for one answer."""
        sink = Sink()
        return SteppedParser(ThinkMachine(sink, starts_inside=starts_inside), sink)

    def starts_inside(self, rendered_prompt: str) -> bool:
        """Whether the prompt ends in reasoning: opened, not closed, and no new turn since."""
        _, opened, rest = rendered_prompt.rpartition(THINK_OPEN)
        return bool(opened) and THINK_CLOSE not in rest and _TURN_MARK.search(rest) is None

    def behind(
        self, spec: GrammarSpec, *, starts_inside: bool, is_free: bool = False
    ) -> GrammarSpec:
        """`spec` for the answer behind the reasoning, which stays free. Raises RequestError.

        `is_free`: `spec` allows any text as well, so the reasoning need not end.
        """
        return behind_reasoning(spec, starts_inside=starts_inside, is_free=is_free)


# A user may write <think> too; templates put one of these behind what the user wrote.
_TURN_MARK = re.compile(r"<\||<\uff5c|</s>|\[/INST\]|<(?:start|end)_of_turn>|<(?:eos|bos)>")

_TOOL_FORMATS = (
    ToolFormat("hermes", HermesMachine, hermes_tag, HERMES_SEPARATOR, hermes_held),
    ToolFormat(
        "qwen3-coder", Qwen3CoderMachine, qwen3_coder_tag, QWEN3_CODER_SEPARATOR, qwen3_coder_held
    ),
    ToolFormat("llama3-json", Llama3Machine, llama3_tag, LLAMA3_SEPARATOR, llama3_held),
)
_REASONING_FORMATS = (ReasoningFormat("think"),)

MARKERS = frozenset((OPEN_TAG, CLOSE_TAG, PYTHON_TAG, THINK_OPEN, THINK_CLOSE))
"""What a parser has to see even where it is a special token of the vocabulary."""

TOOL_PARSERS = ("auto", "none", *(known.name for known in _TOOL_FORMATS))
REASONING_PARSERS = ("auto", "none", *(known.name for known in _REASONING_FORMATS))


def choose_tool_format(template: str | None, name: str = "auto") -> ToolFormat | None:
    """The format called `name`; for "auto" the one that the template shows, None without any.

    Raises ConfigError for an unknown name.
    """
    if name == "auto":
        name = _tool_format_of(template or "")
    if name not in TOOL_PARSERS:
        raise ConfigError(f"unknown tool parser {name!r}: choose one of {', '.join(TOOL_PARSERS)}")
    return next((known for known in _TOOL_FORMATS if known.name == name), None)


def choose_reasoning_format(template: str | None, name: str = "auto") -> ReasoningFormat | None:
    """The format called `name`; for "auto" the one that the template shows, None without any.

    Raises ConfigError for an unknown name.
    """
    if name == "auto":
        shows_tags = THINK_OPEN in (template or "") or THINK_CLOSE in (template or "")
        name = "think" if shows_tags else "none"
    if name not in REASONING_PARSERS:
        choices = ", ".join(REASONING_PARSERS)
        raise ConfigError(f"unknown reasoning parser {name!r}: choose one of {choices}")
    return next((known for known in _REASONING_FORMATS if known.name == name), None)


def _tool_format_of(template: str) -> str:
    if FUNCTION_OPEN in template and PARAMETER_OPEN in template:
        return "qwen3-coder"
    # GLM writes <tool_call>name<arg_key>..: the same tag around something else.
    if OPEN_TAG in template and "arguments" in template and "<arg_key>" not in template:
        return "hermes"
    if PYTHON_TAG in template or ("<|start_header_id|>" in template and '"parameters"' in template):
        return "llama3-json"
    return "none"
