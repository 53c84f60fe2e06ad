"""The batch-invariant attention: right, and the same bits however many keys lie behind a row."""

import pytest
import torch
from torch import Tensor, nn

from blockdraft.errors import ConfigError, UnsupportedTarget
from blockdraft.target.hf import HFTarget
from blockdraft.target.hf_attention import CHUNK_LEN, chunked_attention
from blockdraft.target.hf_state import PREFILL_PIECE_LEN
from blockdraft.target.rows import chain_parents, visible
from blockdraft.testing.tiny import Family, TinySize, tiny_model

HEADS, KV_HEADS, DIM = 6, 2, 16
MODULE = nn.Identity()


def qkv(num_keys: int, rows: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(num_keys)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator).to(dtype)

    return (
        normal(1, HEADS, rows, DIM),
        normal(1, KV_HEADS, num_keys, DIM),
        normal(1, KV_HEADS, num_keys, DIM),
    )


def causal(context_len: int, rows: int, dtype: torch.dtype) -> Tensor:
    mask = torch.zeros(rows, context_len + rows, dtype=dtype)
    mask.masked_fill_(~visible(chain_parents(rows), context_len), torch.finfo(dtype).min)
    return mask[None, None]


@pytest.mark.parametrize("num_keys", [1, 7, CHUNK_LEN, CHUNK_LEN + 1, 3 * CHUNK_LEN - 1])
@pytest.mark.parametrize("masked", [True, False])
def test_equals_softmax_attention(num_keys: int, masked: bool) -> None:
    rows = min(num_keys, 5)
    query, key, value = qkv(num_keys, rows, torch.float64)
    mask = causal(num_keys - rows, rows, torch.float64) if masked else None
    found, _ = chunked_attention(MODULE, query, key, value, mask)
    expected = nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, enable_gqa=True
    )
    torch.testing.assert_close(found, expected.transpose(1, 2))


