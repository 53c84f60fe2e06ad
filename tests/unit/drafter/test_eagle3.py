"""The EAGLE-3 drafter against an oracle without a cache, and its drafts in the decoding loop."""

from dataclasses import replace
from time import perf_counter

import pytest
import torch
from conftest import TableTarget
from eagle3_oracle import oracle_drafts, random_state
from hypothesis import given, settings
from hypothesis import strategies as st

from blockdraft.decoding import DraftIds, NoDrafter, SamplingParams, collect, decode
from blockdraft.drafter.eagle3 import Eagle3Drafter
from blockdraft.drafter.eagle3_config import Eagle3Config, public_taps
from blockdraft.drafter.eagle3_model import eagle3_shapes
from blockdraft.drafter.eagle3_random import eagle3_config, random_eagle3
from blockdraft.errors import CheckpointError, ConfigError
from blockdraft.native.eagle3 import fast_kernels
from blockdraft.target import HFTarget
from blockdraft.testing.tiny import TinySize, tiny_target

VOCAB, HIDDEN = 24, 16
CONFIG = Eagle3Config(
    hidden_size=HIDDEN,
    target_hidden_size=HIDDEN,
    intermediate_size=20,
    num_heads=4,
    num_kv_heads=2,
    head_dim=6,
    rms_norm_eps=1e-6,
    vocab_size=VOCAB,
    draft_vocab_size=VOCAB,
    taps=(1, 2, 4),
    max_position_embeddings=512,
)
TARGET = TableTarget(VOCAB, HIDDEN, torch.float64)


def features_of(num_tokens: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_tokens, 3 * HIDDEN, generator=generator, dtype=torch.float64)


