"""Where two answers part, and what counts as a near-tie."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from blockdraft.cli.comparison import (
    NEAR_TIE,
    decode_reference,
    find_difference,
    first_unequal,
)
from blockdraft.cli.engines import open_lanes
from blockdraft.cli.pair import Pair
from blockdraft.decoding import AcceptanceStats, Completion, SamplingParams, collect
from blockdraft.engine import EngineConfig, WidthMode
from blockdraft.testing import OracleDrafter, table_logits
from blockdraft.testing.laws import LogitsOf

PROMPT = (1,)


def completion(*token_ids: int, finish_reason: str = "length") -> Completion:
    return Completion(
        prompt_ids=PROMPT,
        token_ids=token_ids,
        drafted=(False,) * len(token_ids),
        text="",
        finish_reason="stop" if finish_reason == "stop" else "length",
        logprobs=(),
        stats=AcceptanceStats(),
    )


@pytest.mark.parametrize(
    ("plain", "drafted", "position"),
    [
        (completion(3, 4, 5), completion(3, 4, 5), None),
        (completion(3, 4, 5), completion(3, 9, 5), 1),
        (completion(3, 4, 5), completion(3, 4), 2),
        (completion(3, 4), completion(3, 4, 5), 2),
        (completion(3, 4), completion(3, 4, finish_reason="stop"), 1),
    ],
)
def test_first_unequal(plain: Completion, drafted: Completion, position: int | None) -> None:
    assert first_unequal(plain, drafted) == position


@pytest.fixture
def pair(make_pair: Callable[[LogitsOf, int], Pair]) -> Pair:
    """Greedy text 2 2 2 ..; the second token is decided by a margin of 0.25."""
    close = (0.0, 0.0, 3.25, 3.0)
    made = make_pair(table_logits({(1, 2): close}, (0.0, 0.0, 5.0, 1.0)), 4)
    return replace(made, drafter=OracleDrafter(made.target, 4))


def plain_run(pair: Pair, params: SamplingParams) -> Completion:
    return decode_reference(pair, PROMPT, params)


@pytest.mark.parametrize("logprobs", [None, 2])
def test_the_margin_is_the_targets_at_the_difference(pair: Pair, logprobs: int | None) -> None:
    params = SamplingParams(max_new_tokens=4)
    plain = plain_run(pair, replace(params, logprobs=logprobs))
    drafted = replace(plain, token_ids=(2, 3, 2, 2))
    found = find_difference(pair, plain, drafted, params, epsilon=0.5)
    assert found is not None
    assert (found.position, found.plain_id, found.drafted_id) == (1, 2, 3)
    assert found.margin == pytest.approx(0.25)
    assert found.is_near_tie
    strict = find_difference(pair, plain, drafted, params, epsilon=0.2)
    assert strict is not None and not strict.is_near_tie


def test_a_sampled_difference_is_never_a_near_tie(pair: Pair) -> None:
    params = SamplingParams(max_new_tokens=4, temperature=1.0, seed=1)
    plain = plain_run(pair, params)
    drafted = replace(plain, token_ids=(*plain.token_ids[:3], 3 - plain.token_ids[3]))
    found = find_difference(pair, plain, drafted, params, epsilon=100.0)
    assert found is not None and not found.is_near_tie


def test_engine_and_reference_agree(pair: Pair) -> None:
    params = SamplingParams(max_new_tokens=9)
    lanes = open_lanes(pair, EngineConfig(slots=1, kv_memory=10**6, width=WidthMode("fixed", 3)))
    plain = collect(PROMPT, lanes.plain.stream(PROMPT, params))
    assert find_difference(pair, plain_run(pair, params), plain, params, epsilon=0.0) is None
    drafted = collect(PROMPT, lanes.drafted.stream(PROMPT, params))
    assert find_difference(pair, plain_run(pair, params), drafted, params, epsilon=0.0) is None
    assert drafted.stats.tau == pytest.approx(8 / 3)


def test_every_dtype_has_an_epsilon() -> None:
    assert set(NEAR_TIE) == {"float32", "bfloat16", "float64"}
