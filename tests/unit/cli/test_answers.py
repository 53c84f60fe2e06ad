"""Conversations, failures and the order of interleaved answers."""

from collections.abc import Callable, Iterator

import pytest

from blockdraft.api import PromptOptions
from blockdraft.cli.answers import (
    Answer,
    AnswerOptions,
    Event,
    Failure,
    Piece,
    answer_record,
    interleave,
)
from blockdraft.cli.pair import Pair
from blockdraft.cli.prompts import PromptRecord
from blockdraft.decoding import SamplingParams
from blockdraft.errors import RequestError
from blockdraft.testing import hashed_logits
from blockdraft.testing.laws import LogitsOf

VOCAB_SIZE = 32


def record(name: str, *prompt_ids: int) -> PromptRecord:
    return PromptRecord(id=name, prompt_ids=prompt_ids)


OPTIONS = AnswerOptions(prompt=PromptOptions())
PARAMS = SamplingParams(max_new_tokens=3)


Answerer = Callable[..., list[Event]]


@pytest.fixture
def answer(make_pair: Callable[[LogitsOf, int], Pair]) -> Answerer:
    """Answers records, `width` at a time."""
    pair = make_pair(hashed_logits(VOCAB_SIZE), VOCAB_SIZE)

    def run(*records: PromptRecord, width: int = 1) -> list[Event]:
        return list(interleave((answer_record(pair, r, PARAMS, OPTIONS) for r in records), width))

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


def test_interleaved_answers_equal_those_one_by_one(answer: Answerer) -> None:
    """C07, S12: requests do not see each other."""
    records = [record(str(i), *range(1, 2 + i)) for i in range(5)]

    def finished(events: list[Event]) -> dict[str, tuple[int, ...]]:
        return {e.record.id: e.completion.token_ids for e in events if isinstance(e, Answer)}

    assert finished(answer(*records, width=3)) == finished(answer(*records, width=1))


def test_interleaving_takes_turns_and_refills() -> None:
    started: list[str] = []

    def job(name: str, length: int) -> Iterator[Event]:
        started.append(name)
        for _ in range(length):
            yield Failure(record(name, 1), 0, RequestError("x"))

    jobs = (job(name, length) for name, length in [("a", 2), ("b", 1), ("c", 2)])
    order = [event.record.id for event in interleave(jobs, 2)]
    assert order == ["a", "b", "a", "c", "c"]
    assert started == ["a", "b", "c"]


def test_no_jobs_no_events() -> None:
    assert list(interleave([], 4)) == []
