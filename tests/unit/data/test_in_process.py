"""The engine kept busy: how many wait, what fails alone, what an interrupt leaves behind."""

from collections import deque

import torch

from blockdraft.data.answer_requests import (
    Generated,
    NotGenerated,
    Sampling,
    TurnRequest,
    derived_number,
)
from blockdraft.data.in_process import InProcessGenerator
from blockdraft.decoding import NoDrafter, SamplingParams, collect, decode
from blockdraft.engine import Engine, EngineConfig, build_engine
from blockdraft.testing import ScriptedTarget, hashed_logits


class IdTarget(ScriptedTarget):
    dtype = torch.float64
    device = torch.device("cpu")


TARGET = IdTarget(hashed_logits(40), 40, max_context_len=64, stop_ids=(3,))


def make_engine(slots: int) -> Engine:
    config = EngineConfig(slots=slots, max_context=64, kv_memory=10_000_000)
    return build_engine(TARGET, NoDrafter(), config).engine


def request(number: int, prompt_ids: tuple[int, ...] | None = None) -> TurnRequest:
    temperature = 0.0 if number % 2 else 1.0
    sampling = Sampling(max_new_tokens=6, temperature=temperature, top_p=0.9, seed=number)
    ids = (5, number % 40) if prompt_ids is None else prompt_ids
    return TurnRequest(key=(f"r{number}", 0), prompt_ids=ids, sampling=sampling)


def test_answers_are_those_of_the_reference_decoder() -> None:
    waiting = deque(request(number) for number in range(20))
    engine = make_engine(4)
    source = InProcessGenerator(engine, 4, {})
    num_answered = 0
    for outcome in source.answer(lambda: waiting.popleft() if waiting else None):
        assert isinstance(outcome, Generated)
        asked = outcome.request.sampling
        greedy = asked.temperature == 0
        params = SamplingParams(
            max_new_tokens=6,
            temperature=asked.temperature,
            top_p=1.0 if greedy else 0.9,
            seed=None if greedy else asked.seed,
        )
        ids = outcome.request.prompt_ids
        expected = collect(ids, decode(TARGET, NoDrafter(), ids, params))
        assert outcome.prompt_ids == ids
        assert outcome.answer_ids == expected.token_ids
        assert outcome.finish_reason == expected.finish_reason
        num_answered += 1
        stats = engine.stats()
        assert stats.num_running + stats.num_waiting <= 5
    assert num_answered == 20 and not engine.has_work


def test_a_request_that_can_t_be_served_fails_alone() -> None:
    waiting = deque([request(1), request(2, (99,)), request(3, tuple(range(64))), request(4)])
    source = InProcessGenerator(make_engine(2), 2, {})
    outcomes = {
        outcome.request.key[0]: outcome
        for outcome in source.answer(lambda: waiting.popleft() if waiting else None)
    }
    failed = [name for name, outcome in outcomes.items() if isinstance(outcome, NotGenerated)]
    assert sorted(failed) == ["r2", "r3"] and len(outcomes) == 4


def test_what_an_answer_leads_to_is_taken_up() -> None:
    """The last answer may lead to the next request."""
    waiting = deque([request(1)])
    source = InProcessGenerator(make_engine(2), 2, {})
    asked: list[str] = []
    for outcome in source.answer(lambda: waiting.popleft() if waiting else None):
        asked.append(outcome.request.key[0])
        if len(asked) < 4:
            waiting.append(request(len(asked) + 1))
    assert asked == ["r1", "r2", "r3", "r4"]


def test_stopping_early_leaves_nothing_behind() -> None:
    engine = make_engine(4)
    outcomes = InProcessGenerator(engine, 4, {}).answer(lambda: request(1))
    next(outcomes)
    assert engine.has_work
    outcomes.close()  # pyright: ignore[reportAttributeAccessIssue]: a generator all the same
    assert not engine.has_work


def test_seeds_are_numbers_of_what_they_are_made_from() -> None:
    """Another number here would make other samples in runs that are continued."""
    assert derived_number(0, "seed", "a", 1) == 7547918977318914391
    assert len({derived_number(seed, "a", turn) for seed in range(9) for turn in range(9)}) == 81