def ids_of(num_tokens: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return [int(i) for i in torch.randint(VOCAB, (num_tokens,), generator=generator)]


@settings(max_examples=25)
@given(
    steps=st.lists(st.integers(1, 30), min_size=1, max_size=5),
    widths=st.lists(st.integers(2, 8), min_size=5, max_size=5),
    normed=st.booleans(),
    seed=st.integers(0, 100),
)
def test_drafts_are_those_without_a_cache(
    steps: list[int], widths: list[int], normed: bool, seed: int
) -> None:
    """However the context comes in, and whatever was drafted in between."""
    config = replace(CONFIG, norm_before_residual=normed)
    weights = random_state(eagle3_shapes(config), seed)
    state = Eagle3Drafter(config, weights, TARGET).open()
    ids, features = ids_of(sum(steps) + 1, seed), features_of(sum(steps), seed)
    end = 0
    for step, width in zip(steps, widths, strict=False):
        state.extend(ids[end : end + step], features[end : end + step])
        end += step
        expected = oracle_drafts(
            config, weights, TARGET.table, ids[: end + 1], features[:end], width - 1
        )
        assert state.context_len == end
        assert state.propose(ids[end], width) == DraftIds(tuple(expected))
        assert state.propose(ids[end], 2) == DraftIds(tuple(expected[:1]))  # nothing has changed


def test_a_long_prompt_comes_in_chunks() -> None:
    config = replace(CONFIG, max_position_embeddings=2000)
    weights = random_state(eagle3_shapes(config), 3)
    state = Eagle3Drafter(config, weights, TARGET).open()
    ids, features = ids_of(1101), features_of(1100)
    state.extend(ids[:1100], features)
    expected = oracle_drafts(config, weights, TARGET.table, ids, features, 3)
    assert state.propose(ids[1100], 4).ids == tuple(expected)


def test_a_reduced_vocabulary_drafts_target_ids() -> None:
    config = replace(CONFIG, draft_vocab_size=9)
    weights = random_state(eagle3_shapes(config), 1)
    targets = torch.tensor([0, 3, 4, 7, 8, 11, 17, 20, 23])
    d2t = targets - torch.arange(9)
    table = torch.randn(VOCAB, HIDDEN, dtype=torch.float64)
    drafter = Eagle3Drafter(config, weights, TARGET, d2t=d2t, embedding=table)
    state = drafter.open()
    ids, features = ids_of(13), features_of(12)
    state.extend(ids[:12], features)
    drafted = state.propose(ids[12], 8).ids
    assert list(drafted) == oracle_drafts(config, weights, table, ids, features, 7, d2t)
    assert set(drafted) <= {int(i) for i in targets}


def test_a_draft_vocabulary_beyond_the_target_is_refused() -> None:
    config = replace(CONFIG, draft_vocab_size=9)
    weights = random_state(eagle3_shapes(config), 1)
    with pytest.raises(CheckpointError, match=r"0\.\.24, expected 0\.\.23"):
        Eagle3Drafter(config, weights, TARGET, d2t=torch.tensor([0] * 8 + [16]))


def test_nothing_is_drafted_beyond_the_position_limit() -> None:
    config = replace(CONFIG, max_position_embeddings=12)
    drafter = Eagle3Drafter(config, random_state(eagle3_shapes(config), 1), TARGET)
    state = drafter.open()
    ids, features = ids_of(12), features_of(12)
    assert state.propose(1, 8).ids == ()  # no feature stands before the very first token
    state.extend(ids[:9], features[:9])
    assert len(state.propose(ids[9], 8).ids) == 2
    state.extend(ids[9:11], features[9:11])
    assert state.propose(ids[11], 8).ids == () and state.context_len == 11


@pytest.fixture(scope="module")
def target() -> HFTarget:
    return tiny_target(size=TinySize(num_layers=8))


@pytest.mark.parametrize("width", range(2, 9))
def test_greedy_text_is_that_of_plain_decoding(target: HFTarget, width: int) -> None:
    drafter = random_eagle3(target, seed=width)
    prompt = (5, 17, 40, 8, 8, 31)
    params = SamplingParams(max_new_tokens=30, temperature=0.0, ignore_eos=True)
    drafted = collect(prompt, decode(target, drafter, prompt, params, block_size=width))
    plain = collect(prompt, decode(target, NoDrafter(), prompt, params))
    assert drafted.token_ids == plain.token_ids
    assert drafted.stats.drafted_steps > 0


def test_sampled_text_is_that_of_plain_decoding(target: HFTarget) -> None:
    """With a seed, under the default law."""
    params = SamplingParams(max_new_tokens=30, temperature=1.0, seed=4, ignore_eos=True)
    prompt = (5, 17, 40)
    drafted = collect(prompt, decode(target, random_eagle3(target, 1), prompt, params))
    plain = collect(prompt, decode(target, NoDrafter(), prompt, params))
    assert drafted.token_ids == plain.token_ids


def test_fast_kernels_draft_the_same() -> None:
    target = tiny_target(size=TinySize(num_layers=8), dtype=torch.float32)
    config = replace(eagle3_config(target), draft_vocab_size=40)
    plain = random_eagle3(target, 7, config=config).open()
    fast = random_eagle3(target, 7, config=config, kernels=fast_kernels(perf_counter)).open()
    features = torch.randn(21, 3 * target.spec.hidden_size)
    for state in (plain, fast):
        state.extend(range(21), features)
    assert plain.propose(50, 8) == fast.propose(50, 8)


def test_taps_of_the_public_code() -> None:
    """The inputs of layers 2, 16 and 29 are the outputs of 1, 15 and 28."""
    assert public_taps(32) == (1, 15, 28)
    assert public_taps(7) == (1, 2, 3)
    assert public_taps(3) == (0, 1)
    with pytest.raises(ConfigError, match="at least 2"):
        public_taps(1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"draft_vocab_size": 25}, "at most vocab_size 24"),
        ({"num_kv_heads": 3}, "a multiple of num_key_value_heads 3"),
        ({"taps": (1, 1)}, "without repetition"),
        ({"taps": ()}, "without repetition"),
        ({"block_size": 1}, "at least 2"),
    ],
)
def test_a_wrong_shape_is_refused(wrong: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(CONFIG, **wrong)
