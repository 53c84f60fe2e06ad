"""Greedy losslessness: ids, finish reason, logprobs and cache length equal plain decoding.

For every block size and for drafters from always right to always wrong, on scripted targets (every
edge of stops and limits) and on tiny random transformers in float64, where no near-tie can hide.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from blockdraft.decoding import (
    Commit,
    Completion,
    Drafter,
    NoDrafter,
    PromptLookupDrafter,
    SamplingParams,
    TargetModel,
    TargetState,
    collect,
    decode,
)
from blockdraft.testing import (
    ByteTextCodec,
    OracleDrafter,
    RandomDrafter,
    ScriptedTarget,
    ToyRecurrentTarget,
    hashed_logits,
    script_logits,
    tiny_target,
)
from blockdraft.testing.tiny import Family

BLOCK_SIZES = range(1, 18)


@dataclass
class Watched:
    """A target that remembers the states it opened, so that their final length can be read."""

    inner: TargetModel

    def __post_init__(self) -> None:
        self.spec = self.inner.spec
        self.embed = self.inner.embed
        self.head = self.inner.head
        self.states: list[TargetState] = []

    def open(self, taps: Sequence[int] = ()) -> TargetState:
        self.states.append(self.inner.open(taps))
        return self.states[-1]


def run(
    target: TargetModel,
    drafter: Drafter,
    prompt: Sequence[int],
    params: SamplingParams,
    block_size: int | None = None,
) -> tuple[Completion, int]:
    """The completion and the final length of the target's cache."""
    watched = Watched(target)
    commits = list(
        decode(
            watched,
            drafter,
            prompt,
            params,
            block_size=block_size,
            decode_text=ByteTextCodec().decode,
        )
    )
    check_commits(commits)
    return collect(prompt, commits), watched.states[0].context_len


def check_commits(commits: Sequence[Commit]) -> None:
    assert all(commit.finish_reason is None for commit in commits[:-1])
    for commit in commits:
        assert len(commit.ids) >= 1 and 0 <= commit.num_accepted <= len(commit.ids)
    stats = commits[-1].stats
    assert stats.tokens == sum(len(commit.ids) for commit in commits)
    assert stats.steps == len(commits) - 1


def assert_same(
    plain: tuple[Completion, int], drafted: tuple[Completion, int], *, tolerance: float = 1e-9
) -> None:
    (want, want_len), (got, got_len) = plain, drafted
    assert got.token_ids == want.token_ids
    assert got.finish_reason == want.finish_reason
    assert got.text == want.text
    assert got_len == want_len == len(want.prompt_ids) + len(want.token_ids) - 1
    assert len(got.logprobs) == len(want.logprobs)
    for ours, theirs in zip(got.logprobs, want.logprobs, strict=True):
        assert ours.logprob == pytest.approx(theirs.logprob, abs=tolerance)
        assert [i for i, _ in ours.top] == [i for i, _ in theirs.top]


def script_of(vocab_size: int, completion: Completion) -> ScriptedTarget:
    """A target that says what was said, for oracles: they ask for many passes."""
    text = (*completion.prompt_ids, *completion.token_ids)
    return ScriptedTarget(script_logits(vocab_size, text), vocab_size)


def drafters(target: TargetModel, block_size: int) -> dict[str, Drafter]:
    vocab_size = target.spec.vocab_size
    named: dict[str, Drafter] = {
        "random": RandomDrafter(vocab_size, block_size),
        "random ids": RandomDrafter(vocab_size, block_size, seed=1, as_logits=False),
        "always right": OracleDrafter(target, block_size, as_logits=True),
        "always wrong": OracleDrafter(target, block_size, num_right=0),
    }
    if block_size > 1:
        named["prompt lookup"] = PromptLookupDrafter(block_size)
    return named


PARAMS = SamplingParams(max_new_tokens=23, logprobs=3)


