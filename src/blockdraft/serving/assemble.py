"""`assemble`: from a loaded pair and its engine to the `Service` that HTTP is given.

It loads nothing and starts no thread of the engine; whoever calls it does.
"""

import logging
import time
from dataclasses import dataclass, field

from blockdraft.api import TextTarget
from blockdraft.decoding import Drafter
from blockdraft.engine import BuiltEngine, WidthMode
from blockdraft.errors import ConfigError
from blockdraft.parsing import MARKERS, choose_reasoning_format, choose_tool_format
from blockdraft.serving.access_log import LoggedRunner
from blockdraft.serving.metrics import MetricsConfig, ServingMetrics
from blockdraft.serving.runner import EngineRunner
from blockdraft.serving.service import GenerationDefaults, Service
from blockdraft.structured.compiler import GrammarCompiler

_LOGGER = logging.getLogger("blockdraft")


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """What the models are called: `model` and `aliases` by clients, `drafter` in what is told."""

    model: str
    drafter: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a service is made of. `info` is told by the metric that describes the server."""

    target: TextTarget
    drafter: Drafter
    width: WidthMode
    built: BuiltEngine
    naming: Naming
    defaults: GenerationDefaults = field(default_factory=GenerationDefaults)
    tool_parser: str = "auto"
    reasoning_parser: str = "auto"
    max_waiting: int = 128
    info: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """The service and what has to be started and ended with it."""

    service: Service
    runner: EngineRunner
    grammar: GrammarCompiler | None

    def close(self) -> None:
        """End the engine's thread and the process that compiles grammars; again: nothing."""
        self.runner.stop()
        if self.grammar is not None:
            self.grammar.close()


def assemble(parts: Parts) -> Assembled:
    """Raises ConfigError for an unknown parser, or a queue that takes nothing in."""
    codec, spec = parts.target.text, parts.target.spec
    template = None if codec is None else codec.chat_template
    tool_format = choose_tool_format(template, parts.tool_parser)
    reasoning_format = choose_reasoning_format(template, parts.reasoning_parser)
    num_drafts = num_draft_positions(parts.drafter, parts.width)
    slots = parts.built.capacity.slots
    metrics = ServingMetrics(
        MetricsConfig(
            model_name=parts.naming.model,
            slots=slots,
            max_waiting=parts.max_waiting,
            num_draft_positions=num_drafts,
            info=parts.info,
        )
    )
    runner = EngineRunner(
        parts.built.engine, max_waiting=parts.max_waiting, observer=metrics, num_slots=slots
    )
    metrics.watch(runner)
    grammar = _grammar_compiler(parts.target)
    service = Service(
        model_name=parts.naming.model,
        aliases=parts.naming.aliases,
        runner=LoggedRunner(runner),
        codec=codec,
        vocab_size=spec.vocab_size,
        stop_ids=spec.stop_ids,
        max_model_len=parts.built.capacity.max_context,
        num_spec_tokens=num_drafts,
        drafter_name=parts.naming.drafter if num_drafts else None,
        defaults=parts.defaults,
        grammar=grammar,
        tool_format=tool_format,
        reasoning_format=reasoning_format,
        metrics=metrics.render,
        created=int(time.time()),
    )
    return Assembled(service=service, runner=runner, grammar=grammar)


def num_draft_positions(drafter: Drafter, width: WidthMode) -> int:
    """The most drafts of one step: the block without its anchor, 0 = plain decoding."""
    if width.kind == "off":
        return 0
    return min(drafter.block_size, width.width or drafter.block_size) - 1


def _grammar_compiler(target: TextTarget) -> GrammarCompiler | None:
    """None, with a warning, where the model's tokenizer or its stop ids don't allow grammars."""
    codec, spec = target.text, target.spec
    if codec is None:
        return None
    try:
        return GrammarCompiler(codec, spec.vocab_size, spec.stop_ids, markers=MARKERS)
    except ConfigError as error:
        _LOGGER.warning("response_format, forced and strict tools are refused here: %s", error)
        return None
