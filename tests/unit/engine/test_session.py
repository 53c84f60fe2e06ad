"""Requests as iterators: in any interleaving, stopped early, failing, on one engine."""

from collections.abc import Iterator

import pytest

from blockdraft.decoding import Commit, NoDrafter, SamplingParams, collect, decode
from blockdraft.engine import EngineConfig, Session, build_engine, parse_width
from blockdraft.errors import RequestError
from blockdraft.native import NativeTarget
from blockdraft.testing.tiny import tiny_model

PROMPTS = [(5, 9, 11), (7, 7), (40, 41, 42, 43, 44, 45)]
PARAMS = SamplingParams(max_new_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
def target() -> NativeTarget:
    return NativeTarget(tiny_model("llama"))


@pytest.fixture
def session(target: NativeTarget) -> Session:
    config = EngineConfig(slots=2, max_context=64, kv_memory=10**6, width=parse_width("off"))
    return Session(build_engine(target, NoDrafter(), config).engine)


def expected_ids(target: NativeTarget, prompt: tuple[int, ...]) -> tuple[int, ...]:
    return collect(prompt, decode(target, NoDrafter(), prompt, PARAMS)).token_ids


def test_one_after_the_other(session: Session, target: NativeTarget) -> None:
    for prompt in PROMPTS:
        answer = collect(prompt, session.stream(prompt, PARAMS))
        assert answer.token_ids == expected_ids(target, prompt)


def test_in_turns_with_fewer_slots_than_requests(session: Session, target: NativeTarget) -> None:
    streams: dict[tuple[int, ...], Iterator[Commit]] = {
        prompt: session.stream(prompt, PARAMS) for prompt in PROMPTS
    }
    got: dict[tuple[int, ...], list[int]] = {prompt: [] for prompt in PROMPTS}
    while streams:
        for prompt, stream in list(streams.items()):
            commit = next(stream, None)
            if commit is None:
                del streams[prompt]
            else:
                got[prompt] += commit.ids
    assert {p: tuple(ids) for p, ids in got.items()} == {
        p: expected_ids(target, p) for p in PROMPTS
    }


def test_whoever_stops_early_frees_the_slot(session: Session, target: NativeTarget) -> None:
    stream = session.stream(PROMPTS[0], PARAMS)
    next(stream)
    assert session.engine.stats().num_running == 1
    stream.close()
    assert not session.engine.has_work
    session.engine.scheduler.audit()
    answer = collect(PROMPTS[1], session.stream(PROMPTS[1], PARAMS))
    assert answer.token_ids == expected_ids(target, PROMPTS[1])


def test_a_request_that_can_t_be_served_is_told_apart(session: Session) -> None:
    with pytest.raises(RequestError, match="fit"):
        next(session.stream((5,) * 80, PARAMS))
    assert not session.engine.has_work


def test_an_answer_already_queued_runs_with_the_others(
    session: Session, target: NativeTarget
) -> None:
    queued = session.open(PROMPTS[0], PARAMS)
    first = collect(PROMPTS[1], session.stream(PROMPTS[1], PARAMS))
    assert first.token_ids == expected_ids(target, PROMPTS[1])
    assert collect(PROMPTS[0], queued).token_ids == expected_ids(target, PROMPTS[0])
