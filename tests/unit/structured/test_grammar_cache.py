import threading
from typing import cast

import pytest
import xgrammar

from blockdraft.errors import Overloaded, RequestError
from blockdraft.structured.grammar_cache import ENTRY_BYTES, GrammarCache
from blockdraft.structured.native import CompiledGrammar
from blockdraft.structured.spec import GrammarSpec


def grammar_of(num_bytes: int) -> CompiledGrammar:
    return CompiledGrammar(cast(xgrammar.CompiledGrammar, None), num_bytes)


def spec_of(value: str) -> GrammarSpec:
    return GrammarSpec(kind="regex", value=value)


class Maker:
    """Makes grammars of a size, or refuses, and counts how often."""

    def __init__(self, num_bytes: int = 0, error: Exception | None = None) -> None:
        self.calls = 0
        self._num_bytes = num_bytes
        self._error = error

    def __call__(self) -> CompiledGrammar:
        self.calls += 1
        if self._error is not None:
            raise self._error
        return grammar_of(self._num_bytes)


def test_the_least_recently_used_goes_first() -> None:
    cache = GrammarCache(3 * (ENTRY_BYTES + 1) + 300, 1.0, lambda: 0.0)
    make = Maker(100)
    for name in "abcabad":
        cache.get(spec_of(name), make)
    assert make.calls == 4
    cache.get(spec_of("a"), make)
    cache.get(spec_of("b"), make)
    assert make.calls == 4
    cache.get(spec_of("c"), make)
    assert make.calls == 5
    assert cache.num_bytes <= 3 * (ENTRY_BYTES + 1) + 300


def test_what_exceeds_the_cache_is_made_but_not_kept() -> None:
    cache = GrammarCache(5000, 1.0, lambda: 0.0)
    make = Maker(5000)
    cache.get(spec_of("a"), make)
    cache.get(spec_of("a"), make)
    assert (make.calls, cache.num_bytes) == (2, 0)


def test_a_refusal_is_remembered_for_a_while() -> None:
    now = [0.0]
    cache = GrammarCache(5000, 60.0, lambda: now[0])
    make = Maker(error=RequestError("too big"))
    for _ in range(3):
        with pytest.raises(RequestError, match="too big"):
            cache.get(spec_of("a"), make)
    assert make.calls == 1
    now[0] = 61.0
    with pytest.raises(RequestError, match="too big"):
        cache.get(spec_of("a"), make)
    assert make.calls == 2


def test_other_errors_are_not() -> None:
    cache = GrammarCache(5000, 60.0, lambda: 0.0)
    make = Maker(error=Overloaded("later"))
    for _ in range(2):
        with pytest.raises(Overloaded):
            cache.get(spec_of("a"), make)
    assert make.calls == 2


def test_many_threads_make_it_once() -> None:
    cache = GrammarCache(5000, 60.0, lambda: 0.0)
    entered, may_go_on = threading.Event(), threading.Event()
    calls: list[int] = []

    def make() -> CompiledGrammar:
        calls.append(1)
        entered.set()
        may_go_on.wait(10)
        return grammar_of(1)

    found: list[CompiledGrammar] = []
    threads = [
        threading.Thread(target=lambda: found.append(cache.get(spec_of("a"), make)))
        for _ in range(8)
    ]
    threads[0].start()
    assert entered.wait(10)
    for thread in threads[1:]:
        thread.start()
    may_go_on.set()
    for thread in threads:
        thread.join(10)
    assert (len(calls), len(found)) == (1, 8)
    assert all(grammar is found[0] for grammar in found)
