"""`NativeModel`: one forward pass of a dense Llama-like decoder over the rows of many requests.

Written for few rows and warm caches: fused products, features taken on the way, logits only for
the rows that are asked for. It knows no requests; `Segment`s say where each row stands.

Shape legend: rows = rows of the pass with its padding, heads = query heads, kv = key/value heads.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from blockdraft.native.attention import (
    ChainMasks,
    KeyMask,
    Span,
    attend,
    attend_invariantly,
    key_mask,
    sees_keys,
)
from blockdraft.native.batched import RowGroups, SingleRow, group_rows, pays
from blockdraft.native.config import NativeConfig
from blockdraft.native.linear import KernelPlan
from blockdraft.native.pool import TokenPool
from blockdraft.native.rotary import RotaryTable, Rotation, rotate
from blockdraft.native.segments import Layout, Segment
from blockdraft.native.weights import LayerWeights, NativeWeights

Mask = KeyMask | Bool[Tensor, "fed keys"]


class Reading(NamedTuple):
    """How a pass reads keys in layers of one window: a mask a segment, and groups of segments."""

    masks: Sequence[Mask]
    groups: RowGroups | None = None


class PassOutput(NamedTuple):
    """`logits` of the rows asked for, `features` of all rows (None without taps)."""

    logits: Float[Tensor, "asked vocab"]
    features: Float[Tensor, "rows feature"] | None


class NativeModel:
    """The decoder. Passes write keys and values of their rows into the pool they are given.

    `invariant_rows` = n pads every pass of at most n rows to n and makes attention independent of
    what else is fed (batch_invariant); such passes hold a single segment.
    """

    def __init__(
        self,
        config: NativeConfig,
        weights: NativeWeights,
        plan: KernelPlan,
        *,
        invariant_rows: int | None = None,
    ) -> None:
        self.config = config
        self.weights = weights
        self.plan = plan
        self.invariant_rows = invariant_rows
        self.dtype = weights.embedding.dtype
        self.device = weights.embedding.device
        self._rotary = RotaryTable(weights.inverse_frequencies, weights.rotary_scale, self.dtype)
        self._masks = ChainMasks(self.dtype, self.device)
        self.groups_rows = invariant_rows is None and pays(weights.embedding)
        self._zeros = torch.empty(0, 0)

    def new_pool(self, num_rows: int) -> TokenPool:
        """An empty pool for `num_rows` tokens of this model."""
        return TokenPool(
            num_layers=self.config.num_layers,
            num_kv_heads=self.config.num_kv_heads,
            head_dim=self.config.head_dim,
            num_rows=num_rows,
            dtype=self.dtype,
            device=self.device,
        )

    @torch.no_grad()
    def forward(
        self,
        ids: Int[Tensor, " fed"],
        segments: Sequence[Segment],
        pool: TokenPool,
        *,
        taps: Sequence[int] = (),
        asked: Sequence[int] | None = None,
    ) -> PassOutput:
        """Feed `ids`, the rows of `segments` one after the other.

        `asked` are the rows whose logits are wanted, None = all.
        """
        fed = ids.shape[0]
        num_rows = self._padded_rows(fed)
        layout = Layout(segments, num_rows - fed, self.device)
        assert layout.num_rows == fed
        if num_rows > fed:
            ids = functional.pad(ids, (0, num_rows - fed))
        hidden, features = self._run_layers(ids.to(self.device), layout, pool, taps)
        if asked is None:
            asked = range(fed)
        logits = self._logits(hidden, asked)
        taken = torch.cat(features, dim=-1)[:fed] if features else None
        return PassOutput(logits, taken)

    def _padded_rows(self, fed: int) -> int:
        if self.invariant_rows is None:
            return self.plan.pad(fed)
        return max(fed, self.invariant_rows)

    def _run_layers(
        self, ids: Int[Tensor, " rows"], layout: Layout, pool: TokenPool, taps: Sequence[int]
    ) -> tuple[Tensor, list[Tensor]]:
        config = self.config
        self.prepare_positions(layout.last_end)
        by = self.rotation(layout.positions)
        hidden = functional.embedding(ids, self.weights.embedding)
        readings = self._readings(layout, pool)
        tapped: dict[int, Tensor] = {}
        for layer_idx in range(config.num_layers):
            reading = readings[config.windows[layer_idx]]
            hidden = self._layer(layer_idx, hidden, by, layout, pool, reading)
            if layer_idx in taps:
                tapped[layer_idx] = hidden
        return hidden, [tapped[tap] for tap in taps]

    def _readings(self, layout: Layout, pool: TokenPool) -> dict[int | None, Reading]:
        """For each window that occurs, how its layers read the keys of the segments."""
        readings: dict[int | None, Reading] = {}
        for window in dict.fromkeys(self.config.windows):
            if self.invariant_rows is None:
                masks = [key_mask(s, window, self._masks, self.dtype) for s in layout.segments]
                readings[window] = Reading(masks, self._row_groups(layout, masks, pool))
            else:
                readings[window] = Reading([sees_keys(s, window) for s in layout.segments])
        return readings

    def _row_groups(
        self, layout: Layout, masks: Sequence[KeyMask], pool: TokenPool
    ) -> RowGroups | None:
        """Groups of the segments of one row; None where they are as well read one by one."""
        if not self.groups_rows:
            return None
        singles = [
            SingleRow(i, segment.base + mask.first_key, segment.end - mask.first_key)
            for i, (segment, mask) in enumerate(zip(layout.segments, masks, strict=True))
            if segment.num_rows == 1
        ]
        groups = group_rows(singles, pool.bytes_per_token // self.config.num_layers)
        return RowGroups(groups, layout, pool, self.config.num_heads) if groups else None

    def _layer(
        self,
        layer_idx: int,
        hidden: Float[Tensor, "rows hidden"],
        by: Rotation,
        layout: Layout,
        pool: TokenPool,
        reading: Reading,
    ) -> Float[Tensor, "rows hidden"]:
        layer = self.weights.layers[layer_idx]
        heads = self.heads(layer, hidden, by)
        self._keep(heads, layout, pool, layer_idx)
        attended = self._attend(heads, layout, pool, layer_idx, reading)
        return layer.feed_forward(layer.out(attended, hidden))

    def prepare_positions(self, end: int) -> None:
        """Make rotation factors for positions [0, end), if they are not there yet."""
        self._rotary.reach(end)

    def rotation(self, positions: Int[Tensor, " rows"]) -> Rotation:
        """Factors for all heads of rows at `positions`, which must have been prepared."""
        num_turned = self.config.num_heads + self.config.num_kv_heads
        return self._rotary.rotation(positions, num_turned, self.config.num_kv_heads)

    def heads(
        self, layer: LayerWeights, hidden: Float[Tensor, "rows hidden"], by: Rotation
    ) -> Float[Tensor, "rows heads dim"]:
        """Query, key and value heads of one layer, in this order, rotated."""
        return rotate(layer.heads(hidden, self.config.head_dim, self.config.rms_norm_eps), by)

    def _keep(
        self,
        heads: Float[Tensor, "rows heads dim"],
        layout: Layout,
        pool: TokenPool,
        layer_idx: int,
    ) -> None:
        """Write the keys and values of the real rows into the pool."""
        new = new_keys_values(heads, layout.num_rows, self.config.num_kv_heads)
        if len(layout.segments) == 1:
            segment = layout.segments[0]
            pool.write(layer_idx, segment.base + segment.context_len, new)
        else:
            pool.scatter(layer_idx, layout.pool_rows, new)

    def _attend(
        self,
        heads: Float[Tensor, "rows heads dim"],
        layout: Layout,
        pool: TokenPool,
        layer_idx: int,
        reading: Reading,
    ) -> Float[Tensor, "rows width"]:
        num_heads, groups = self.config.num_heads, reading.groups
        chosen = range(len(layout.segments)) if groups is None else groups.others
        parts: list[Tensor] = []
        for i in chosen:
            segment, start, mask = layout.segments[i], layout.starts[i], reading.masks[i]
            if not isinstance(mask, KeyMask):
                assert len(layout.segments) == 1, "a batch-invariant pass serves one request"
                kept = pool.keys_values(layer_idx, segment.base, segment.end)
                return attend_invariantly(heads[:, :num_heads], kept, mask)
            first = mask.first_key
            kept = pool.keys_values(layer_idx, segment.base + first, segment.end - first)
            parts.append(attend(heads, Span(start, segment.num_rows, num_heads), kept, mask))
        if groups is not None:
            return groups.complete(layer_idx, heads, parts)
        if layout.num_padded:
            parts.append(self._blank(layout.num_padded))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _blank(self, num_rows: int) -> Float[Tensor, "rows width"]:
        """What pad rows attend to: zeros, kept for the next layer and pass."""
        if num_rows > self._zeros.shape[0]:
            width = self.config.num_heads * self.config.head_dim
            self._zeros = torch.zeros(num_rows, width, dtype=self.dtype, device=self.device)
        return self._zeros[:num_rows]

    def _logits(
        self, hidden: Float[Tensor, "rows hidden"], asked: Sequence[int]
    ) -> Float[Tensor, "asked vocab"]:
        if not asked:
            return hidden.new_empty(0, self.config.vocab_size)
        num_rows = hidden.shape[0]
        # Padded to the same rows as the pass, where the kernels or the bits ask for it.
        wanted = min(self._padded_rows(len(asked)), num_rows)
        if len(asked) == num_rows or (wanted == num_rows and asked == range(len(asked))):
            chosen = hidden
        else:
            rows = [*asked, *(asked[-1] for _ in range(wanted - len(asked)))]
            chosen = hidden[torch.tensor(rows, device=self.device)]
        return self.weights.head(self.weights.norm(chosen))[: len(asked)]


def new_keys_values(
    heads: Float[Tensor, "rows heads dim"], num_rows: int, num_kv_heads: int
) -> Float[Tensor, "fed 2 kv dim"]:
    """The key and value heads, which are the last ones, of the first `num_rows` rows: a view."""
    per_row, dim = heads.stride(0), heads.shape[2]
    first = heads.shape[1] - 2 * num_kv_heads
    return heads.as_strided(
        (num_rows, 2, num_kv_heads, dim),
        (per_row, num_kv_heads * dim, dim, 1),
        heads.storage_offset() + first * dim,
    )
