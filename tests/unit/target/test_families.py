"""What differs from family to family: kinds of caches, wrappers, shared keys, refusals."""

from collections.abc import Callable
from typing import cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from blockdraft.errors import UnsupportedTarget
from blockdraft.target.caches import KIND_OF, layer_kinds, new_cache
from blockdraft.target.capture import find_decoder_layers
from blockdraft.target.families import text_config
from blockdraft.target.hf import HFTarget
from blockdraft.target.rollback import rows_held
from blockdraft.testing.families import family_model, family_named, is_installed
from blockdraft.testing.tiny import TinySize, tiny_config, tiny_model

PROMPT = torch.arange(5, 25)
WRAPPERS = ("qwen3_5_vl", "qwen3_vl", "gemma3_vl", "gemma4_vl", "kimi_k25", "mistral3")


def model_of(key: str) -> PreTrainedModel:
    family = family_named(key)
    if not is_installed(family):
        pytest.skip(f"{family.model_type} is not in this transformers")
    return family_model(family)


def generated(model: PreTrainedModel, ids: Tensor, num_tokens: int) -> list[int]:
    generate = cast(Callable[..., Tensor], model.generate)
    whole = generate(
        ids[None],
        attention_mask=torch.ones_like(ids[None]),
        max_new_tokens=num_tokens,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return [int(token_id) for token_id in whole[0, len(ids) :]]


@pytest.mark.parametrize("key", WRAPPERS)
def test_wrappers_say_what_they_say_about_plain_text(key: str) -> None:
    """Blocks of seven, of which the first ones are right, against the wrapper's own generation."""
    model = model_of(key)
    target = HFTarget(model)
    assert target.traits.wrapper
    expected = generated(model, PROMPT, 24)
    state = target.open()
    ids = [int(state.prefill(PROMPT).logits.argmax())]
    while len(ids) < 24:
        right = len(ids) % 5
        draft = [*expected[len(ids) : len(ids) + right], *range(40, 46)][:6]
        logits = state.verify(torch.tensor([ids[-1], *draft])).logits
        decided = [int(token_id) for token_id in logits.argmax(-1)]
        kept = 0
        while kept < 6 and decided[kept] == draft[kept]:
            kept += 1
        state.commit(range(kept + 1))
        ids += decided[: kept + 1]
    assert ids[:24] == expected


@pytest.mark.parametrize("key", WRAPPERS)
def test_spec_taps_and_embedding_are_those_of_the_language_model(key: str) -> None:
    model = model_of(key)
    target = HFTarget(model)
    config = text_config(model)
    assert target.spec.hidden_size == config.hidden_size
    assert target.spec.num_layers == config.num_hidden_layers
    assert target.spec.max_context_len == config.max_position_embeddings
    embedding = cast(Tensor, model.get_input_embeddings().weight)
    assert target.spec.vocab_size == len(embedding)
    assert torch.equal(target.embed(PROMPT), embedding[PROMPT])
    layers = find_decoder_layers(model.base_model, target.spec.num_layers)
    language_model = model.base_model.get_submodule("language_model")
    assert layers is language_model.layers
    assert target.shape.hidden_size == config.hidden_size


def test_a_wrapper_that_was_last_asked_about_an_image_counts_plain_text() -> None:
    """Qwen-VL keeps the shift of the last image in the model; plain text must not inherit it."""
    model = model_of("qwen3_vl")
    target = HFTarget(model)
    before = target.open().prefill(PROMPT).logits
    setattr(model.base_model, "rope_deltas", torch.tensor([[7]]))  # noqa: B010
    state = target.open()
    state.prefill(PROMPT[:9])
    torch.testing.assert_close(state.prefill(PROMPT[9:]).logits, before, atol=1e-4, rtol=1e-4)


def test_layers_that_share_keys_are_tapped_at_every_token() -> None:
    """transformers skips rows of such layers in a prompt, unless told by index which to keep."""
    model = model_of("gemma4")
    target = HFTarget(model)
    assert target.traits.shares_keys
    last = target.spec.num_layers - 1
    state = target.open((0, last))
    features = state.prefill(PROMPT).features
    assert features is not None and len(features) == len(PROMPT)
    single = target.open((0, last))
    rows: list[Tensor] = []
    for token_id in PROMPT:
        step = single.verify(token_id.view(1)).features
        assert step is not None
        rows.append(step)
        single.commit([0])
    torch.testing.assert_close(features, torch.cat(rows), atol=1e-3, rtol=1e-3)
    assert len(target.read(PROMPT, (last,)).taps) == len(PROMPT)


@pytest.mark.parametrize("window", [1, 2, 3, 5, 8])
@settings(max_examples=10)
@given(kept=st.lists(st.integers(0, 16), min_size=1, max_size=6))
def test_windows_narrower_than_a_block_roll_back_exactly(window: int, kept: list[int]) -> None:
    """Blocks of 16 on windows of 1 to 8, any part kept, many commits; every layer has a window."""
    target = window_target(window)
    block = torch.arange(30, 46)
    state = target.open()
    state.prefill(PROMPT)
    history = [int(token_id) for token_id in PROMPT]
    for num_kept in kept:
        state.verify(block)
        state.commit(range(num_kept))
        history += [int(token_id) for token_id in block[:num_kept]]
    fresh = target.open()
    fresh.prefill(torch.tensor(history))
    torch.testing.assert_close(
        state.verify(block).logits, fresh.verify(block).logits, atol=1e-6, rtol=1e-6
    )


WINDOW_TARGETS: dict[int, HFTarget] = {}


def window_target(window: int) -> HFTarget:
    if window not in WINDOW_TARGETS:
        WINDOW_TARGETS[window] = HFTarget(tiny_model("mistral", size=TinySize(window=window)))
    return WINDOW_TARGETS[window]


def test_new_caches_keep_all_keys_of_window_layers() -> None:
    config = tiny_config("gemma3")
    assert layer_kinds("tiny", config) == ("window", "full", "window")
    kinds = [KIND_OF[type(layer).__name__] for layer in new_cache(config).layers]
    assert kinds == ["full", "full", "full"]
    cache = new_cache(config)
    assert rows_held(cache) == 0


def test_hybrid_caches_keep_their_recurrent_layers() -> None:
    config = text_config(model_of("qwen3_5"))
    kinds = layer_kinds("tiny", config)
    assert set(kinds) == {"recurrent", "full"}
    own = [type(layer) for layer in DynamicCache(config=config).layers]
    assert [type(layer) for layer in new_cache(config).layers] == own


REFUSED = [
    ("recurrent_gemma", "recurrent state lies in its modules"),
    ("minimax", "lightning attention lies in a cache of its own"),
]


@pytest.mark.parametrize(("key", "reason"), REFUSED)
def test_states_out_of_reach_are_refused_at_load(key: str, reason: str) -> None:
    with pytest.raises(UnsupportedTarget, match=reason):
        HFTarget(model_of(key))


def test_layers_of_several_streams_can_not_be_tapped_and_say_so_at_once() -> None:
    target = HFTarget(model_of("glm5_next"))
    target.open()
    with pytest.raises(UnsupportedTarget, match="one hidden state a token"):
        target.open((0,))


def test_the_shape_of_a_family_whose_layers_differ_is_the_first_layers() -> None:
    shape = HFTarget(model_of("gemma4")).shape
    assert shape.head_dim > 0 and shape.num_kv_heads > 0 and shape.rope_theta > 0
