"""`GrammarCache`: compiled grammars by spec, least recently used out first, bounded in bytes.

Each is made once even when many ask at the same time; it does not know how to make one.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

from blockdraft.errors import RequestError
from blockdraft.structured.native import CompiledGrammar
from blockdraft.structured.spec import GrammarSpec

ENTRY_BYTES = 1024
"""What an entry takes beside the grammar and the text of its spec."""


class _Refusal(NamedTuple):
    message: str
    until: float


class GrammarCache:
    """`get` blocks while the grammar is made. A refusal (RequestError) is kept for a while too, so
    that asking again costs nothing; other errors are not."""

    def __init__(self, max_bytes: int, refusal_seconds: float, clock: Callable[[], float]) -> None:
        self._max_bytes = max_bytes
        self._refusal_seconds = refusal_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[GrammarSpec, CompiledGrammar | _Refusal] = OrderedDict()
        self._in_work: dict[GrammarSpec, Future[CompiledGrammar]] = {}
        self._num_bytes = 0

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    def get(self, spec: GrammarSpec, make: Callable[[], CompiledGrammar]) -> CompiledGrammar:
        """Raises what `make` raises, in every thread that waits for it."""
        with self._lock:
            if (kept := self._look_up(spec)) is not None:
                return kept
            asked_by_another = spec in self._in_work
            future = self._in_work.setdefault(spec, Future[CompiledGrammar]())
        if asked_by_another:
            return future.result()
        try:
            made = make()
        except BaseException as error:
            self._finish(spec, _refusal_of(error, self._clock() + self._refusal_seconds))
            future.set_exception(error)
            raise
        self._finish(spec, made)
        future.set_result(made)
        return made

    def _look_up(self, spec: GrammarSpec) -> CompiledGrammar | None:
        kept = self._kept.get(spec)
        if isinstance(kept, _Refusal):
            if self._clock() < kept.until:
                raise RequestError(kept.message)
            self._drop(spec)
            return None
        if kept is not None:
            self._kept.move_to_end(spec)
        return kept

    def _finish(self, spec: GrammarSpec, entry: CompiledGrammar | _Refusal | None) -> None:
        with self._lock:
            del self._in_work[spec]
            if entry is None or _size(spec, entry) > self._max_bytes:
                return
            self._kept[spec] = entry
            self._num_bytes += _size(spec, entry)
            while self._num_bytes > self._max_bytes:
                self._drop(next(iter(self._kept)))

    def _drop(self, spec: GrammarSpec) -> None:
        self._num_bytes -= _size(spec, self._kept.pop(spec))


def _refusal_of(error: BaseException, until: float) -> _Refusal | None:
    return _Refusal(str(error), until) if isinstance(error, RequestError) else None


def _size(spec: GrammarSpec, entry: CompiledGrammar | _Refusal) -> int:
    return ENTRY_BYTES + len(spec.value) + getattr(entry, "num_bytes", 0)