@pytest.mark.parametrize("block_size", BLOCK_SIZES)
def test_every_block_size_equals_plain_decoding(block_size: int) -> None:
    """F4 on a scripted target: the base property of all others."""
    target = ScriptedTarget(hashed_logits(11, seed=5), 11, stop_ids=(10,))
    for prompt in [(1,), (2, 3), tuple(range(block_size - 1)) or (4,), (5,) * block_size]:
        plain = run(target, NoDrafter(), [i % 10 for i in prompt], PARAMS)
        for drafter in drafters(target, block_size).values():
            drafted = run(target, drafter, [i % 10 for i in prompt], PARAMS)
            assert_same(plain, drafted)


@pytest.mark.parametrize("num_right", range(8))
def test_exactly_k_right_commits_k_plus_one_a_step(num_right: int) -> None:
    target = ScriptedTarget(hashed_logits(11, seed=5), 11)
    params = SamplingParams(max_new_tokens=1 + 4 * (num_right + 1))
    plain = run(target, NoDrafter(), (1, 2), params)
    drafted = run(target, OracleDrafter(target, 8, num_right=num_right), (1, 2), params)
    assert_same(plain, drafted)
    stats = drafted[0].stats
    assert stats.tau == num_right + 1
    assert stats.histogram[num_right] == stats.drafted_steps
    assert stats.acceptance_by_position[:num_right] == (1.0,) * num_right


def test_plain_decoding_has_tau_one_and_an_oracle_the_block_size() -> None:
    target = ScriptedTarget(hashed_logits(11, seed=5), 11)
    params = SamplingParams(max_new_tokens=33)
    assert run(target, NoDrafter(), (1,), params)[0].stats.tau == 1.0
    assert run(target, OracleDrafter(target, 8), (1,), params)[0].stats.tau == 8.0


@settings(max_examples=50)
@given(
    seed=st.integers(0, 50),
    block_size=st.integers(1, 17),
    max_new_tokens=st.integers(1, 20),
    min_tokens=st.integers(0, 6),
    stops=st.lists(st.integers(0, 7), max_size=2),
    room=st.integers(1, 24),
    num_right=st.integers(0, 8),
    penalty=st.sampled_from([1.0, 1.05, 1.3]),
)
def test_stops_and_limits_fall_where_plain_decoding_puts_them(
    seed: int,
    block_size: int,
    max_new_tokens: int,
    min_tokens: int,
    stops: list[int],
    room: int,
    num_right: int,
    penalty: float,
) -> None:
    """B02, B05, B08, B09, B10, B12, C18, S11: several stop ids, any limit, any acceptance."""
    prompt = (1, 2, 3)
    target = ScriptedTarget(
        hashed_logits(8, seed=seed), 8, stop_ids=tuple(stops), max_context_len=len(prompt) + room
    )
    params = SamplingParams(
        max_new_tokens=max_new_tokens,
        min_tokens=min_tokens,
        repetition_penalty=penalty,
        frequency_penalty=0.4,
        logprobs=0,
    )
    plain = run(target, NoDrafter(), prompt, params)
    drafted = run(target, OracleDrafter(target, block_size, num_right=num_right), prompt, params)
    assert_same(plain, drafted)
    completion = drafted[0]
    assert len(completion.token_ids) <= min(max_new_tokens, room)
    assert not set(stops) & set(completion.token_ids[:-1][min_tokens:])


@settings(max_examples=50)
@given(st.text(alphabet="abc", min_size=1, max_size=3), st.integers(1, 17), st.integers(0, 9))
def test_stop_strings_inside_and_across_blocks(stop: str, block_size: int, seed: int) -> None:
    """B01, B03: ids, text, logprobs and usage describe the same tokens."""
    letters = [ord(c) for c in "abc"]
    target = ScriptedTarget(hashed_logits(100, seed=seed), 100)
    params = SamplingParams(
        max_new_tokens=20, stop=(stop, "cab"), allowed_ids=tuple(letters), logprobs=1
    )
    plain = run(target, NoDrafter(), letters, params)
    assert_same(plain, run(target, OracleDrafter(target, block_size), letters, params))
    assert_same(plain, run(target, RandomDrafter(100, block_size), letters, params))
    completion = plain[0]
    assert stop not in completion.text and "cab" not in completion.text
    whole = bytes(completion.token_ids).decode()
    assert whole.startswith(completion.text)
    assert completion.stats.tokens == len(completion.token_ids) == len(completion.logprobs)