def test_soft_cap_and_sinks_by_hand() -> None:
    query, key, value = qkv(300, 2, torch.float64)
    sinks = torch.linspace(-1, 2, HEADS, dtype=torch.float64)
    found, _ = chunked_attention(
        MODULE, query, key, value, None, scaling=0.5, softcap=2.0, s_aux=sinks
    )
    keys, values = key.repeat_interleave(3, 1), value.repeat_interleave(3, 1)
    scores = 2.0 * torch.tanh(query @ keys.transpose(-1, -2) * 0.5 / 2.0)
    with_sink = torch.cat([scores, sinks.view(1, -1, 1, 1).expand(1, HEADS, 2, 1)], -1)
    expected = with_sink.softmax(-1)[..., :-1] @ values
    torch.testing.assert_close(found, expected.transpose(1, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_keys_behind_a_row_change_no_bit(dtype: torch.dtype) -> None:
    """Every place in a pass of four rows, at key counts around each kind of boundary."""
    rows = 4
    edges = (0, 8, 12, 190, CHUNK_LEN - 6, 2 * CHUNK_LEN - 6, 4 * CHUNK_LEN - 6)
    query, key, value = qkv(4 * CHUNK_LEN + 20, 4 * CHUNK_LEN + 20, dtype)
    for edge in edges:
        seen: dict[int, Tensor] = {}
        for start in range(edge, edge + 10):
            end = start + rows
            found, _ = chunked_attention(
                MODULE,
                query[:, :, start:end],
                key[:, :, :end],
                value[:, :, :end],
                causal(start, rows, dtype),
            )
            for row in range(rows):
                position = start + row
                assert torch.equal(seen.setdefault(position, found[0, row]), found[0, row])


@pytest.mark.parametrize("family", ["qwen3", "llama", "mistral", "gemma2", "gemma3"])
def test_invariant_targets_agree_with_plain_ones(family: Family) -> None:
    plain = HFTarget(tiny_model(family, dtype=torch.float32)).open()
    invariant = HFTarget(tiny_model(family, dtype=torch.float32), batch_invariant=8).open()
    ids = torch.arange(1, 30)
    torch.testing.assert_close(
        plain.prefill(ids).logits, invariant.prefill(ids).logits, atol=1e-4, rtol=1e-4
    )
    block = torch.tensor([7, 8, 9])
    found = invariant.verify(block).logits
    assert found.shape == (3, 96)
    torch.testing.assert_close(plain.verify(block).logits, found, atol=1e-4, rtol=1e-4)
    assert invariant.cache_len == 32, "pad rows are gone before the commit"
    invariant.commit([0])
    assert invariant.context_len == invariant.cache_len == 30


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_and_features_are_the_same_bits_however_the_text_is_cut(dtype: torch.dtype) -> None:
    """Single rows against uneven passes with rejected rows in between, over a chunk boundary."""
    target = HFTarget(
        tiny_model("llama", dtype=dtype, size=TinySize(max_context_len=600)), batch_invariant=8
    )
    ids = torch.randint(0, 96, (CHUNK_LEN + 30,))
    start = CHUNK_LEN - 20

    def decode(cuts: list[int]) -> tuple[Tensor, Tensor]:
        state = target.open(taps=(0, 2))
        state.prefill(ids[:start])
        logits: list[Tensor] = []
        features: list[Tensor] = []
        while state.context_len < start + 40:
            cut = cuts[state.context_len % len(cuts)]
            block = ids[state.context_len : state.context_len + cut]
            wrong = torch.full((8 - cut,), 50)
            output = state.verify(torch.cat([block, wrong]))
            assert output.features is not None
            logits.append(output.logits[:cut])
            features.append(output.features[:cut])
            state.commit(range(cut))
        return torch.cat(logits)[:40], torch.cat(features)[:40]

    single = decode([1])
    for cuts in ([8], [2, 5, 1, 3], [4, 1]):
        for expected, found in zip(single, decode(cuts), strict=True):
            assert torch.equal(expected, found)


def test_pad_rows_do_not_run_over_the_last_position() -> None:
    size = TinySize(max_context_len=12)
    model = tiny_model("qwen3", dtype=torch.float32, size=size)
    plain = HFTarget(model).open()
    state = HFTarget(tiny_model("qwen3", dtype=torch.float32, size=size), batch_invariant=8).open()
    state.prefill(torch.arange(1, 11))
    plain.prefill(torch.arange(1, 11))
    block = torch.tensor([3, 4])
    torch.testing.assert_close(
        state.verify(block).logits, plain.verify(block).logits, atol=1e-4, rtol=1e-4
    )


def test_long_prompts_are_fed_in_pieces() -> None:
    size = TinySize(max_context_len=1200)
    model = tiny_model("llama", dtype=torch.float32, size=size)
    ids = torch.randint(0, 96, (PREFILL_PIECE_LEN + 70,))
    plain = HFTarget(model).open(taps=(1,)).prefill(ids)
    invariant = HFTarget(tiny_model("llama", dtype=torch.float32, size=size), batch_invariant=8)
    state = invariant.open(taps=(1,))
    found = state.prefill(ids)
    assert state.context_len == state.cache_len == len(ids)
    assert plain.features is not None and found.features is not None
    torch.testing.assert_close(found.logits, plain.logits, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(found.features, plain.features, atol=1e-3, rtol=1e-3)


def test_trees_are_padded_too() -> None:
    parents = (-1, 0, 0, -1)
    ids = torch.tensor([4, 5, 6, 7])
    plain = HFTarget(tiny_model(dtype=torch.float32)).open()
    padded = HFTarget(tiny_model(dtype=torch.float32), batch_invariant=8).open()
    for state in (plain, padded):
        state.prefill(torch.arange(1, 11))
    expected, found = plain.verify(ids, parents), padded.verify(ids, parents)
    torch.testing.assert_close(found.logits, expected.logits, atol=1e-4, rtol=1e-4)
    padded.commit([0, 2])
    plain.commit([0, 2])
    block = torch.tensor([9])
    torch.testing.assert_close(
        padded.verify(block).logits, plain.verify(block).logits, atol=1e-4, rtol=1e-4
    )


def test_too_wide_a_pass_and_too_small_a_width_are_refused() -> None:
    state = HFTarget(tiny_model(dtype=torch.float32), batch_invariant=4).open()
    with pytest.raises(ConfigError, match="pass of 5 rows does not fit the fixed width 4"):
        state.verify(torch.arange(1, 6))
    with pytest.raises(ConfigError, match="at least 3"):
        HFTarget(tiny_model(), batch_invariant=1)
    model = tiny_model(dtype=torch.float32, size=TinySize(max_context_len=12))
    with pytest.raises(ConfigError, match="at most 11, not 12"):
        HFTarget(model, batch_invariant=12)
    with pytest.raises(ConfigError, match="at most 4096, not 4097"):
        HFTarget(model, batch_invariant=4097)


def test_position_biases_are_refused() -> None:
    query, key, value = qkv(4, 2, torch.float32)
    with pytest.raises(UnsupportedTarget, match="position biases"):
        chunked_attention(MODULE, query, key, value, None, position_bias=torch.ones(1))
