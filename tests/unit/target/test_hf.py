"""The transformers adapter: passes, exact roll back, trees, independent states, head."""

from collections.abc import Sequence
from typing import cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import PreTrainedModel

from blockdraft.errors import ConfigError, RequestError, UnsupportedTarget
from blockdraft.target.hf import HFTarget
from blockdraft.target.hf_state import HFState
from blockdraft.testing.tiny import FAMILIES, Family, TinySize, tiny_model, tiny_target

FULL_ATTENTION: tuple[Family, ...] = ("qwen3", "llama", "qwen2")
PROMPT_IDS = [5, 9, 13, 40, 7, 7, 2, 88, 1, 23, 60]
BLOCK_IDS = [4, 8, 15, 16, 23, 42, 61, 77]
PROMPT, BLOCK = torch.tensor(PROMPT_IDS), torch.tensor(BLOCK_IDS)
TARGETS: dict[Family, HFTarget] = {}


def assert_close(found: Tensor, expected: Tensor) -> None:
    """Weights are float64, but eager attention takes its softmax in float32."""
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def head_weight_of(model: PreTrainedModel) -> Tensor:
    return cast(Tensor, cast(nn.Module, model.get_output_embeddings()).weight)


def embedding_of(model: PreTrainedModel) -> Tensor:
    return cast(Tensor, model.get_input_embeddings().weight)


def target_of(family: Family) -> HFTarget:
    if family not in TARGETS:
        TARGETS[family] = tiny_target(family)
    return TARGETS[family]


def prefilled(family: Family, ids: Tensor = PROMPT) -> HFState:
    state = target_of(family).open()
    state.prefill(ids)
    return state


def step_by_step(family: Family, context: Sequence[int], ids: Sequence[int]) -> Tensor:
    """The oracle: a fresh state that is fed one token after the other."""
    state = prefilled(family, torch.tensor(context))
    rows: list[Tensor] = []
    for token_id in ids:
        rows.append(state.verify(torch.tensor([token_id])).logits)
        state.commit([0])
    return torch.cat(rows)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pass_on_a_filled_cache_equals_single_steps_c06_c11(family: Family) -> None:
    """C06, C11: eight rows at once, across the sliding window (6), against eight single steps."""
    state = prefilled(family)
    logits = state.verify(BLOCK).logits
    single = step_by_step(family, PROMPT_IDS, BLOCK_IDS)
    assert_close(logits, single)


@pytest.mark.parametrize("family", FAMILIES)
def test_prefill_in_one_piece_or_two_c09(family: Family) -> None:
    """C09: the whole prompt, N-1 then 1, and the model's own forward without a cache."""
    whole = target_of(family).open().prefill(PROMPT).logits
    state = prefilled(family, PROMPT[:-1])
    pieces = state.prefill(PROMPT[-1:]).logits
    assert whole.shape == pieces.shape == (1, 96)
    assert_close(whole, pieces)
    assert int(whole.argmax()) == int(pieces.argmax())
    assert state.context_len == state.cache_len == len(PROMPT)


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=20)
@given(kept=st.lists(st.integers(0, 8), min_size=1, max_size=4))
def test_roll_back_is_exact_after_every_prefix(family: Family, kept: list[int]) -> None:
    """After any commits the state answers like one that never saw the rejected rows."""
    state = prefilled(family)
    history = list(PROMPT_IDS)
    for num_kept in kept:
        state.verify(BLOCK)
        state.commit(range(num_kept))
        history += BLOCK_IDS[:num_kept]
        assert state.context_len == state.cache_len == len(history)
    fresh = prefilled(family, torch.tensor(history))
    after = state.verify(BLOCK[:3]).logits
    assert_close(after, fresh.verify(BLOCK[:3]).logits)


def test_rolled_back_keys_and_values_are_the_same_bits() -> None:
    state, untouched = prefilled("llama"), prefilled("llama")
    state.verify(BLOCK)
    state.commit([])
    assert torch.equal(state.verify(BLOCK).logits, untouched.verify(BLOCK).logits)


@pytest.mark.parametrize("family", FULL_ATTENTION)
@pytest.mark.parametrize("attn", ["sdpa", "eager"])
def test_a_tree_equals_its_chains(family: Family, attn: str) -> None:
    """A root with two branches and a second root: each row equals its path, verified alone."""
    target = tiny_target(family, attn=attn)
    parents = (-1, 0, 0, 1, 1, 2, -1)
    ids = BLOCK[: len(parents)]
    tree = target.open(taps=(1,))
    tree.prefill(PROMPT)
    output = tree.verify(ids, parents)
    assert output.features is not None
    for path in ((0, 1, 3), (0, 1, 4), (0, 2, 5), (6,)):
        chain = target.open(taps=(1,))
        chain.prefill(PROMPT)
        alone = chain.verify(ids[list(path)])
        assert alone.features is not None
        assert_close(output.logits[list(path)], alone.logits)
        assert_close(output.features[list(path)], alone.features)


@pytest.mark.parametrize("path", [(), (0,), (0, 2), (0, 2, 5), (0, 1, 4), (6,)])
def test_commit_of_any_path_of_a_tree(path: tuple[int, ...]) -> None:
    parents = (-1, 0, 0, 1, 1, 2, -1)
    ids = BLOCK[: len(parents)]
    state = prefilled("qwen3")
    state.verify(ids, parents)
    state.commit(path)
    history = torch.cat([PROMPT, ids[list(path)]])
    assert state.context_len == state.cache_len == len(history)
    fresh = prefilled("qwen3", history)
    assert_close(state.verify(BLOCK).logits, fresh.verify(BLOCK).logits)