# The scripted target tries every size; here caches are cut, which depends on what is accepted.
SAMPLED_SIZES = {"qwen3": (1, 2, 3, 4, 7, 8, 11, 16, 17), "llama": (2, 8, 16), "qwen2": (2, 8, 16)}
EACH_FAMILY = [
    pytest.param(
        family,
        block_size,
        marks=[] if block_size in SAMPLED_SIZES[family] else [pytest.mark.slow],
    )
    for family in ("qwen3", "llama", "qwen2")
    for block_size in BLOCK_SIZES
]


@pytest.mark.parametrize(("family", "block_size"), EACH_FAMILY)
def test_tiny_transformers(family: Family, block_size: int) -> None:
    """C20, C07: real caches and masks; prompts around the block size, alternating on one model."""
    target = tiny_target(family, dtype=torch.float64)
    params = replace(PARAMS, max_new_tokens=14)
    # The last time, whether the prompts between left a trace.
    for prompt, is_again in (([3], False), (list(range(2, 2 + block_size)), False), ([3], True)):
        want = run(target, NoDrafter(), prompt, params)
        script = script_of(target.spec.vocab_size, want[0])
        named = drafters(script, block_size)
        named["half right"] = OracleDrafter(script, block_size, num_right=block_size // 2)
        del named["random ids"]  # to a cache they are what the other random ones are
        for name in ("half right",) if is_again else named:
            drafted = run(target, named[name], prompt, params)
            assert_same(want, drafted, tolerance=1e-8)
            if name == "always right":
                num_drawn = len(drafted[0].token_ids) - 1  # the prompt's pass gave the first
                assert drafted[0].stats.steps == -(-num_drawn // block_size)


def test_a_narrower_block_on_request() -> None:
    target = ScriptedTarget(hashed_logits(11, seed=5), 11)
    drafter = OracleDrafter(target, 8)
    params = SamplingParams(max_new_tokens=25)
    plain = run(target, NoDrafter(), (1,), params)
    for block_size in (1, 2, 8, 99):
        drafted = run(target, drafter, (1,), params, block_size=block_size)
        assert_same(plain, drafted)
        assert drafted[0].stats.tau == min(block_size, 8)


@pytest.mark.parametrize("rollback", ["keep", "replay"])
def test_a_recurrent_target_commits_exactly_the_accepted_rows(
    rollback: Literal["keep", "replay"],
) -> None:
    """C05, C24: the seam holds for state that can't be cropped."""
    target = ToyRecurrentTarget(rollback=rollback)
    plain = run(target, NoDrafter(), (1, 2, 3), PARAMS)
    for block_size in (2, 5, 16):
        for drafter in drafters(target, block_size).values():
            assert_same(plain, run(target, drafter, (1, 2, 3), PARAMS))


def test_the_mask_token_may_be_prompted_and_emitted() -> None:
    """C01: as first, middle and last token; nothing is removed by value."""
    mask_id = 7
    logits = torch.zeros(8, dtype=torch.float64)
    logits[mask_id] = 5.0
    target = ScriptedTarget(lambda prefix: logits, 8)
    params = SamplingParams(max_new_tokens=9)
    for drafter in drafters(target, 4).values():
        completion = run(target, drafter, (mask_id, 1, mask_id), params)[0]
        assert completion.token_ids == (mask_id,) * 9


@pytest.mark.parametrize("max_new_tokens", [1, 2, 7, 16, 17])
def test_usage_never_overshoots(max_new_tokens: int) -> None:
    """B05, B07."""
    target = ScriptedTarget(hashed_logits(11, seed=5), 11)
    params = replace(PARAMS, max_new_tokens=max_new_tokens)
    completion, cache_len = run(target, OracleDrafter(target, 8), (1, 2), params)
    assert len(completion.token_ids) == completion.stats.tokens == max_new_tokens
    continued = run(target, NoDrafter(), (1, 2), replace(PARAMS, max_new_tokens=30))[0]
    assert continued.token_ids[:max_new_tokens] == completion.token_ids
    assert cache_len == 2 + max_new_tokens - 1
