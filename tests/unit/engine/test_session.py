"""Requests as iterators: in any interleaving, stopped early, failing, on one engine."""

from collections.abc import Generator
from typing import cast

import pytest

from blockdraft.decoding import Commit, NoDrafter, SamplingParams, collect, decode
from blockdraft.engine import EngineConfig, Session, build_engine, parse_width
from blockdraft.errors import EngineFault, RequestError
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
    streams: dict[tuple[int, ...], Generator[Commit, None, None]] = {
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


def test_an_interrupt_drops_what_ran_and_nothing_else(
    session: Session, target: NativeTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C inside a step: no endless loop, no rows of half a step reused, the engine goes on."""
    stream = session.stream(PROMPTS[0], PARAMS)
    next(stream)
    model = target.model

    def interrupted(*args: object, **kwargs: object) -> object:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(model), "forward", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(stream)
    assert not session.engine.has_work
    assert session.engine.stats().rows_used == 0
    session.engine.scheduler.audit()
    answer = collect(PROMPTS[0], session.stream(PROMPTS[0], PARAMS))
    assert answer.token_ids == expected_ids(target, PROMPTS[0])


def test_others_learn_that_an_interrupt_took_their_request(
    session: Session, target: NativeTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = session.stream(PROMPTS[1], PARAMS)
    next(waiting)

    def interrupted(*args: object, **kwargs: object) -> object:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(target.model), "forward", interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.step()
    with pytest.raises(EngineFault, match="interrupted"):
        next(waiting)


@pytest.mark.parametrize("prompt", [(1.5, 2), ("a",), (True,), "abc"])
def test_what_is_no_token_id_is_refused_at_submission(session: Session, prompt: object) -> None:
    with pytest.raises(RequestError, match="token ids are whole numbers"):
        session.engine.submit(cast(tuple[int, ...], prompt), PARAMS)
    assert not session.engine.has_work