def test_a_tree_without_context() -> None:
    state = target_of("llama").open()
    logits = state.verify(BLOCK[:3], (-1, -1, 1)).logits
    state.commit([1, 2])
    torch.testing.assert_close(logits[1:], target_of("llama").open().verify(BLOCK[1:3]).logits)


@pytest.mark.parametrize("family", ["mistral", "gemma2", "qwen2_sliding"])
def test_trees_on_sliding_windows_are_refused(family: Family) -> None:
    state = prefilled(family)
    with pytest.raises(UnsupportedTarget, match="sliding-window layers"):
        state.verify(BLOCK[:2], (-1, -1))
    # A chain given by its parents is no tree.
    assert state.verify(BLOCK[:2], (-1, 0)).logits.shape == (2, 96)


def test_states_are_independent_c07() -> None:
    """C07: long, short, long again, and both in turn, against fresh ones."""
    long_ids, short_ids = torch.cat([PROMPT, BLOCK]), PROMPT[:2]
    expected = {
        "long": prefilled("qwen3", long_ids).verify(BLOCK).logits,
        "short": prefilled("qwen3", short_ids).verify(BLOCK).logits,
    }
    target = target_of("qwen3")
    first, second = target.open(), target.open()
    first.prefill(long_ids)
    second.prefill(short_ids)
    for _ in range(2):
        assert torch.equal(first.verify(BLOCK).logits, expected["long"])
        assert torch.equal(second.verify(BLOCK).logits, expected["short"])
        first.commit([])
        second.commit([])
    third = target.open()
    third.prefill(long_ids)
    assert torch.equal(third.verify(BLOCK).logits, expected["long"])


def test_ids_and_context_are_checked_before_anything_runs_r07() -> None:
    target = tiny_target(size=TinySize(max_context_len=12))
    assert target.spec.max_context_len == 12
    state = target.open()
    for ids in ([-1], [96], []):
        with pytest.raises(RequestError):
            state.prefill(torch.tensor(ids, dtype=torch.long))
    state.prefill(PROMPT)
    with pytest.raises(RequestError, match="exceed the context"):
        state.verify(BLOCK[:2])
    state.verify(BLOCK[:1])
    state.commit([0])
    assert state.context_len == 12


def test_the_order_of_calls_is_checked() -> None:
    state = prefilled("qwen3")
    with pytest.raises(AssertionError):
        state.commit([])
    state.verify(BLOCK[:2])
    with pytest.raises(AssertionError):
        state.verify(BLOCK[:2])
    with pytest.raises(AssertionError):
        state.prefill(PROMPT)
    with pytest.raises(AssertionError):
        state.commit([1])
    with pytest.raises(ConfigError, match="tap 3 is no layer"):
        target_of("qwen3").open(taps=(0, 3))


@pytest.mark.parametrize("tied", [True, False])
def test_embedding_and_head_are_the_models_own_l12(tied: bool) -> None:
    """L12: tied and untied; the head's rows by themselves, and a subset of them."""
    model = tiny_model("llama", size=TinySize(tied=tied))
    target = HFTarget(model)
    head_weight = head_weight_of(model)
    assert (embedding_of(model) is head_weight) is tied
    hidden = torch.randn(2, 5, 32, dtype=torch.float64)
    full = target.head()(hidden)
    torch.testing.assert_close(full, hidden @ head_weight.T)
    subset = torch.tensor([3, 90, 4])
    torch.testing.assert_close(target.head(subset)(hidden), full[..., subset])
    embedded = target.embed(PROMPT.view(1, -1))
    assert torch.equal(embedded[0], embedding_of(model)[PROMPT])


def test_a_head_with_bias_l12() -> None:
    model = tiny_model("qwen3")
    biased = nn.Linear(32, 96, bias=True, dtype=torch.float64)
    model.set_output_embeddings(biased)
    target = HFTarget(model)
    hidden = torch.randn(4, 32, dtype=torch.float64)
    torch.testing.assert_close(target.head()(hidden), biased(hidden))
    subset = torch.tensor([0, 95])
    torch.testing.assert_close(target.head(subset)(hidden), biased(hidden)[:, subset])


def test_embedding_is_not_scaled_for_gemma() -> None:
    """C10: the drafter applies the scale itself, so it must not come twice."""
    model = tiny_model("gemma3")
    raw = embedding_of(model)[PROMPT]
    assert torch.equal(HFTarget(model).embed(PROMPT), raw)
    assert not torch.allclose(model.get_input_embeddings()(PROMPT), raw)


def test_spec_is_read_from_the_model() -> None:
    size = TinySize(stop_ids=(2, 9), max_context_len=77)
    spec = tiny_target("gemma2", size=size).spec
    assert (spec.vocab_size, spec.hidden_size, spec.num_layers) == (96, 32, 3)
    assert spec.stop_ids == (2, 9)
    assert spec.max_context_len == 77
    assert spec.name == "tiny-gemma2"


def test_generation_config_has_the_last_word_on_stop_ids() -> None:
    model = tiny_model()
    assert model.generation_config is not None
    model.generation_config.eos_token_id = 17
    assert HFTarget(model).spec.stop_ids == (17,)
    model.generation_config.eos_token_id = None
    assert HFTarget(model).spec.stop_ids == (2, 3)
    model.config.eos_token_id = None
    assert HFTarget(model).spec.stop_ids == ()


@pytest.mark.parametrize("family", FAMILIES)
def test_passes_leave_no_gradients_and_change_no_weights(family: Family) -> None:
    model: PreTrainedModel = tiny_model(family)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = HFTarget(model).open(taps=(0,))
    output = state.prefill(PROMPT)
    assert output.features is not None
    assert not output.logits.requires_grad and not output.features.requires_grad
    assert not output.features.is_inference(), "training reads features, so they must be normal"
    assert all(torch.equal(before[name], now) for name, now in model.state_dict().items())
