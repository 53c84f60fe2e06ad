"""Passes over the rows of many requests: the same as one request after the other (B27).

Whether a single request is computed as in transformers is tested in test_target.py.
"""

from collections.abc import Sequence
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from blockdraft.native.attention import MASKED_ROWS
from blockdraft.native.config import read_native_config
from blockdraft.native.linear import PLAIN, KernelPlan, dense_linear, only
from blockdraft.native.model import NativeModel
from blockdraft.native.pool import TokenPool
from blockdraft.native.segments import Layout, Segment
from blockdraft.native.weights import take_weights
from blockdraft.target.rows import depths
from blockdraft.testing import tiny_model
from blockdraft.testing.tiny import Family

TAPS = (0, 1)
PADDING = KernelPlan((PLAIN, PLAIN), tuple(-(-n // 8) * 8 for n in range(65)))
"""Every pass of at most 64 rows is padded to a multiple of 8."""


@cache
def model_of(family: Family, plan: KernelPlan) -> NativeModel:
    model = tiny_model(family)
    config = read_native_config(model.config)
    weights = take_weights(model.eval(), config, dense_linear)
    for linear in weights.linears:
        linear.prepare(plan)
    return NativeModel(config, weights, plan)


def dirty_pool(model: NativeModel, num_rows: int) -> TokenPool:
    """Rows that nobody wrote hold NaN: reading one shows."""
    pool = model.new_pool(num_rows)
    pool.tensor.fill_(torch.nan)
    return pool


def ids_of(seed: int, count: int) -> Tensor:
    return torch.randint(96, (count,), generator=torch.Generator().manual_seed(seed))


class Lane:
    """One request: what it has in a shared pool, and the same in a pool of its own."""

    def __init__(self, seed: int, base: int, context_len: int, segment: Segment) -> None:
        self.seed, self.base, self.context_len, self.segment = seed, base, context_len, segment
        self.ids = ids_of(seed, segment.end)

    def fill(self, model: NativeModel, pool: TokenPool, base: int) -> None:
        if self.context_len:
            context = Segment(base, 0, self.context_len)
            model.forward(self.ids[: self.context_len], [context], pool, asked=[])

    def alone(self, model: NativeModel) -> tuple[Tensor, Tensor, Tensor]:
        pool = dirty_pool(model, self.segment.end)
        self.fill(model, pool, 0)
        own = Segment(0, self.context_len, self.segment.num_rows, self.segment.parents)
        output = model.forward(self.ids[self.context_len :], [own], pool, taps=TAPS)
        assert output.features is not None
        return output.logits, output.features, pool.tensor


def make_lanes(shapes: Sequence[tuple[int, int, bool]], gap: int) -> tuple[list[Lane], int]:
    lanes: list[Lane] = []
    base = gap
    for seed, (context_len, num_rows, is_tree) in enumerate(shapes):
        parents = None
        if is_tree:
            parents = tuple(-1 if i == 0 else (i * 7 + seed) % i for i in range(num_rows))
        segment = Segment(base, context_len, num_rows, parents)
        lanes.append(Lane(seed, base, context_len, segment))
        base += segment.end + gap
    return lanes, base


SHAPES = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 9), st.booleans()), min_size=1, max_size=6
)


@pytest.mark.parametrize("family", ["qwen3", "mistral", "qwen2_sliding"])
@pytest.mark.parametrize("plan", [only(PLAIN), PADDING], ids=["bare", "padded"])
@settings(max_examples=12)
@given(shapes=SHAPES, gap=st.integers(0, 3))
def test_segments_together_equal_segments_alone(
    family: Family, plan: KernelPlan, shapes: list[tuple[int, int, bool]], gap: int
) -> None:
    """Logits, features, and every row of the pool: padding writes nothing (B27)."""
    model, bare = model_of(family, plan), model_of(family, only(PLAIN))
    lanes, num_rows = make_lanes(shapes, gap)
    pool = dirty_pool(model, num_rows)
    for lane in lanes:
        lane.fill(model, pool, lane.base)
    fed = torch.cat([lane.ids[lane.context_len :] for lane in lanes])
    output = model.forward(fed, [lane.segment for lane in lanes], pool, taps=TAPS)
    assert output.features is not None
    expected = [lane.alone(bare) for lane in lanes]
    torch.testing.assert_close(
        output.logits, torch.cat([logits for logits, _, _ in expected]), atol=1e-9, rtol=0
    )
    torch.testing.assert_close(
        output.features, torch.cat([features for _, features, _ in expected]), atol=1e-9, rtol=0
    )
    want = torch.full_like(pool.tensor, torch.nan)
    for lane, (_, _, rows) in zip(lanes, expected, strict=True):
        want[:, :, :, lane.base : lane.base + lane.segment.end] = rows
    torch.testing.assert_close(pool.tensor, want, atol=1e-9, rtol=0, equal_nan=True)


