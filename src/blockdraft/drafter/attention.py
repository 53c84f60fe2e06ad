"""Attention of a block's rows over the injected context and the block itself.

It neither stores the context (`cache.py`) nor decides which tokens belong to it. Formulas and a
picture of the masks are in docs/algorithm.md, "The drafter".

Shape legend: batch, kv = key/value heads, heads = query heads, context = padded context columns,
width = block rows, rows = tokens of either kind, dim = head_dim.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from blockdraft.drafter.config import DrafterConfig, MaskRule
from blockdraft.drafter.layers import RMSNorm
from blockdraft.drafter.rope import Rotation, rotate


class KeyValues(NamedTuple):
    """Keys (normed and rotated) and values of the same rows."""

    keys: Float[Tensor, "batch kv rows dim"]
    values: Float[Tensor, "batch kv rows dim"]


def block_mask(
    lengths: Int[Tensor, " batch"], context_len: int, width: int, rule: MaskRule
) -> Bool[Tensor, "batch width keys"]:
    """True where a block row may look; keys = context_len + width.

    Batch row b's context is positions [0, lengths[b]) in the first columns (later ones are
    padding); its block is positions [lengths[b], lengths[b] + width), in the last `width` columns.
    """
    columns = torch.arange(context_len, device=lengths.device)
    slots = torch.arange(width, device=lengths.device)
    block_positions = lengths[:, None] + slots
    key_positions = torch.cat((columns.expand(len(lengths), -1), block_positions), dim=1)
    distance = block_positions[:, :, None] - key_positions[:, None, :]
    mask = torch.ones_like(distance, dtype=torch.bool)
    if rule.causal:
        mask &= distance >= 0
    if rule.window is not None:
        mask &= distance.abs() < rule.window
    mask[:, :, :context_len] &= (columns < lengths[:, None])[:, None, :]
    return mask


def sees_everything(lengths: Sequence[int], width: int, rule: MaskRule) -> bool:
    """Whether `block_mask` would be all True, so that it need not be built."""
    if rule.causal and width > 1:
        return False
    if any(length != lengths[0] for length in lengths):
        return False
    return rule.window is None or lengths[0] + width <= rule.window


class BlockAttention(nn.Module):
    """Grouped-query attention with per-head q/k norms; context and block share k and v weights."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        hidden, dim, bias = config.hidden_size, config.head_dim, config.attention_bias
        self.head_dim = dim
        self.q_proj = nn.Linear(hidden, config.num_heads * dim, bias=bias)
        self.k_proj = nn.Linear(hidden, config.num_kv_heads * dim, bias=bias)
        self.v_proj = nn.Linear(hidden, config.num_kv_heads * dim, bias=bias)
        self.o_proj = nn.Linear(config.num_heads * dim, hidden, bias=bias)
        self.q_norm = RMSNorm(dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(dim, config.rms_norm_eps)
        self.num_groups = config.num_heads // config.num_kv_heads

    def key_values(self, states: Float[Tensor, "batch rows hidden"], by: Rotation) -> KeyValues:
        """Keys and values of context features or of normed block states, at `by`'s positions."""
        keys: Tensor = self.k_norm(self._heads(self.k_proj(states)))
        values = self._heads(self.v_proj(states))
        return KeyValues(rotate(keys.transpose(1, 2), by), values.transpose(1, 2))

    def forward(
        self,
        states: Float[Tensor, "batch width hidden"],
        by: Rotation,
        context: KeyValues,
        mask: Bool[Tensor, "batch width keys"] | None,
    ) -> Float[Tensor, "batch width hidden"]:
        """Attend from the block's rows to `context` and to the block; `mask` None = see all."""
        queries: Tensor = self.q_norm(self._heads(self.q_proj(states)))
        block = self.key_values(states, by)
        keys = torch.cat((context.keys, block.keys), dim=2)
        values = torch.cat((context.values, block.values), dim=2)
        attended = functional.scaled_dot_product_attention(
            rotate(queries.transpose(1, 2), by),
            keys,
            values,
            attn_mask=None if mask is None else mask.unsqueeze(1),
            enable_gqa=self.num_groups > 1,
        )
        output: Tensor = self.o_proj(attended.transpose(1, 2).flatten(2))
        return output

    def _heads(self, projected: Tensor) -> Tensor:
        # The count is spelled out: -1 is ambiguous for a chunk without rows.
        num_heads = projected.shape[-1] // self.head_dim
        return projected.view(*projected.shape[:-1], num_heads, self.head_dim)
