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
    attend,
    attend_invariantly,
    key_mask,
    sees_keys,
)
from blockdraft.native.config import NativeConfig
from blockdraft.native.linear import KernelPlan
from blockdraft.native.pool import TokenPool
from blockdraft.native.rotary import RotaryTable, Rotation, rotate
from blockdraft.native.segments import Layout, Segment
from blockdraft.native.weights import LayerWeights, NativeWeights

Mask = KeyMask | Bool[Tensor, "fed keys"]


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
        self._masks = ChainMasks(config.num_groups, self.dtype, self.device)

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
        masks = self._pass_masks(layout)
        tapped: dict[int, Tensor] = {}
        for layer_idx, layer in enumerate(self.weights.layers):
            mask = masks[config.windows[layer_idx]]
            hidden = self._layer(layer, hidden, by, layout, pool.layer(layer_idx), mask)
            if layer_idx in taps:
                tapped[layer_idx] = hidden
        return hidden, [tapped[tap] for tap in taps]

    def _pass_masks(self, layout: Layout) -> dict[int | None, list[Mask]]:
        """For each window that occurs, the mask of each segment."""
        masks: dict[int | None, list[Mask]] = {}
        for window in dict.fromkeys(self.config.windows):
            if self.invariant_rows is None:
                made = [key_mask(s, window, self._masks, self.dtype) for s in layout.segments]
                masks[window] = [*made]
            else:
                masks[window] = [sees_keys(s, window) for s in layout.segments]
        return masks

    def _layer(
        self,
        layer: LayerWeights,
        hidden: Float[Tensor, "rows hidden"],
        by: Rotation,
        layout: Layout,
        kept: Float[Tensor, "2 kv pool_rows dim"],
        masks: Sequence[Mask],
    ) -> Float[Tensor, "rows hidden"]:
        normed = self.norm(hidden, layer.input_norm)
        heads = rotate(self.split_heads(layer, layer.qkv(normed)), by)
        self._keep(heads, layout, kept)
        attended = self._attend(heads, layout, kept, masks)
        return self.feed_forward(layer, layer.out(attended, hidden))

    def prepare_positions(self, end: int) -> None:
        """Make rotation factors for positions [0, end), if they are not there yet."""
        self._rotary.reach(end)

    def rotation(self, positions: Int[Tensor, " rows"]) -> Rotation:
        """Factors for all heads of rows at `positions`, which must have been prepared."""
        num_turned = self.config.num_heads + self.config.num_kv_heads
        return self._rotary.rotation(positions, num_turned, self.config.num_kv_heads)

    def feed_forward(
        self, layer: LayerWeights, hidden: Float[Tensor, "rows hidden"]
    ) -> Float[Tensor, "rows hidden"]:
        """The gated MLP with its norm and residual."""
        gate, up = layer.gate_up(self.norm(hidden, layer.mlp_norm)).chunk(2, dim=-1)
        return layer.down(functional.silu(gate) * up, hidden)

    def split_heads(
        self, layer: LayerWeights, qkv: Float[Tensor, "rows width"]
    ) -> Float[Tensor, "rows heads dim"]:
        """Query, key and value heads, in this order; queries and keys normed (Qwen3)."""
        heads = qkv.view(qkv.shape[0], -1, self.config.head_dim)
        if layer.qk_norm is not None:
            turned = heads[:, : layer.qk_norm.shape[0]]
            eps = self.config.rms_norm_eps
            turned.copy_(
                functional.rms_norm(turned, (self.config.head_dim,), eps=eps) * layer.qk_norm
            )
        return heads

    def _keep(self, heads: Float[Tensor, "rows heads dim"], layout: Layout, kept: Tensor) -> None:
        """Write the keys and values of the real rows into the pool."""
        config = self.config
        new = heads[: layout.num_rows, config.num_heads :]
        new = new.view(-1, 2, config.num_kv_heads, config.head_dim).permute(1, 2, 0, 3)
        if len(layout.segments) == 1:
            segment = layout.segments[0]
            start = segment.base + segment.context_len
            kept[:, :, start : start + segment.num_rows] = new
        else:
            kept.index_copy_(2, layout.pool_rows, new)

    def _attend(
        self,
        heads: Float[Tensor, "rows heads dim"],
        layout: Layout,
        kept: Tensor,
        masks: Sequence[Mask],
    ) -> Float[Tensor, "rows width"]:
        queries = heads[:, : self.config.num_heads]
        parts: list[Tensor] = []
        for (segment, start), mask in zip(layout.spans(), masks, strict=True):
            keys = kept[0, :, segment.base : segment.base + segment.end]
            values = kept[1, :, segment.base : segment.base + segment.end]
            if not isinstance(mask, KeyMask):
                assert len(layout.segments) == 1, "a batch-invariant pass serves one request"
                return attend_invariantly(queries, keys, values, mask)
            own = queries[start : start + segment.num_rows]
            parts.append(attend(own, keys, values, mask))
        if layout.num_padded:
            parts.append(parts[0].new_zeros(layout.num_padded, parts[0].shape[1]))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def norm(
        self, hidden: Float[Tensor, "rows hidden"], weight: Float[Tensor, " hidden"]
    ) -> Float[Tensor, "rows hidden"]:
        """RMS norm with this model's epsilon."""
        return functional.rms_norm(hidden, (hidden.shape[-1],), weight, self.config.rms_norm_eps)

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
        return self.weights.head(self.norm(chosen, self.weights.norm))[: len(asked)]