@pytest.mark.parametrize("plan", [only(PLAIN), PADDING], ids=["bare", "padded"])
@pytest.mark.parametrize(
    "asked", [[], [0], [4], [2, 5], [0, 1, 2, 3, 4, 5], [0, 1, 2], [5, 0]], ids=str
)
def test_logits_of_the_rows_asked_for_only(asked: list[int], plan: KernelPlan) -> None:
    model = model_of("llama", plan)
    ids = ids_of(3, 6)
    every = model.forward(ids, [Segment(0, 0, 6)], dirty_pool(model, 6)).logits
    some = model.forward(ids, [Segment(0, 0, 6)], dirty_pool(model, 6), asked=asked).logits
    assert some.shape == (len(asked), 96)
    torch.testing.assert_close(some, every[asked], atol=1e-9, rtol=0)


@pytest.mark.parametrize("num_rows", [MASKED_ROWS, MASKED_ROWS + 1])
@pytest.mark.parametrize("context_len", [0, 5])
@pytest.mark.parametrize("family", ["qwen3", "mistral"])
def test_wide_segments_are_computed_like_narrow_ones(
    family: Family, context_len: int, num_rows: int
) -> None:
    model = model_of(family, only(PLAIN))
    ids = ids_of(1, context_len + num_rows)
    pool = dirty_pool(model, len(ids))
    if context_len:
        model.forward(ids[:context_len], [Segment(0, 0, context_len)], pool)
    wide = model.forward(ids[context_len:], [Segment(0, context_len, num_rows)], pool).logits
    pool = dirty_pool(model, len(ids))
    narrow = [
        model.forward(ids[at : at + 1], [Segment(0, at, 1)], pool).logits for at in range(len(ids))
    ]
    torch.testing.assert_close(wide, torch.cat(narrow)[context_len:], atol=1e-9, rtol=0)


def test_positions_of_a_layout() -> None:
    segments = [Segment(10, 3, 2), Segment(40, 1, 4, (-1, 0, 0, 2))]
    layout = Layout(segments, 2, torch.device("cpu"))
    assert layout.positions.tolist() == [3, 4, 1, 2, 2, 3, 0, 0]
    assert layout.pool_rows.tolist() == [13, 14, 41, 42, 43, 44]
    assert layout.starts == [0, 2]
    assert (layout.num_rows, layout.last_end) == (6, 5)
    assert depths((-1, -1, 1, 2, 0)) == (0, 0, 1, 2, 1)


def numbered_pool(num_rows: int) -> TokenPool:
    pool = TokenPool(
        num_layers=2,
        num_kv_heads=2,
        head_dim=2,
        num_rows=num_rows,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    pool.tensor[:] = torch.arange(num_rows, dtype=torch.float32)[:, None]
    return pool


def rows_of(pool: TokenPool) -> list[float]:
    first = pool.tensor[0, 0, 0, :, 0]
    assert torch.equal(pool.tensor, first[:, None].expand_as(pool.tensor))
    return [float(value) for value in first]


@given(st.integers(0, 11), st.integers(0, 11), st.integers(0, 12))
def test_moves_copy_rows_even_when_they_overlap(source: int, destination: int, count: int) -> None:
    count = min(count, 12 - source, 12 - destination)
    pool = numbered_pool(12)
    want = [float(i) for i in range(12)]
    want[destination : destination + count] = want[source : source + count]
    pool.move(source, destination, count)
    assert rows_of(pool) == want


def test_gather_and_growth_keep_what_is_kept() -> None:
    pool = numbered_pool(6)
    assert pool.bytes_per_token == 2 * 2 * 2 * 2 * 4
    pool.gather(2, [0, 2, 3])
    assert rows_of(pool) == [0, 1, 2, 4, 5, 5]
    pool.gather(2, [])
    pool.grow(6)
    assert pool.num_rows == 6
    pool.grow(7)
    assert pool.num_rows == 12 and rows_of_first(pool, 6) == [0, 1, 2, 4, 5, 5]
    pool.grow(40)
    assert pool.num_rows == 40


def rows_of_first(pool: TokenPool, count: int) -> list[float]:
    return [float(value) for value in pool.tensor[0, 0, 0, :count, 0]]
