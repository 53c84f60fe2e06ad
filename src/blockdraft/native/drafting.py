"""`PackedDrafter`: the block drafter's fast path, batched over requests.

Same weights and results as `drafter/model.py`, which stays the readable one: here the context keys
and values of all layers come out of one product, a block's own are written behind the context
instead of being joined to a copy of it, and heads of one kind share one product. It plans nothing.

Pool rows of one request, half-open:

    [base, base + context_len)             context keys and values, complete
    [base + context_len, + width)          the block's own, overwritten by what is committed next
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from blockdraft.decoding.interfaces import DraftLogits
from blockdraft.drafter.config import DrafterConfig, MaskRule
from blockdraft.drafter.dflash import DFlashDrafter
from blockdraft.drafter.model import DrafterLayer
from blockdraft.drafter.rope import inverse_frequencies
from blockdraft.native.attention import ChainMasks, KeyMask, Span, additive, attend
from blockdraft.native.linear import KernelPlan, Linear, dense_linear
from blockdraft.native.model import new_keys_values
from blockdraft.native.norm import RMSNormWeight
from blockdraft.native.pool import TokenPool
from blockdraft.native.rotary import RotaryTable, rotate
from blockdraft.native.segments import Segment
from blockdraft.native.tuning import Clock, measure_plan
from blockdraft.native.weights import LayerWeights

PROJECTED_ROWS = 512
"""Context rows projected at once, so that a long prompt does not need all its features' space."""

_FIRST_ROWS = 64


