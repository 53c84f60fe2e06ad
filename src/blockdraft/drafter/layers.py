"""The two position-wise blocks of a drafter layer: RMS norm and the gated feed-forward.

Attention lives in `attention.py`; parameter names are the published ones.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last dimension, the division in fp32 or wider."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, states: Float[Tensor, "*rows size"]) -> Float[Tensor, "*rows size"]:
        wide = states.to(torch.promote_types(states.dtype, torch.float32))
        normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        # The product with the weight is taken after the cast, as the reference does. In training
        # the weight is a float32 master, which must not widen what follows.
        return self.weight.to(states.dtype) * normed.to(states.dtype)


class GatedMLP(nn.Module):
    """down(silu(gate x) * up x), without biases."""

    def __init__(self, hidden_size: int, intermediate_size: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=False)

    def forward(self, states: Float[Tensor, "*rows hidden"]) -> Float[Tensor, "*rows hidden"]:
        gate: Tensor = self.gate_proj(states)
        up: Tensor = self.up_proj(states)
        down: Tensor = self.down_proj(functional.silu(gate) * up)
        return down
