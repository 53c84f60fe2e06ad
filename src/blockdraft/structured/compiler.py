"""`GrammarCompiler`: from a `GrammarSpec` to processors for requests, bounded in time and memory.

The compilation itself runs in another process (`compile_process`); this joins it with the static
checks, the cache and the limits.
"""

import threading
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from blockdraft.decoding.rows import RowProcessor
from blockdraft.errors import ConfigError, Overloaded
from blockdraft.structured.compile_process import CompileProcess
from blockdraft.structured.compile_request import CompileJob
from blockdraft.structured.limits import GrammarLimits
from blockdraft.structured.source import GrammarSource, grammar_source
from blockdraft.structured.spec import GrammarSpec

if TYPE_CHECKING:  # it needs xgrammar, which is optional
    from blockdraft.structured.native import CompiledGrammar


class HasTokenizer(Protocol):
    """The part of a `TextCodec` that is needed here."""

    @property
    def tokenizer(self) -> object: ...


class GrammarCompiler:
    """Compiles for one target: `vocab_size` rows of logits, any of `stop_ids` ends the output.

    `markers` are tokens that count as text although a vocabulary may hold them as special ones.
    Construction starts the process that compiles, which is ready some seconds later; `close` ends
    it. Raises ConfigError without xgrammar, without a stop id or with a tokenizer it can't read.
    """

    def __init__(
        self,
        codec: HasTokenizer,
        vocab_size: int,
        stop_ids: Sequence[int],
        limits: GrammarLimits | None = None,
        *,
        markers: Collection[str] = (),
    ) -> None:
        if not stop_ids or not all(0 <= stop_id < vocab_size for stop_id in stop_ids):
            raise ConfigError(
                f"output grammars need stop ids inside the vocabulary [0, {vocab_size}) and got "
                f"{list(stop_ids)}: the model must be able to end its output"
            )
        try:
            from blockdraft.structured import grammar_cache, native
        except ImportError as error:
            raise ConfigError(
                f"output grammars need xgrammar ({error}): pip install 'blockdraft[serve]'"
            ) from error
        self._native = native
        self._limits = limits or GrammarLimits()
        unique_ids = tuple(dict.fromkeys(stop_ids))
        self._vocabulary = native.read_vocabulary(codec.tokenizer, vocab_size, unique_ids, markers)
        self._cache = grammar_cache.GrammarCache(
            self._limits.cache_bytes, self._limits.refusal_seconds, time.monotonic
        )
        self._places = threading.BoundedSemaphore(self._limits.max_parallel)
        self._process = CompileProcess(self._vocabulary.as_json)

    @property
    def cached_bytes(self) -> int:
        """What the kept grammars take, at most `cache_bytes` of the limits."""
        return self._cache.num_bytes

    @property
    def process_id(self) -> int:
        """Of the process that compiles, for those who watch memory."""
        return self._process.process_id

    def compile(self, spec: GrammarSpec) -> Callable[[], RowProcessor]:
        """What makes a fresh processor for a request; blocks, from any thread.

        Raises RequestError saying what is wrong with the grammar, Overloaded when others are
        being compiled for too long.
        """
        from blockdraft.structured.processor import GrammarProcessor

        compiled = self._cache.get(spec, partial(self._compile, spec))
        return partial(GrammarProcessor, compiled, self._vocabulary, self._limits)

    def close(self) -> None:
        """End the process that compiles; processors that were made go on working."""
        self._process.close()

    def _compile(self, spec: GrammarSpec) -> "CompiledGrammar":
        source = grammar_source(spec, self._limits)
        if not self._places.acquire(timeout=self._limits.wait_seconds):
            raise Overloaded(
                f"{self._limits.max_parallel} other grammars are being compiled since "
                f"{self._limits.wait_seconds:g} s; try again later"
            )
        try:
            text = self._process.compile(self._job(spec, source))
        finally:
            self._places.release()
        return self._native.load_compiled(text, self._vocabulary)

    def _job(self, spec: GrammarSpec, source: GrammarSource) -> CompileJob:
        return CompileJob(
            title=spec.title,
            dialect=source.dialect,
            text=source.text,
            seconds=self._limits.compile_seconds,
            wall_seconds=self._limits.compile_wall_seconds,
            max_bytes=self._limits.compile_bytes,
            max_compiled_bytes=self._limits.max_compiled_bytes,
            step_seconds=self._limits.step_seconds,
        )
