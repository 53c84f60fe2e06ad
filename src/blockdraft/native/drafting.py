"""`PackedDrafter`: the block drafter's fast path, batched over requests.

Same weights and results as `drafter/model.py`, which stays the readable one: here the context keys
and values of all layers come out of one product, a block's own are written behind the context
instead of being joined to a copy of it, and heads of one kind share one product. It plans nothing.
Both versions of DFlash are batched alike; the second one's selector gives scores of all requests'
candidates, among which each request then chooses its own path.

Pool rows of one request, half-open:

    [base, base + context_len)             context keys and values, complete
    [base + context_len, + width)          the block's own, overwritten by what is committed next
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from blockdraft.decoding.interfaces import DraftLattice, DraftLogits
from blockdraft.drafter.config import DrafterConfig, MaskRule
from blockdraft.drafter.dflash import DFlashDrafter
from blockdraft.drafter.rope import inverse_frequencies
from blockdraft.native.attention import ChainMasks, KeyMask, Span, additive, attend
from blockdraft.native.convolution import with_residual
from blockdraft.native.draft_weights import fused, pack_layer, share_selector
from blockdraft.native.linear import KernelPlan, dense_linear
from blockdraft.native.model import new_keys_values
from blockdraft.native.norm import RMSNormWeight
from blockdraft.native.pool import TokenPool
from blockdraft.native.rotary import RotaryTable, Rotation, rotate
from blockdraft.native.segments import Segment
from blockdraft.native.tuning import Clock, measure_plan

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
            pack_layer(layer, self.config.rms_norm_eps) for layer in model.decoder_layers()
        ]
        self._selector = share_selector(model)
        self._fc = dense_linear(model.fc.weight.detach(), None)
        eps = self.config.rms_norm_eps
        self._hidden_norm = RMSNormWeight(model.hidden_norm.weight.detach(), eps)
        self._norm = RMSNormWeight(model.norm.weight.detach(), eps)
        attentions = [layer.self_attn for layer in model.decoder_layers()]
        self._context = fused(
            [p for attention in attentions for p in (attention.k_proj, attention.v_proj)]
        )
        self._context_norm = torch.stack([a.k_norm.weight.detach() for a in attentions])
        frequencies = inverse_frequencies(self.config.rope, self.config.head_dim)
        self._rotary = RotaryTable(
            frequencies.inverse.to(self.device), frequencies.scale, self.dtype
        )
        self._chains = ChainMasks(self.dtype, self.device)
        linears = [linear for layer in self._layers for linear in layer.all_linears]
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

    @property
    def has_selector(self) -> bool:
        """Whether drafts are paths through candidates (`draft_lattices`), not logits (`draft`)."""
        return self._selector is not None

    @torch.no_grad()
    def draft(
        self, anchors: Sequence[int], contexts: Sequence[Segment], pool: TokenPool
    ) -> Float[Tensor, "slots draft_vocab"]:
        """Logits of the drafted slots, request after request, over the draft vocabulary.

        `contexts[i]` is request i's block: its `num_rows` is the width, the same for all, at
        least 2. Slot logits are scaled and soft-capped as in `BlockDrafter.logits`.
        """
        return self.drafter.slot_logits(self._slots(anchors, contexts, pool).flatten(0, 1))

    @torch.no_grad()
    def draft_lattices(
        self, anchors: Sequence[int], contexts: Sequence[Segment], pool: TokenPool
    ) -> list[DraftLattice]:
        """A lattice for each request, for drafters with a selector; else as `draft`."""
        assert self._selector is not None
        slots = self._slots(anchors, contexts, pool)
        logits = self.drafter.slot_logits(slots.flatten(0, 1)).view(*slots.shape[:2], -1)
        return self._selector.lattices(slots, logits, torch.tensor(anchors, device=self.device))

    def _slots(
        self, anchors: Sequence[int], contexts: Sequence[Segment], pool: TokenPool
    ) -> Float[Tensor, "requests slots hidden"]:
        """Final-normed states of the drafted slots: of all rows but the anchors'."""
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
        blocks = _Blocks(contexts, pool, pool_rows, by, masks)
        for layer_idx, layer in enumerate(self._layers):
            attend = partial(self._attention, blocks, layer_idx)
            normed = layer.input_norm(hidden)
            hidden = with_residual(layer.attention_conv, normed, hidden, width, attend)
            normed = layer.mlp_norm(hidden)
            hidden = with_residual(layer.mlp_conv, normed, hidden, width, layer.gated)
        return self._norm(hidden).reshape(len(anchors), width, -1)[:, 1:]

    def _attention(
        self,
        blocks: "_Blocks",
        layer_idx: int,
        normed: Float[Tensor, "rows hidden"],
        residual: Float[Tensor, "rows hidden"] | None,
    ) -> Float[Tensor, "rows hidden"]:
        """One layer's attention of all blocks, `residual` added."""
        layer = self._layers[layer_idx]
        heads = layer.heads_of(normed, self.config.head_dim, self.config.rms_norm_eps)
        heads = rotate(heads, blocks.by)
        self._keep(heads, blocks, layer_idx)
        return layer.out(self._attend(heads, blocks, layer_idx), residual)

    def _embed(self, anchors: Sequence[int], width: int) -> Float[Tensor, "rows hidden"]:
        blocks = self.drafter.embed_blocks(torch.tensor(anchors, device=self.device), width)
        return blocks.to(self.dtype).flatten(0, 1)

    def _keep(
        self, heads: Float[Tensor, "rows heads dim"], blocks: "_Blocks", layer_idx: int
    ) -> None:
        """Write the blocks' own keys and values behind their contexts."""
        new = new_keys_values(heads, heads.shape[0], self.config.num_kv_heads)
        if len(blocks.contexts) == 1:
            context = blocks.contexts[0]
            blocks.pool.write(layer_idx, context.base + context.context_len, new)
        else:
            blocks.pool.scatter(layer_idx, blocks.pool_rows, new)

    def _attend(
        self, heads: Float[Tensor, "rows heads dim"], blocks: "_Blocks", layer_idx: int
    ) -> Float[Tensor, "rows width"]:
        contexts = blocks.contexts
        masks = blocks.masks[self.config.mask_rule(layer_idx)]
        width = contexts[0].num_rows
        parts: list[Tensor] = []
        for place, (context, mask) in enumerate(zip(contexts, masks, strict=True)):
            first = mask.first_key
            kept = blocks.pool.keys_values(layer_idx, context.base + first, context.end - first)
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


@dataclass(frozen=True, slots=True)
class _Blocks:
    """What every layer of a pass needs to know of the blocks in it."""

    contexts: Sequence[Segment]
    pool: TokenPool
    pool_rows: Int[Tensor, " rows"]
    by: Rotation
    masks: Mapping[MaskRule, Sequence[KeyMask]]


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

    def propose(self, anchor: int, width: int) -> DraftLogits | DraftLattice:
        drafter = self._drafter.drafter
        usable = drafter.usable_width(self._context_len, width)
        if usable < 2:
            return drafter.no_draft()
        context = Segment(0, self._context_len, usable)
        if self._drafter.has_selector:
            return self._drafter.draft_lattices([anchor], [context], self._pool)[0]
        logits = self._drafter.draft([anchor], [context], self._pool)
        return DraftLogits(drafter.over_target_vocabulary(logits))
