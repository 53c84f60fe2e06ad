"""Acceptance over prompts against counts by hand."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import Float64
from torch import Tensor

from blockdraft.decoding import NoDrafter, SamplingParams
from blockdraft.errors import ConfigError, RequestError
from blockdraft.evaluation import AnswerCount, measure_acceptance, pool_answers
from blockdraft.testing import (
    ListDrafter,
    OracleDrafter,
    RandomDrafter,
    ScriptedTarget,
    hashed_logits,
    script_logits,
)

VOCAB = 12
STOP = 11
TEXT = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 2, 3, 4, 5, 6, STOP)
"""A prompt of one token and the greedy answer to it, stop included."""
WRONG = 0
RUNS = (3, 2, 1, 0)


def scripted() -> ScriptedTarget:
    return ScriptedTarget(script_logits(VOCAB, TEXT), VOCAB, stop_ids=[STOP])


def at_most(num_tokens: int) -> SamplingParams:
    return SamplingParams(max_new_tokens=num_tokens)


def answer_with_runs(runs: Sequence[int]) -> AnswerCount:
    """An answer whose first steps draft 3 tokens each and accept as many as `runs` says.

    One step for each run commits run + 1 tokens; the steps after them have no drafts.
    """
    drafts: list[tuple[int, ...]] = []
    position = 2  # TEXT[0] is the prompt, TEXT[1] the prefill's token
    for run in runs:
        drafts.append((*TEXT[position : position + run], *(WRONG,) * (3 - run)))
        position += run + 1
    target = scripted()
    result = measure_acceptance(target, ListDrafter(drafts, 4), [TEXT[:1]], at_most(40))
    return result.answers[0]


@pytest.mark.parametrize(
    ("num_right", "tau", "histogram"),
    [(None, 4.0, (0, 0, 0, 0, 2)), (1, 2.0, (0, 0, 4)), (0, 1.0, (0, 8))],
    ids=["oracle", "half-right", "bad"],
)
def test_tau_by_hand(num_right: int | None, tau: float, histogram: tuple[int, ...]) -> None:
    """9 tokens: one from the prefill, 8 from blocks of 4."""
    target = scripted()
    drafter = OracleDrafter(target, 4, num_right=num_right)
    result = measure_acceptance(target, drafter, [TEXT[:1]], at_most(9))
    assert result.tau == tau
    assert result.committed_histogram == histogram
    assert result.answers[0].token_ids == TEXT[1:10]


def test_plain_decoding_has_a_tau_of_one_and_no_positions() -> None:
    result = measure_acceptance(scripted(), NoDrafter(), [TEXT[:1]], at_most(6))
    assert (result.tau, result.acceptance_by_position, result.mean_accepted) == (1.0, (), None)


def test_a_narrower_block_drafts_less() -> None:
    target = scripted()
    drafter = OracleDrafter(target, 8)
    result = measure_acceptance(target, drafter, [TEXT[:1]], at_most(9), block_size=2)
    assert result.tau == 2.0


@pytest.mark.parametrize(
    "groups",
    [
        [RUNS],
        [RUNS[:2], RUNS[2:]],
        [(3,), (2, 1, 0)],
        [(0, 3), (2,), (1,)],
        [(3,), (2,), (1,), (0,)],
    ],
    ids=str,
)
def test_runs_of_3_2_1_0_have_a_mean_of_one_and_a_half(groups: list[tuple[int, ...]]) -> None:
    """T06: whatever answers the steps are spread over, since counts are pooled, not means."""
    result = pool_answers([answer_with_runs(runs) for runs in groups])
    assert result.mean_accepted == 1.5
    assert result.stats.tau_drafted == 2.5
    assert result.acceptance_by_position == (3 / 4, 2 / 4, 1 / 4)
    assert result.conditional_acceptance == (3 / 4, 2 / 3, 1 / 2)


def test_a_slot_that_was_not_drafted_was_not_reached() -> None:
    """After a draft of one token that was accepted, slot 2 has no chance to be measured."""
    drafter = ListDrafter([(TEXT[2],), (WRONG, TEXT[5], TEXT[6])], 4)
    result = measure_acceptance(scripted(), drafter, [TEXT[:1]], at_most(40))
    assert result.acceptance_by_position == (1 / 2, 0.0, 0.0)
    assert result.conditional_acceptance == (1 / 2, None, None)


def two_ended_law(prefix: tuple[int, ...]) -> Float64[Tensor, " vocab"]:
    """Answers to prompt 2 end after two tokens, others never."""
    ends = prefix[0] == 2 and len(prefix) >= 3
    logits = torch.zeros(VOCAB, dtype=torch.float64)
    logits[STOP if ends else 5] = 8.0
    return logits


def test_tau_ended_pools_the_answers_that_ended_by_themselves() -> None:
    target = ScriptedTarget(two_ended_law, VOCAB, stop_ids=[STOP])
    drafter = OracleDrafter(target, 3)
    result = measure_acceptance(target, drafter, [(1,), (2,)], at_most(7))
    endless, ended = result.answers
    assert (endless.has_ended, ended.has_ended) == (False, True)
    # What was drafted beyond the stop counts nowhere: 5, then a step that commits 5 and STOP.
    assert ended.token_ids == (5, 5, STOP)
    assert (endless.stats.tau, ended.stats.tau) == (3.0, 2.0)
    assert (result.tau, result.tau_ended, result.num_ended) == (8 / 3, 2.0, 1)


def test_tau_ended_is_nothing_when_no_answer_ended() -> None:
    target = ScriptedTarget(two_ended_law, VOCAB, stop_ids=[STOP])
    result = measure_acceptance(target, OracleDrafter(target, 3), [(1,)], at_most(7))
    assert (result.tau_ended, result.num_ended, result.tau_interval) == (None, 0, None)


def test_an_answer_that_its_prefill_ends_has_no_steps() -> None:
    result = measure_acceptance(scripted(), NoDrafter(), [TEXT[:-1]], at_most(5))
    assert (result.tau, result.tau_ended, result.committed_histogram) == (None, None, ())
    assert result.num_ended == 1


def test_progress_sees_every_answer() -> None:
    seen: list[AnswerCount] = []
    prompts = [(1,), (1, 2)]
    result = measure_acceptance(scripted(), NoDrafter(), prompts, at_most(3), progress=seen.append)
    assert tuple(seen) == result.answers


def test_no_prompts_and_bad_prompts_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least one prompt"):
        measure_acceptance(scripted(), NoDrafter(), [], at_most(3))
    with pytest.raises(RequestError, match=r"^prompt 2: .*outside the target's"):
        measure_acceptance(scripted(), NoDrafter(), [(1,), (VOCAB,)], at_most(3))


@given(
    st.integers(0, 1000),
    st.integers(2, 5),
    st.integers(1, 12),
    st.floats(0.5, 3.0) | st.just(0.0),
)
def test_figures_agree_with_each_other(
    seed: int, block_size: int, num_tokens: int, temperature: float
) -> None:
    """The histogram's mean is tau, and positions are ordered as prefixes are."""
    target = ScriptedTarget(hashed_logits(4, seed=seed), 4, stop_ids=[3])
    params = SamplingParams(max_new_tokens=num_tokens, temperature=temperature, seed=seed)
    drafter = RandomDrafter(4, block_size, seed=seed)
    result = measure_acceptance(target, drafter, [(0,), (1, 2)], params)
    histogram = result.committed_histogram
    assert sum(histogram) == result.stats.steps
    if result.tau is not None:
        mean = sum(num * steps for num, steps in enumerate(histogram)) / sum(histogram)
        assert mean == pytest.approx(result.tau)
    assert all(left >= right for left, right in pairwise(result.stats.accepted))
    for given_before, overall in zip(
        result.conditional_acceptance, result.acceptance_by_position, strict=True
    ):
        assert given_before is None or given_before >= overall
