"""Conversations, failures and the order of answers that are made together."""

import math
from collections.abc import Callable, Generator
from dataclasses import replace

import pytest

from blockdraft.api import PromptOptions
from blockdraft.cli.answers import (
    Answer,
    Answering,
    AnswerOptions,
    Event,
    Failure,
    Piece,
    RecordOrder,
)
from blockdraft.cli.engines import open_engine
from blockdraft.cli.pair import Pair
from blockdraft.cli.prompts import PromptRecord
from blockdraft.decoding import SamplingParams
from blockdraft.engine import BuiltEngine, EngineConfig, WidthMode
from blockdraft.errors import NumericsError, RequestError
from blockdraft.testing import hashed_logits, table_logits
from blockdraft.testing.laws import LogitsOf

VOCAB_SIZE = 32


def record(name: str, *prompt_ids: int) -> PromptRecord:
    return PromptRecord(id=name, prompt_ids=prompt_ids)


OPTIONS = AnswerOptions(prompt=PromptOptions())
PARAMS = SamplingParams(max_new_tokens=3)


Answerer = Callable[..., list[Event]]


@pytest.fixture
def pair(make_pair: Callable[[LogitsOf, int], Pair]) -> Pair:
    return make_pair(hashed_logits(VOCAB_SIZE), VOCAB_SIZE)


@pytest.fixture
def built(pair: Pair) -> BuiltEngine:
    """An engine with two slots."""
    return open_engine(pair, EngineConfig(slots=2, kv_memory=10**6, width=WidthMode("off")))


@pytest.fixture
def answer(pair: Pair, built: BuiltEngine) -> Answerer:
    """Answers records, `width` at a time."""

    def run(*records: PromptRecord, width: int = 1) -> list[Event]:
        answering = Answering(built.engine, pair.target, PARAMS, OPTIONS)
        return list(answering.run(records, width))

    return run


def test_an_answer_comes_after_its_pieces(answer: Answerer) -> None:
    events = answer(record("a", 1, 2))
    assert [type(event) for event in events] == [Piece, Piece, Piece, Answer]
    pieces = [event.commit.ids for event in events if isinstance(event, Piece)]
    last = events[-1]
    assert isinstance(last, Answer)
    assert last.completion.token_ids == tuple(i for ids in pieces for i in ids)
    assert last.completion.prompt_ids == (1, 2)


def test_a_failed_turn_is_an_event(answer: Answerer) -> None:
    """One bad request does not end the others."""
    events = answer(record("bad", 99), record("good", 1))
    assert isinstance(events[0], Failure) and isinstance(events[0].error, RequestError)
    assert isinstance(events[-1], Answer) and events[-1].record.id == "good"


@pytest.mark.parametrize("width", [2, 5])
def test_answers_together_equal_those_one_by_one(answer: Answerer, width: int) -> None:
    """C07, S12: requests do not see each other; more of them than slots wait."""
    records = [record(str(i), *range(1, 2 + i)) for i in range(5)]

    def finished(events: list[Event]) -> dict[str, tuple[int, ...]]:
        return {e.record.id: e.completion.token_ids for e in events if isinstance(e, Answer)}

    together = finished(answer(*records, width=width))
    assert together == finished(answer(*records)) and len(together) == 5


def test_logits_that_are_not_finite_fail_their_own_request(
    make_pair: Callable[[LogitsOf, int], Pair],
) -> None:
    law = table_logits({(1,): (math.nan,) * 4}, (0.0, 5.0, 0.0, 0.0))
    pair = make_pair(law, 4)
    engine = open_engine(pair, EngineConfig(slots=2, kv_memory=10**6)).engine
    events = list(Answering(engine, pair.target, PARAMS, OPTIONS).run([record("a", 1)], 2))
    assert isinstance(events[0], Failure) and isinstance(events[0].error, NumericsError)
    both = [record("bad", 1), record("good", 3)]
    events = list(Answering(engine, pair.target, PARAMS, OPTIONS).run(both, 2))
    kinds = {event.record.id: type(event) for event in events}
    assert kinds == {"bad": Failure, "good": Answer}


def test_a_reader_that_stops_frees_the_engine(pair: Pair, built: BuiltEngine) -> None:
    """Ctrl-C, a closed pipe: nothing goes on running."""
    answering = Answering(built.engine, pair.target, PARAMS, OPTIONS)
    events = answering.run([record("a", 1), record("b", 2), record("c", 3)], 2)
    next(events)
    assert built.engine.has_work
    assert isinstance(events, Generator)
    events.close()
    assert not built.engine.has_work
    assert built.engine.stats().num_running == 0


def test_no_records_no_events(answer: Answerer) -> None:
    assert answer() == []


def failed(name: str, turn: int = 0) -> Failure:
    return Failure(PromptRecord(id=name, turns=("x", "y")), turn, RequestError("x"))


def test_answers_are_shown_in_the_order_of_the_records() -> None:
    records = [PromptRecord(id=name, turns=("x", "y")) for name in "abc"]
    order = RecordOrder(records)

    def shown(event: Event) -> list[str]:
        return [ready.record.id for ready in order.take(event)]

    assert shown(failed("b")) == []
    assert shown(failed("a", 1)) == ["a", "b"]
    assert list(order.rest()) == []
    assert shown(failed("c")) == ["c"]


def test_turns_are_shown_as_soon_as_their_record_is_due(answer: Answerer) -> None:
    answered = answer(record("a", 1))[-1]
    assert isinstance(answered, Answer)
    two_turns = PromptRecord(id="b", turns=("x", "y"))
    order = RecordOrder([two_turns, record("c", 1)])
    first = replace(answered, record=two_turns)
    assert list(order.take(replace(answered, record=record("c", 1)))) == []
    assert list(order.take(first)) == [first]
    assert [event.record.id for event in order.rest()] == ["c"]
