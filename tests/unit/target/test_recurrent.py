"""C05: after `commit(rows)` a recurrent state is as if exactly those rows had been fed."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from blockdraft.errors import UnsupportedTarget
from blockdraft.target.capture import find_decoder_layers
from blockdraft.target.hf import HFTarget
from blockdraft.target.hf_state import HFState
from blockdraft.target.recurrent import (
    STATE_FIELDS,
    RecurrentStates,
    has_state,
    recurrent_layers,
    watch_mixers,
)
from blockdraft.target.rollback import KVCache
from blockdraft.target.support import trial_ids, try_rollback
from blockdraft.testing.families import family_model, family_named

KEYS = ("qwen3_next", "qwen3_5", "granite4", "nemotron_h", "zamba2", "lfm2", "falcon_h1", "jamba")
PROMPT_IDS = [5, 9, 13, 40, 7, 7, 2, 88, 1, 23, 60]
BLOCK_IDS = [4, 8, 15, 16, 23, 42, 61, 77, 3, 30, 12, 6, 55, 91, 20, 33]
BLOCK = torch.tensor(BLOCK_IDS)
TARGETS: dict[str, HFTarget] = {}


def target_of(key: str) -> HFTarget:
    if key not in TARGETS:
        TARGETS[key] = HFTarget(family_model(family_named(key)), name=key)
    return TARGETS[key]


def open_state(key: str, ids: Sequence[int] = PROMPT_IDS) -> HFState:
    state = target_of(key).open()
    state.prefill(torch.tensor(ids))
    return state


def states_of(state: HFState) -> list[Tensor]:
    """Every recurrent and convolution state, read off private attributes."""
    cache = cast(KVCache, getattr(state, "_cache"))  # noqa: B009
    return [
        value
        for layer in recurrent_layers(cache)
        for field in STATE_FIELDS[:2]
        for value in cast("dict[int, Tensor | None]", getattr(layer, field)).values()
        if value is not None
    ]


def fed_one_by_one(key: str, ids: Sequence[int]) -> HFState:
    """The oracle: a fresh state that gets the committed tokens alone, as plain decoding does."""
    state = open_state(key)
    for token_id in ids:
        state.verify(torch.tensor([token_id]))
        state.commit([0])
    return state


def assert_close(found: Tensor, expected: Tensor) -> None:
    """float32; delta rules in chunks and in single steps agree to about 4e-5 of the size."""
    scale = max(1.0, float(expected.abs().max()))
    torch.testing.assert_close(found / scale, expected / scale, atol=2e-4, rtol=0)


@pytest.mark.parametrize("key", KEYS)
@settings(max_examples=5)
@given(steps=st.lists(st.tuples(st.integers(1, 16), st.integers(0, 16)), min_size=1, max_size=4))
def test_any_cuts_leave_the_state_of_the_kept_rows(key: str, steps: list[tuple[int, int]]) -> None:
    """Blocks of any width, any part of each kept, against single steps over the kept tokens."""
    state = open_state(key)
    history: list[int] = []
    for width, kept in steps:
        kept = min(width, kept)
        state.verify(BLOCK[:width])
        state.commit(range(kept))
        history += BLOCK_IDS[:kept]
        assert state.context_len == len(PROMPT_IDS) + len(history)
    oracle = fed_one_by_one(key, history)
    for found, expected in zip(states_of(state), states_of(oracle), strict=True):
        assert_close(found, expected)
    assert_close(state.verify(BLOCK[:3]).logits, oracle.verify(BLOCK[:3]).logits)


@pytest.mark.parametrize("key", KEYS)
def test_a_rejected_pass_changes_no_bit(key: str) -> None:
    state, untouched = open_state(key), open_state(key)
    for width in (1, 5, 16):
        state.verify(BLOCK[:width])
        state.commit([])
    for found, expected in zip(states_of(state), states_of(untouched), strict=True):
        assert torch.equal(found, expected)
    assert torch.equal(state.verify(BLOCK).logits, untouched.verify(BLOCK).logits)


@pytest.mark.parametrize("key", KEYS)
def test_states_of_one_model_do_not_touch_each_other_c07(key: str) -> None:
    first, second = open_state(key), open_state(key, PROMPT_IDS[:2])
    expected = open_state(key, PROMPT_IDS[:2]).verify(BLOCK).logits
    first.verify(BLOCK)
    assert torch.equal(second.verify(BLOCK).logits, expected)
    first.commit(range(3))
    second.commit([])
    assert torch.equal(second.verify(BLOCK).logits, expected)


@pytest.mark.parametrize("key", KEYS)
def test_verify_on_an_empty_state(key: str) -> None:
    """The states do not exist before the pass, so rolling back removes them again."""
    state = target_of(key).open()
    state.verify(BLOCK[:5])
    state.commit([])
    state.verify(BLOCK[:5])
    state.commit([0, 1])
    fresh = target_of(key).open()
    fresh.verify(BLOCK[:2])
    fresh.commit([0, 1])
    assert_close(state.verify(BLOCK[2:5]).logits, fresh.verify(BLOCK[2:5]).logits)


@pytest.mark.parametrize("key", KEYS)
def test_features_of_a_verify_pass_are_those_of_single_steps(key: str) -> None:
    target = target_of(key)
    taps = (0, target.spec.num_layers - 1)
    state, single = target.open(taps), target.open(taps)
    state.prefill(torch.tensor(PROMPT_IDS))
    single.prefill(torch.tensor(PROMPT_IDS))
    state.verify(BLOCK[:6])
    state.commit([0, 1])
    features = state.verify(BLOCK[2:6]).features
    rows: list[Tensor] = []
    for row in range(6):
        step = single.verify(BLOCK[row : row + 1]).features
        assert step is not None
        rows.append(step)
        single.commit([0])
    assert features is not None
    assert_close(features, torch.cat(rows[2:]))


@pytest.mark.parametrize("key", ["qwen3_next", "lfm2"])
def test_trees_and_fixed_widths_are_refused_with_the_reason(key: str) -> None:
    state = open_state(key)
    with pytest.raises(UnsupportedTarget, match="keep one state, which can't branch"):
        state.verify(BLOCK[:2], (-1, -1))
    with pytest.raises(UnsupportedTarget, match="recurrent layers add up the rows"):
        HFTarget(family_model(family_named(key)), batch_invariant=8)


def test_the_mixers_are_the_modules_that_write_states() -> None:
    model = family_model(family_named("qwen3_next"))
    target = HFTarget(model)
    state = target.open()
    cache = cast(KVCache, getattr(state, "_cache"))  # noqa: B009
    layers = find_decoder_layers(model.base_model, target.spec.num_layers)
    with watch_mixers(layers, cache) as found:
        state.prefill(torch.tensor(PROMPT_IDS))
    assert {type(module).__name__ for module in found} == {"Qwen3NextGatedDeltaNet"}
    assert len(found) == len(recurrent_layers(cache)) == 3
    assert all(has_state(layer) for layer in recurrent_layers(cache))
    assert state.recurrent_bytes == sum(part.nbytes for part in states_of(state)) > 0


LEAKS: list[tuple[str, tuple[str, ...]]] = [
    ("qwen3_next", ("conv_states",)),
    ("qwen3_next", ("recurrent_states",)),
    ("granite4", ("recurrent_states",)),
    ("lfm2", ("conv_states",)),
]


@pytest.mark.parametrize(("key", "leaked"), LEAKS)
def test_the_trial_at_load_finds_a_state_that_is_not_put_back(
    key: str, leaked: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What transformers' own `crop` does: the convolution goes back, the recurrent state stays."""
    target = target_of(key)
    ids = trial_tokens(target)
    reference = target.open().verify(ids).logits
    try_rollback(key, target.open(), reference)

    keep_first = cast(Callable[[RecurrentStates, int, int], None], RecurrentStates.keep_first)

    def leaky(states: RecurrentStates, num_kept: int, num_rows: int) -> None:
        saved = cast("list[dict[str, object]]", getattr(states, "_saved"))  # noqa: B009
        for layer in saved:
            for field in leaked:
                layer.pop(field)
        keep_first(states, num_kept, num_rows)

    monkeypatch.setattr(RecurrentStates, "keep_first", leaky)
    with pytest.raises(UnsupportedTarget, match="leave traces"):
        try_rollback(key, target.open(), reference)
    with pytest.raises(UnsupportedTarget, match="leave traces"):
        HFTarget(family_model(family_named(key)))


def trial_tokens(target: HFTarget) -> Tensor:
    return torch.tensor(trial_ids(target.spec.vocab_size))


@pytest.mark.parametrize("key", ["qwen3_next", "qwen3_5"])
def test_without_an_attention_layer_the_error_says_what_is_missing(key: str) -> None:
    """The code of these families asks an attention layer how far it is; another dtype won't help.

    Mamba, which has none either, does not ask: it is in the table of families.
    """
    config: Any = family_model(family_named(key)).config
    settings = config.to_dict() | {"layer_types": ["linear_attention"] * config.num_hidden_layers}
    shaped = cast("Callable[[object], object]", config.from_dict)(settings)
    make = cast("Callable[[object], PreTrainedModel]", AutoModelForCausalLM.from_config)
    model = make(shaped)
    with pytest.raises(UnsupportedTarget, match=r"it has no attention layer, .*; use a model that"):
        HFTarget(model, name=key)
