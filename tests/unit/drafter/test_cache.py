"""The context cache against plain lists of rows."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.drafter import ContextCache, DrafterConfig
from blockdraft.drafter.attention import KeyValues


def _rows(batch: int, new: int, start: float) -> KeyValues:
    count = batch * 2 * new * 8
    keys = torch.arange(count, dtype=torch.float32).view(batch, 2, new, 8) + start
    return KeyValues(keys, -keys)


@given(data=st.data())
def test_append_and_crop_equal_lists(data: st.DataObject) -> None:
    config = _config()
    cache = ContextCache(config, batch_size=2)
    kept: list[list[torch.Tensor]] = [[], []]
    for step in range(data.draw(st.integers(1, 6))):
        new = data.draw(st.integers(0, 90))
        counts = [data.draw(st.integers(0, new)) for _ in kept]
        layers = [_rows(2, new, 1000.0 * step + 0.5 * layer) for layer in range(2)]
        cache.append(layers, counts)
        for row, count in enumerate(counts):
            kept[row].extend(layers[1].keys[row, :, i] for i in range(count))
        if data.draw(st.booleans()):
            row = data.draw(st.integers(0, 1))
            length = data.draw(st.integers(0, len(kept[row])))
            cache.crop(row, length)
            del kept[row][length:]
        assert cache.lengths == tuple(len(rows) for rows in kept)
        context = cache.context(1)
        for row, rows in enumerate(kept):
            expected = torch.stack(rows, 1) if rows else torch.empty(2, 0, 8)
            assert torch.equal(context.keys[row, :, : len(rows)], expected)
            assert torch.equal(context.values[row, :, : len(rows)], -expected)
            assert not context.keys[row, :, len(rows) :].any()  # padding stays finite


def test_grows_by_doubling_and_gives_memory_back() -> None:
    cache = ContextCache(_config())
    capacities: list[int] = []
    for _ in range(200):
        cache.append([_rows(1, 1, 0.0)] * 2, [1])
        if not capacities or capacities[-1] != cache.capacity:
            capacities.append(cache.capacity)
    assert capacities == [64, 128, 256]
    cache.reset()
    assert (cache.capacity, cache.lengths) == (0, (0,))


def test_refuses_more_rows_than_given() -> None:
    with pytest.raises(AssertionError):
        ContextCache(_config()).append([_rows(1, 2, 0.0)] * 2, [3])


def _config() -> DrafterConfig:
    return DrafterConfig(
        hidden_size=16,
        intermediate_size=24,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        rms_norm_eps=1e-6,
        vocab_size=40,
        block_size=5,
        mask_token_id=3,
        taps=(1,),
        layer_types=("full_attention", "full_attention"),
        max_position_embeddings=256,
    )
