"""An EAGLE-3 drafter's chain written once more: every row of every step anew, no cache."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from blockdraft.drafter.eagle3_config import Eagle3Config


def random_state(shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, Tensor]:
    """Weights of every shape in float64, norms away from 1."""
    generator = torch.Generator().manual_seed(seed)
    state: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        state[name] = 1 + 0.3 * noise if len(shape) == 1 else 0.4 * noise
    return state


def oracle_drafts(
    config: Eagle3Config,
    state: Mapping[str, Tensor],
    table: Tensor,
    ids: Sequence[int],
    features: Tensor,
    num_drafts: int,
    d2t: Tensor | None = None,
) -> list[int]:
    """The drafts after `ids`, whose last one is the anchor; `features` are of the others."""
    tokens = [table[token_id] for token_id in ids[1:]]
    states = list(features @ state["fc.weight"].T)
    drafts: list[int] = []
    while len(drafts) < num_drafts:
        last = layer(config, state, torch.stack(tokens), torch.stack(states))[-1]
        logits = state["lm_head.weight"] @ norm(last, state["norm.weight"], config.rms_norm_eps)
        best = int(logits.argmax())
        best += 0 if d2t is None else int(d2t[best])
        drafts.append(best)
        tokens.append(table[best])
        states.append(last)
    return drafts


def layer(
    config: Eagle3Config, state: Mapping[str, Tensor], tokens: Tensor, states: Tensor
) -> Tensor:
    """The layer's outputs of all rows [rows, hidden]."""
    own = {name.removeprefix("midlayer."): weight for name, weight in state.items()}
    eps, rows = config.rms_norm_eps, len(tokens)
    normed = norm(states, own["hidden_norm.weight"], eps)
    x = torch.cat((norm(tokens, own["input_layernorm.weight"], eps), normed), 1)
    q, k, v = (
        (x @ own[f"self_attn.{part}_proj.weight"].T).view(1, rows, -1, config.head_dim)
        for part in "qkv"
    )
    q, k = (turned(part.transpose(1, 2), config.rope.theta) for part in (q, k))
    groups = config.num_heads // config.num_kv_heads
    k, v = (part.repeat_interleave(groups, 1) for part in (k, v.transpose(1, 2)))
    scores = q @ k.transpose(2, 3) / config.head_dim**0.5
    hidden = torch.ones(rows, rows, dtype=torch.bool).triu(1)
    attended = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
    states = normed if config.norm_before_residual else states
    states = states + attended.transpose(1, 2).reshape(rows, -1) @ own["self_attn.o_proj.weight"].T
    y = norm(states, own["post_attention_layernorm.weight"], eps)
    gate = functional.silu(y @ own["mlp.gate_proj.weight"].T)
    return states + (gate * (y @ own["mlp.up_proj.weight"].T)) @ own["mlp.down_proj.weight"].T


def turned(heads: Tensor, theta: float) -> Tensor:
    """Pairs (i, i + dim / 2) of [.., rows, dim] as complex numbers, rotated by their positions."""
    rows, half = heads.shape[-2], heads.shape[-1] // 2
    speeds = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(rows, dtype=torch.float64)[:, None] * speeds
    pairs = torch.complex(heads[..., :half], heads[..., half:])
    spun = pairs * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((spun.real, spun.imag), -1)


def norm(states: Tensor, weight: Tensor, eps: float) -> Tensor:
    return states * torch.rsqrt(states.square().mean(-1, keepdim=True) + eps) * weight
