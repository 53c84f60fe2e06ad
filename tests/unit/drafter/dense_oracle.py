"""A block drafter's pass written once more: no cache, no chunks, masks asked for entry by entry.

Weights are read from the model by their published names; rotary angles are those of transformers.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional
from transformers import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from blockdraft.drafter import BlockDrafter, DrafterConfig


def oracle_hidden(
    model: BlockDrafter, features: Tensor, embeddings: Tensor, *, window: int | None = None
) -> Tensor:
    """Final-normed states [width, hidden] of a block after all of `features` [context, taps *
    hidden]; `embeddings` [width, hidden] are the block's. `window` replaces the configured one."""
    config, weights = model.config, dict(model.named_parameters())
    eps = config.rms_norm_eps
    context = norm(features @ weights["fc.weight"].T, weights["hidden_norm.weight"], eps)
    cos, sin = angles(config, len(features) + len(embeddings), features.dtype)
    states = embeddings
    for place in range(config.num_layers):
        own = {
            name.removeprefix(f"layers.{place}."): weight
            for name, weight in weights.items()
            if name.startswith(f"layers.{place}.")
        }
        mask = dense_mask(config, place, len(features), len(embeddings), window)
        x = norm(states, own["input_layernorm.weight"], eps)
        y, after = convolved(x, own, "attention_conv")
        states = states + after(attention(config, own, context, y, (cos, sin), mask))
        x = norm(states, own["post_attention_layernorm.weight"], eps)
        y, after = convolved(x, own, "mlp_conv")
        gate = functional.silu(y @ own["mlp.gate_proj.weight"].T)
        fed = (gate * (y @ own["mlp.up_proj.weight"].T)) @ own["mlp.down_proj.weight"].T
        states = states + after(fed)
    return norm(states, weights["norm.weight"], eps)


def dense_mask(
    config: DrafterConfig, place: int, context_len: int, width: int, window: int | None
) -> Tensor:
    """[width, context_len + width], entry by entry, from the words of the notes (1.4)."""
    sliding = config.layer_types[place] == "sliding_attention"
    span = window or config.sliding_window
    causal = sliding if config.is_causal is None else config.is_causal
    rows: list[list[bool]] = []
    for query in range(context_len, context_len + width):
        row: list[bool] = []
        for key in range(context_len + width):
            seen = True
            if sliding:
                assert span is not None
                seen = query - key < span and (causal or key - query < span)
            if causal and key > query:
                seen = False
            row.append(seen)
        rows.append(row)
    return torch.tensor(rows)


def attention(
    config: DrafterConfig,
    own: Mapping[str, Tensor],
    context: Tensor,
    block: Tensor,
    by: tuple[Tensor, Tensor],
    mask: Tensor,
) -> Tensor:
    """Softmax attention of `block` over `context` and `block`, head by head."""
    cos, sin = by
    dim, eps = config.head_dim, config.rms_norm_eps
    rows = torch.cat((context, block))
    queries = (block @ own["self_attn.q_proj.weight"].T).view(len(block), -1, dim)
    keys = (rows @ own["self_attn.k_proj.weight"].T).view(len(rows), -1, dim)
    values = (rows @ own["self_attn.v_proj.weight"].T).view(len(rows), -1, dim)
    queries = norm(queries, own["self_attn.q_norm.weight"], eps)
    keys = norm(keys, own["self_attn.k_norm.weight"], eps)
    queries = turned(queries, cos[-len(block) :], sin[-len(block) :])
    keys = turned(keys, cos, sin)
    heads: list[Tensor] = []
    for head in range(config.num_heads):
        pair = head * config.num_kv_heads // config.num_heads
        scores = queries[:, head] @ keys[:, pair].T / dim**0.5
        weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
        heads.append(weights @ values[:, pair])
    return torch.cat(heads, dim=-1) @ own["self_attn.o_proj.weight"].T


class _After:
    """The convolution behind a sublayer, or nothing."""

    def __init__(self, kernel: Tensor | None) -> None:
        self.kernel = kernel

    def __call__(self, states: Tensor) -> Tensor:
        return states if self.kernel is None else mixed(states, self.kernel)


def convolved(x: Tensor, own: Mapping[str, Tensor], name: str) -> tuple[Tensor, _After]:
    """`x` after the first convolution of DFlash 2, and the second one (notes, 3.3)."""
    if f"{name}.base_kernel" not in own:
        return x, _After(None)
    base = own[f"{name}.base_kernel"]
    dynamic = x @ own[f"{name}.kernel_projection.weight"].T
    groups = dynamic.shape[-1] // (2 * base.shape[1])
    dynamic = dynamic.view(len(x), 2, base.shape[1], groups)
    kernels = base + dynamic.repeat_interleave(x.shape[-1] // groups, dim=-1)
    return mixed(x, kernels[:, 0]), _After(kernels[:, 1])


def mixed(states: Tensor, kernel: Tensor) -> Tensor:
    """Row t is the sum of kernel[t, tap] * states[t - tap]; zeros before the first row."""
    out = torch.zeros_like(states)
    for row in range(len(states)):
        for tap in range(min(kernel.shape[1], row + 1)):
            out[row] += kernel[row, tap] * states[row - tap]
    return out


def angles(config: DrafterConfig, num_rows: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """transformers' cosines and sines of positions 0.., each [rows, head_dim]."""
    rope = config.rope
    parameters: dict[str, object] = {"rope_type": rope.rope_type, "rope_theta": rope.theta}
    if rope.rope_type == "yarn":
        parameters |= {
            "factor": rope.factor,
            "original_max_position_embeddings": rope.original_max_position_embeddings,
            "truncate": rope.truncate,
        }
        for name in ("mscale", "mscale_all_dim", "attention_factor"):
            figure: object = getattr(rope, name)
            if figure is not None:
                parameters[name] = figure
    described = Qwen3Config(
        head_dim=config.head_dim,
        hidden_size=config.hidden_size,
        num_attention_heads=config.num_heads,
        max_position_embeddings=config.max_position_embeddings,
        rope_parameters=parameters,
    )
    cos, sin = Qwen3RotaryEmbedding(described)(
        torch.zeros(1, dtype=dtype), torch.arange(num_rows)[None]
    )
    return cos[0], sin[0]


def turned(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """[rows, heads, dim] turned by the angles of their rows."""
    half = heads.shape[-1] // 2
    other = torch.cat((-heads[..., half:], heads[..., :half]), dim=-1)
    return heads * cos[:, None] + other * sin[:, None]


def norm(states: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm over the last dimension."""
    return weight * states / (states.pow(2).mean(-1, keepdim=True) + eps).sqrt()