class PackedDrafter:
    """`drafter`'s model laid out for speed; its weights are copied, not taken.

    `plan` None measures the kernels. Dtype and device are the drafter's own.
    """

    def __init__(
        self, drafter: DFlashDrafter, *, clock: Clock, plan: KernelPlan | None = None
    ) -> None:
        model = drafter.model
        self.config: DrafterConfig = model.config
        self.drafter = drafter
        self.dtype, self.device = model.dtype, model.device
        self._layers = [
            _pack_layer(layer, self.config.rms_norm_eps) for layer in model.decoder_layers()
        ]
        self._fc = dense_linear(model.fc.weight.detach(), None)
        eps = self.config.rms_norm_eps
        self._hidden_norm = RMSNormWeight(model.hidden_norm.weight.detach(), eps)
        self._norm = RMSNormWeight(model.norm.weight.detach(), eps)
        attentions = [layer.self_attn for layer in model.decoder_layers()]
        self._context = _fused(
            [p for attention in attentions for p in (attention.k_proj, attention.v_proj)]
        )
        self._context_norm = torch.stack([a.k_norm.weight.detach() for a in attentions])
        frequencies = inverse_frequencies(self.config.rope, self.config.head_dim)
        self._rotary = RotaryTable(
            frequencies.inverse.to(self.device), frequencies.scale, self.dtype
        )
        self._chains = ChainMasks(self.dtype, self.device)
        linears = [linear for layer in self._layers for linear in layer.linears]
        linears += [self._fc, self._context]
        self.plan = plan or measure_plan(
            linears, self.dtype, clock, on_cpu=self.device.type == "cpu"
        )
        for linear in linears:
            linear.prepare(self.plan)

    def new_pool(self, num_rows: int) -> TokenPool:
        """An empty pool for `num_rows` tokens of context."""
        return TokenPool(
            num_layers=self.config.num_layers,
            num_kv_heads=self.config.num_kv_heads,
            head_dim=self.config.head_dim,
            num_rows=num_rows,
            dtype=self.dtype,
            device=self.device,
        )

    @property
    def block_size(self) -> int:
        return self.drafter.block_size

    @property
    def taps(self) -> tuple[int, ...]:
        return self.config.taps

    def open(self) -> "PackedState":
        """A fresh state with a pool of its own, for the reference loop."""
        return PackedState(self)

    @torch.no_grad()
    def project(
        self,
        features: Float[Tensor, "rows feature"],
        positions: Sequence[int],
        pool_rows: Sequence[int],
        pool: TokenPool,
    ) -> None:
        """Write the context keys and values of all layers for tokens of any requests."""
        num_rows = len(positions)
        assert features.shape[0] == num_rows == len(pool_rows)
        config = self.config
        features = features.to(device=self.device, dtype=self.dtype)
        padding = self.plan.pad(num_rows) - num_rows
        if padding:
            features = functional.pad(features, (0, 0, 0, padding))
        fused = self._hidden_norm(self._fc(features))
        shape = (-1, config.num_layers, 2, config.num_kv_heads, config.head_dim)
        kept = self._context(fused)[:num_rows].view(shape)
        normed = functional.rms_norm(kept[:, :, 0], (config.head_dim,), eps=config.rms_norm_eps)
        keys = normed * self._context_norm[:, None]
        self._rotary.reach(max(positions) + 1)
        by = self._rotary.rotation(torch.tensor(positions, device=self.device), 1, 0)
        rows = torch.tensor(pool_rows, device=self.device)
        turned = rotate(keys.flatten(1, 2), by).view_as(keys)
        pool.tensor[:, 0].index_copy_(2, rows, turned.permute(1, 2, 0, 3))
        pool.tensor[:, 1].index_copy_(2, rows, kept[:, :, 1].permute(1, 2, 0, 3))

    @torch.no_grad()
    def draft(
        self, anchors: Sequence[int], contexts: Sequence[Segment], pool: TokenPool
    ) -> Float[Tensor, "slots draft_vocab"]:
        """Logits of the drafted slots, request after request, over the draft vocabulary.

        `contexts[i]` is request i's block: its `num_rows` is the width, the same for all, at
        least 2. Slot logits are scaled and soft-capped as in `BlockDrafter.logits`.
        """
        width = contexts[0].num_rows
        hidden = self._embed(anchors, width)
        positions = [p for c in contexts for p in range(c.context_len, c.end)]
        rows = [c.base + p for c in contexts for p in range(c.context_len, c.end)]
        self._rotary.reach(max(c.end for c in contexts))
        by = self._rotary.rotation(
            torch.tensor(positions, device=self.device),
            self.config.num_heads + self.config.num_kv_heads,
            self.config.num_kv_heads,
        )
        pool_rows = torch.tensor(rows, device=self.device)
        masks = {
            rule: [self._mask(context, rule) for context in contexts]
            for rule in dict.fromkeys(map(self.config.mask_rule, range(self.config.num_layers)))
        }
        for layer_idx, layer in enumerate(self._layers):
            mask = masks[self.config.mask_rule(layer_idx)]
            heads = layer.heads(hidden, self.config.head_dim, self.config.rms_norm_eps)
            heads = rotate(heads, by)
            self._keep(heads, contexts, pool, layer_idx, pool_rows)
            attended = self._attend(heads, contexts, pool, layer_idx, mask)
            hidden = layer.feed_forward(layer.out(attended, hidden))
        slots = self._norm(hidden).reshape(len(anchors), width, -1)[:, 1:]
        return self.drafter.slot_logits(slots.flatten(0, 1))

    def _embed(self, anchors: Sequence[int], width: int) -> Float[Tensor, "rows hidden"]:
        blocks = self.drafter.embed_blocks(torch.tensor(anchors, device=self.device), width)
        return blocks.to(self.dtype).flatten(0, 1)

    def _keep(
        self,
        heads: Float[Tensor, "rows heads dim"],
        contexts: Sequence[Segment],
        pool: TokenPool,
        layer_idx: int,
        pool_rows: Int[Tensor, " rows"],
    ) -> None:
        """Write the blocks' own keys and values behind their contexts."""
        new = new_keys_values(heads, heads.shape[0], self.config.num_kv_heads)
        if len(contexts) == 1:
            pool.write(layer_idx, contexts[0].base + contexts[0].context_len, new)
        else:
            pool.scatter(layer_idx, pool_rows, new)

    def _attend(
        self,
        heads: Float[Tensor, "rows heads dim"],
        contexts: Sequence[Segment],
        pool: TokenPool,
        layer_idx: int,
        masks: Sequence[KeyMask],
    ) -> Float[Tensor, "rows width"]:
        width = contexts[0].num_rows
        parts: list[Tensor] = []
        for place, (context, mask) in enumerate(zip(contexts, masks, strict=True)):
            first = mask.first_key
            kept = pool.keys_values(layer_idx, context.base + first, context.end - first)
            span = Span(place * width, width, self.config.num_heads)
            parts.append(attend(heads, span, kept, mask))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _mask(self, context: Segment, rule: MaskRule) -> KeyMask:
        """The rule of `DrafterConfig.mask_rule` for one block."""
        if rule.window is None or context.end <= rule.window:
            mask = self._chains.mask(context.num_rows, context.context_len) if rule.causal else None
            return KeyMask(mask=mask)
        # Keys that no row of the block sees are cut off, the rest is masked by distance.
        first_key = max(0, context.context_len - rule.window + 1)
        queries = torch.arange(context.context_len, context.end)[:, None]
        distance = queries - torch.arange(first_key, context.end)
        sees = distance.abs() < rule.window
        if rule.causal:
            sees &= distance >= 0
        mask = additive(sees, self.dtype).to(self.device)
        return KeyMask(first_key, mask)


