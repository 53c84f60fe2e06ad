"""Attention of many one-row segments at a time: their keys side by side, then two batched products.

It chooses the segments for which that pays and computes them; all others are for `attention.py`.

torch's fused attention is called once a segment and computes single rows of bfloat16 slowly on a
CPU. oneDNN's batched product is several times faster, but wants keys of one length in one piece;
even with all keys copied first, attention of 64 segments took a third less time. In float32 little
is won. Scores are rounded to bfloat16, as in unfused attention: 0.4 % error instead of 0.2 %.

Shape legend: members = segments of one group, kv = key/value heads, groups = query heads a kv head,
keys = keys of the longest member, dim = head_dim.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from blockdraft.native.linear import can_pack
from blockdraft.native.pool import TokenPool
from blockdraft.native.segments import Layout

FEWEST_MEMBERS = 8
"""Fewer segments are as fast one by one."""

MOST_MEMBERS = 32
COPIED_BYTES = 6e6
"""What a group of more than `FEWEST_MEMBERS` may copy: about what the caches hold."""

LEAST_FILLED = 0.75
"""A member has at least this share of the keys of the longest, so that little is padding."""


class SingleRow(NamedTuple):
    """A segment of one row: its number in the pass and the rows of the pool that it sees."""

    segment: int
    first_key: int
    num_keys: int


def pays(weight: Float[Tensor, "out in"]) -> bool:
    """Whether groups are faster here, for a model whose weights are as this one."""
    return weight.dtype == torch.bfloat16 and can_pack(weight)


def group_rows(rows: Sequence[SingleRow], bytes_per_key: int) -> list[list[SingleRow]]:
    """Groups of similar length, the longest first; rows that fit into none are left out.

    `bytes_per_key` are of one layer.
    """
    return [group for group in _by_length(rows, bytes_per_key) if len(group) >= FEWEST_MEMBERS]


def _by_length(rows: Sequence[SingleRow], bytes_per_key: int) -> Iterator[list[SingleRow]]:
    group: list[SingleRow] = []
    for row in sorted(rows, key=lambda row: -row.num_keys):
        if group:
            longest = group[0].num_keys
            room = int(COPIED_BYTES / (longest * bytes_per_key))
            is_full = len(group) >= min(max(room, FEWEST_MEMBERS), MOST_MEMBERS)
            if is_full or row.num_keys < LEAST_FILLED * longest:
                yield group
                group = []
        group.append(row)
    if group:
        yield group


class _Group:
    """One group: where its keys and values are, and what else its products need."""

    def __init__(
        self, members: Sequence[SingleRow], pool: TokenPool, num_heads: int, zeros: Tensor
    ) -> None:
        _, _, num_kv, _, dim = pool.tensor.shape
        device = pool.tensor.device
        num_keys = members[0].num_keys
        self.num_members = len(members)
        self.shape = (2, num_kv, len(members) * num_keys, dim)
        parts: list[Sequence[Tensor]] = []
        for member in members:
            parts.append(pool.in_layers(member.first_key, member.num_keys))
            if member.num_keys < num_keys:
                padding = zeros[:, :, : num_keys - member.num_keys]
                parts.append([padding] * len(parts[0]))
        self.parts = list(zip(*parts, strict=True))
        """For each layer the members' rows, each with its padding behind it."""
        counts = torch.tensor([member.num_keys for member in members], device=device)
        is_padding = torch.arange(num_keys, device=device) >= counts[:, None]
        mask = pool.tensor.new_zeros(is_padding.shape).masked_fill_(is_padding, -torch.inf)
        shape = (num_kv, len(members), num_heads // num_kv, num_keys)
        self.mask = mask[:, None].expand(shape).flatten(0, 1)
        """[kv * members, groups, keys]: 0 for a member's keys, -inf for its padding."""

    def attend(
        self, layer_idx: int, queries: Float[Tensor, "members heads dim"], buffer: Tensor
    ) -> Float[Tensor, "members width"]:
        """`buffer` gets the keys and values, in one piece as oneDNN wants them."""
        _, num_kv, _, dim = self.shape
        pairs, groups, num_keys = self.mask.shape
        copied = buffer[: math.prod(self.shape)].view(self.shape)
        torch.cat(self.parts[layer_idx], 2, out=copied)
        keys, values = copied.view(2, pairs, num_keys, dim)
        by_kv = queries.view(-1, num_kv, groups, dim).transpose(0, 1)
        by_kv = by_kv.reshape(pairs, groups, dim)
        scores = torch.baddbmm(self.mask, by_kv, keys.transpose(1, 2), alpha=dim**-0.5)
        attended = torch.bmm(scores.softmax(-1), values)
        return attended.view(num_kv, -1, groups * dim).transpose(0, 1).flatten(1)


class RowGroups:
    """The groups of one pass and one window, laid out once and used by all its layers.

    Members are padded with zeros, never with what happens to lie behind them: a NaN of another
    request would get through a mask.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[SingleRow]],
        layout: Layout,
        pool: TokenPool,
        num_heads: int,
    ) -> None:
        _, two, num_kv, _, dim = pool.tensor.shape
        most_padded = max(group[0].num_keys - group[-1].num_keys for group in groups)
        zeros = pool.tensor.new_zeros(two, num_kv, most_padded, dim)
        self._groups = [_Group(group, pool, num_heads, zeros) for group in groups]
        self._num_heads = num_heads
        # One buffer for all groups and layers: a fresh one each time costs more than the copying.
        most = max(math.prod(group.shape) for group in self._groups)
        self._buffer = pool.tensor.new_empty(most)
        grouped = [member.segment for group in groups for member in group]
        self.others = sorted(set(range(len(layout.segments))).difference(grouped))
        """The segments that are in no group."""
        rows = [layout.starts[i] for i in grouped]
        self._rows = torch.tensor(rows, device=pool.tensor.device)
        for i in self.others:
            start = layout.starts[i]
            rows += range(start, start + layout.segments[i].num_rows)
        rows += range(layout.num_rows, layout.num_rows + layout.num_padded)
        # Where each row of the pass is found when grouped rows come first, then others, then pads.
        self._places = torch.tensor(rows, device=pool.tensor.device).argsort()
        self._pads = pool.tensor.new_zeros(layout.num_padded, num_heads * dim)

    def complete(
        self,
        layer_idx: int,
        heads: Float[Tensor, "rows all_heads dim"],
        others: Sequence[Float[Tensor, "fed width"]],
    ) -> Float[Tensor, "rows width"]:
        """All rows of the pass, given those of the `others`, in order; pad rows are zeros.

        The query heads are the first of `heads`.
        """
        queries = heads[:, : self._num_heads].index_select(0, self._rows)
        sizes = [group.num_members for group in self._groups]
        parts = [
            group.attend(layer_idx, own, self._buffer)
            for group, own in zip(self._groups, torch.split(queries, sizes), strict=True)
        ]
        return torch.cat((*parts, *others, self._pads)).index_select(0, self._places)
