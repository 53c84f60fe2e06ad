"""`Service`: everything the HTTP application needs of what it serves, bundled.

The parts are named by the narrow Protocols below, so that tests can stand in for each of them.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from blockdraft.decoding import Commit, SamplingParams
from blockdraft.decoding.params import Law
from blockdraft.decoding.rows import RowProcessor
from blockdraft.decoding.text import DecodeText
from blockdraft.parsing.registry import ReasoningFormat, ToolFormat
from blockdraft.structured.spec import GrammarSpec
from blockdraft.target.text import TextCodec


class Ticket(Protocol):
    """One request in the engine: its commits in order, then the end or the request's own error."""

    @property
    def num_cached(self) -> int: ...

    @property
    def queue_seconds(self) -> float | None: ...

    def __aiter__(self) -> AsyncIterator[Commit]: ...

    def cancel(self) -> None: ...


class Runner(Protocol):
    """The engine on its own thread."""

    async def submit(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        decode_text: DecodeText | None = None,
        *,
        request_id: str = "",
    ) -> Ticket: ...

    @property
    def is_alive(self) -> bool: ...

    @property
    def is_ready(self) -> bool: ...


class Grammars(Protocol):
    """Compiles output grammars; blocking, thread-safe."""

    def compile(self, spec: GrammarSpec) -> Callable[[], RowProcessor]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationDefaults:
    """What a request that says nothing gets: the model's own generation configuration."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A loaded model with its engine, as the application sees it.

    `max_model_len` is prompt and answer together. `num_spec_tokens` is how many tokens one step may
    draft (block size - 1), 0 for plain decoding. `grammar` None refuses constrained output.
    `metrics` gives the text of /metrics. `created` is Unix seconds. `aliases` are more names of the
    model.
    """

    model_name: str
    runner: Runner
    codec: TextCodec | None
    vocab_size: int
    stop_ids: tuple[int, ...]
    max_model_len: int
    num_spec_tokens: int = 0
    drafter_name: str | None = None
    defaults: GenerationDefaults = field(default_factory=GenerationDefaults)
    law: Law = "argmax"
    grammar: Grammars | None = None
    tool_format: ToolFormat | None = None
    reasoning_format: ReasoningFormat | None = None
    metrics: Callable[[], bytes] | None = None
    created: int = 0
    aliases: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All names that requests may give; the first one stands in answers."""
        return (self.model_name, *self.aliases)
