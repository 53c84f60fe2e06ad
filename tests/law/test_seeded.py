"""Seeded sampling under the argmax law equals plain decoding with the same seed, token for token.

Whatever the drafter, the width or the neighbors; and it must differ where it should.
"""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from blockdraft.decoding import (
    Drafter,
    NoDrafter,
    PromptLookupDrafter,
    SamplingParams,
    TargetModel,
    collect,
    decode,
)
from blockdraft.testing import (
    OracleDrafter,
    RandomDrafter,
    RandomLatticeDrafter,
    ScriptedTarget,
    hashed_logits,
    script_logits,
)
from blockdraft.testing import tiny_target as make_tiny_target
from blockdraft.testing.tiny import Family

PROMPT = (1, 2, 5)
TARGET = ScriptedTarget(hashed_logits(9, seed=2), 9, stop_ids=(8,))
PROCESSORS = {
    "temperature": SamplingParams(temperature=1.0),
    "cold": SamplingParams(temperature=0.3),
    "top-k": SamplingParams(temperature=1.0, top_k=3),
    "top-p": SamplingParams(temperature=1.0, top_p=0.7),
    "min-p": SamplingParams(temperature=1.0, min_p=0.5),
    "repetition": SamplingParams(temperature=1.0, repetition_penalty=1.3),
    "presence": SamplingParams(temperature=1.0, presence_penalty=2.0),
    "negative frequency": SamplingParams(temperature=1.0, frequency_penalty=-2.0),
    "bias": SamplingParams(temperature=1.0, logit_bias={0: -100.0, 3: 2.0}),
    "allowed": SamplingParams(temperature=1.0, allowed_ids=(0, 1, 2, 8)),
    "banned": SamplingParams(temperature=1.0, banned_ids=(4,)),
    "bad words": SamplingParams(temperature=1.0, bad_words=((1,), (2, 3))),
    "min tokens": SamplingParams(temperature=1.0, min_tokens=6),
    "greedy with penalties": SamplingParams(presence_penalty=2.0, frequency_penalty=0.5),
    "greedy with bias": SamplingParams(logit_bias={0: 100.0, 3: -100.0}, frequency_penalty=60.0),
}


def ids(
    target: TargetModel, drafter: Drafter, params: SamplingParams, block_size: int | None = None
) -> tuple[int, ...]:
    return collect(PROMPT, decode(target, drafter, PROMPT, params, block_size=block_size)).token_ids


@pytest.mark.parametrize("name", PROCESSORS)
@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**63 - 1),
    block_size=st.integers(2, 17),
    narrowed=st.sampled_from([None, 2]),
)
def test_seeded_output_does_not_depend_on_the_drafter(
    name: str, seed: int, block_size: int, narrowed: int | None
) -> None:
    """S10, S11, S12: every processor in turn, at the drafter's own width and narrowed."""
    params = replace(PROCESSORS[name], seed=seed, max_new_tokens=15)
    plain = ids(TARGET, NoDrafter(), params)
    for drafter in (
        RandomDrafter(9, block_size, seed=seed % 1000),
        RandomDrafter(9, block_size, as_logits=False),
        RandomLatticeDrafter(9, block_size, 4, seed=seed % 1000),
        OracleDrafter(TARGET, block_size, as_logits=True),
        OracleDrafter(TARGET, block_size, num_right=0),
        PromptLookupDrafter(block_size),
    ):
        assert ids(TARGET, drafter, params, block_size=narrowed) == plain


@pytest.mark.parametrize("family", ["llama", pytest.param("qwen3", marks=pytest.mark.slow)])
def test_seeded_output_of_tiny_transformers(family: Family) -> None:
    target = make_tiny_target(family, dtype=torch.float64)
    for seed in range(2):
        params = SamplingParams(
            temperature=1.2, top_p=0.95, top_k=20, presence_penalty=1.5, seed=seed
        )
        params = replace(params, max_new_tokens=24)
        plain = ids(target, NoDrafter(), params)
        vocab_size = target.spec.vocab_size
        # Knows the sampled text, so that whole blocks are accepted, without passes of its own.
        script = ScriptedTarget(script_logits(vocab_size, [*PROMPT, *plain]), vocab_size)
        for block_size in (2, 7, 16):
            for drafter in (
                OracleDrafter(script, block_size),
                OracleDrafter(script, block_size, num_right=block_size // 2),
                RandomDrafter(vocab_size, block_size),
            ):
                assert ids(target, drafter, params) == plain


def test_different_seeds_differ_and_no_seed_varies() -> None:
    """S12, S15: the sampler is really used."""
    # No stop id, so that every answer has 12 tokens and two equal ones are out of the question.
    params = SamplingParams(temperature=1.5, max_new_tokens=12, ignore_eos=True)
    assert len({ids(TARGET, NoDrafter(), replace(params, seed=s)) for s in range(20)}) > 15
    assert len({ids(TARGET, NoDrafter(), params) for _ in range(20)}) > 15
    assert len({ids(TARGET, NoDrafter(), replace(params, seed=7)) for _ in range(5)}) == 1


def test_the_sampled_law_repeats_at_a_fixed_width() -> None:
    params = SamplingParams(temperature=1.0, seed=11, law="sampled", max_new_tokens=20)
    drafter = RandomDrafter(9, 5)
    assert ids(TARGET, drafter, params) == ids(TARGET, drafter, params)


def test_requests_decoded_in_turn_do_not_disturb_each_other() -> None:
    """S12: interleaved step by step on one model, each as if alone."""
    target = make_tiny_target("qwen3", dtype=torch.float64)
    drafter = OracleDrafter(target, 5, num_right=2)
    runs = [SamplingParams(temperature=1.0, seed=s, max_new_tokens=10 + s) for s in range(4)]
    alone = [ids(target, drafter, params) for params in runs]
    streams = [decode(target, drafter, PROMPT, params) for params in runs]
    together: list[list[int]] = [[] for _ in runs]
    active = set(range(len(runs)))
    while active:
        for index in sorted(active):
            commit = next(streams[index])
            together[index] += commit.ids
            if commit.finish_reason is not None:
                active.discard(index)
    assert [tuple(out) for out in together] == alone
