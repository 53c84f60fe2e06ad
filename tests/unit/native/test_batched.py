"""Groups of one-row segments: the same attention as one segment after the other."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from blockdraft.native import batched
from blockdraft.native.attention import KeyMask, Span, attend
from blockdraft.native.batched import RowGroups, SingleRow, group_rows
from blockdraft.native.pool import TokenPool
from blockdraft.native.segments import Layout, Segment

KV_HEADS, HEADS, DIM, LAYERS = 2, 6, 8, 2
CPU = torch.device("cpu")


def pool_of(segments: list[Segment], dtype: torch.dtype) -> TokenPool:
    """Rows that no segment has hold NaN: reading one shows."""
    pool = TokenPool(
        num_layers=LAYERS,
        num_kv_heads=KV_HEADS,
        head_dim=DIM,
        num_rows=max(segment.base + segment.end for segment in segments) + 40,
        dtype=dtype,
        device=CPU,
    )
    pool.tensor.fill_(torch.nan)
    for segment in segments:
        rows = pool.tensor[:, :, :, segment.base : segment.base + segment.end]
        rows.copy_(torch.randn(rows.shape, generator=torch.Generator().manual_seed(segment.base)))
    return pool


def segments_of(lengths: list[int], wide: int) -> list[Segment]:
    """One row each, but the segment number `wide` has three; gaps between them."""
    segments: list[Segment] = []
    base = 3
    for i, length in enumerate(lengths):
        num_rows = 3 if i == wide else 1
        segments.append(Segment(base, length, num_rows))
        base += length + num_rows + 5
    return segments


def heads_of(layout: Layout, dtype: torch.dtype) -> Tensor:
    shape = (layout.num_rows + layout.num_padded, HEADS + 2 * KV_HEADS, DIM)
    return torch.randn(shape, generator=torch.Generator().manual_seed(7)).to(dtype)


def one_by_one(
    layer_idx: int, heads: Tensor, layout: Layout, pool: TokenPool, window: int
) -> list[Tensor]:
    parts: list[Tensor] = []
    for segment, start in zip(layout.segments, layout.starts, strict=True):
        first = max(0, segment.end - window)
        kept = pool.keys_values(layer_idx, segment.base + first, segment.end - first)
        parts.append(attend(heads, Span(start, segment.num_rows, HEADS), kept, KeyMask(first)))
    return parts


def grouped(
    layer_idx: int, heads: Tensor, layout: Layout, pool: TokenPool, window: int
) -> Tensor | None:
    rows = [
        SingleRow(i, segment.base + first, segment.end - first)
        for i, segment in enumerate(layout.segments)
        for first in (max(0, segment.end - window),)
        if segment.num_rows == 1
    ]
    groups = group_rows(rows, pool.bytes_per_token // LAYERS)
    if not groups:
        return None
    laid_out = RowGroups(groups, layout, pool, HEADS)
    alone = one_by_one(layer_idx, heads, layout, pool, window)
    return laid_out.complete(layer_idx, heads, [alone[i] for i in laid_out.others])


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=70),
    st.sampled_from([9, 1000]),
    st.integers(0, 3),
)
def test_groups_attend_as_one_by_one_and_read_no_one_elses_rows(
    lengths: list[int], window: int, num_padded: int
) -> None:
    segments = segments_of(lengths, wide=len(lengths) // 2)
    layout = Layout(segments, num_padded, CPU)
    pool = pool_of(segments, torch.float32)
    heads = heads_of(layout, torch.float32)
    for layer_idx in range(LAYERS):
        found = grouped(layer_idx, heads, layout, pool, window)
        if found is not None:
            expected = one_by_one(layer_idx, heads, layout, pool, window)
            torch.testing.assert_close(found[: layout.num_rows], torch.cat(expected))
            assert not found[layout.num_rows :].any()


def test_bfloat16_groups_stay_close_to_one_by_one() -> None:
    segments = segments_of([40 + i % 5 for i in range(20)], wide=-1)
    layout = Layout(segments, 0, CPU)
    pool = pool_of(segments, torch.bfloat16)
    heads = heads_of(layout, torch.bfloat16)
    found = grouped(1, heads, layout, pool, 1000)
    assert found is not None
    expected = torch.cat(one_by_one(1, heads, layout, pool, 1000))
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.03)


def test_a_nan_of_one_request_stays_its_own() -> None:
    segments = segments_of([30 + i for i in range(10)], wide=-1)
    layout = Layout(segments, 0, CPU)
    pool = pool_of(segments, torch.float32)
    broken = segments[4]
    pool.tensor[:, :, :, broken.base + 2] = torch.nan
    found = grouped(0, heads_of(layout, torch.float32), layout, pool, 1000)
    assert found is not None
    assert [i for i in range(10) if found[i].isnan().any()] == [4]


def test_groups_are_of_similar_length_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batched, "COPIED_BYTES", 12 * 100)
    rows = [SingleRow(i, 0, 10 + i) for i in range(91)]
    groups = group_rows(rows, 1)
    assert groups
    for group in groups:
        lengths = [row.num_keys for row in group]
        assert lengths == sorted(lengths, reverse=True)
        assert lengths[-1] >= batched.LEAST_FILLED * lengths[0]
        most = max(batched.FEWEST_MEMBERS, min(batched.MOST_MEMBERS, 1200 // lengths[0]))
        assert batched.FEWEST_MEMBERS <= len(group) <= most
    assert group_rows(rows[: batched.FEWEST_MEMBERS - 1], 1) == []


def test_only_bfloat16_is_grouped() -> None:
    assert not batched.pays(torch.zeros(8, 8))