class PackedState:
    """One request's `DraftState` on a pool of its own, which grows by doubling."""

    def __init__(self, drafter: PackedDrafter) -> None:
        self._drafter = drafter
        self._pool = drafter.new_pool(_FIRST_ROWS)
        self._context_len = 0

    @property
    def context_len(self) -> int:
        return self._context_len

    def extend(self, ids: Sequence[int], features: Float[Tensor, "new feature"] | None) -> None:
        """Project the features of `ids`, as long as a block can still follow them."""
        if not ids:
            return
        assert features is not None and len(features) == len(ids)
        start = self._context_len
        self._context_len += len(ids)
        if self._context_len + 2 > self._drafter.config.position_limit:
            return
        self._pool.grow(self._context_len + self._drafter.block_size)
        for first in range(start, self._context_len, PROJECTED_ROWS):
            rows = range(first, min(first + PROJECTED_ROWS, self._context_len))
            chunk = features[first - start : rows.stop - start]
            self._drafter.project(chunk, rows, rows, self._pool)

    def propose(self, anchor: int, width: int) -> DraftLogits:
        drafter = self._drafter.drafter
        usable = drafter.usable_width(self._context_len, width)
        if usable < 2:
            return drafter.no_draft()
        context = Segment(0, self._context_len, usable)
        logits = self._drafter.draft([anchor], [context], self._pool)
        return DraftLogits(drafter.over_target_vocabulary(logits))


def _pack_layer(layer: DrafterLayer, eps: float) -> LayerWeights:
    attention, mlp = layer.self_attn, layer.mlp
    config_heads = attention.q_proj.out_features // attention.head_dim
    key_heads = attention.k_proj.out_features // attention.head_dim
    norms = (
        attention.q_norm.weight.detach().expand(config_heads, -1),
        attention.k_norm.weight.detach().expand(key_heads, -1),
    )
    return LayerWeights(
        input_norm=RMSNormWeight(layer.input_layernorm.weight.detach(), eps),
        qkv=_fused([attention.q_proj, attention.k_proj, attention.v_proj]),
        qk_norm=torch.cat(norms),
        out=_fused([attention.o_proj]),
        mlp_norm=RMSNormWeight(layer.post_attention_layernorm.weight.detach(), eps),
        gate_up=_fused([mlp.gate_proj, mlp.up_proj]),
        down=_fused([mlp.down_proj]),
    )


def _fused(parts: Sequence[torch.nn.Linear]) -> Linear:
    """One product for several projections of the same input."""
    weight = torch.cat([part.weight.detach() for part in parts])
    biases = [
        bias.detach() for part in parts for name, bias in part.named_parameters() if name == "bias"
    ]
    return dense_linear(weight, torch.cat(biases) if biases else None)
