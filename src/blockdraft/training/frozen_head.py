"""`FrozenHead`: the target's LM head, or some of its rows, as a plain matrix for training.

The two seams give the head as a function only; a linear one is read off by feeding it the identity.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from blockdraft.decoding.interfaces import TargetModel
from blockdraft.errors import UnsupportedTarget

_PROBE_ROWS = 3
_TOLERANCE = 0.02


@dataclass(frozen=True, slots=True)
class FrozenHead:
    """logits = hidden @ weight.T + bias; no gradient reaches it."""

    weight: Float[Tensor, "vocab hidden"]
    bias: Float[Tensor, " vocab"] | None

    @property
    def dtype(self) -> torch.dtype:
        return self.weight.dtype

    def to(self, dtype: torch.dtype) -> "FrozenHead":
        """The same head in another dtype."""
        bias = None if self.bias is None else self.bias.to(dtype)
        return FrozenHead(self.weight.to(dtype), bias)

    def logits(self, hidden: Float[Tensor, "rows hidden"]) -> Float[Tensor, "rows vocab"]:
        """In fp32 or wider, from a product in the head's dtype."""
        made = functional.linear(hidden.to(self.dtype), self.weight, self.bias)
        return made.to(torch.promote_types(self.dtype, torch.float32))


@torch.no_grad()
def read_head(target: TargetModel, vocab_ids: Int[Tensor, " subset"] | None = None) -> FrozenHead:
    """The rows `vocab_ids` (None = all) of the target's head.

    Raises UnsupportedTarget for a head that is not linear, since its gradient is not known here.
    """
    head = target.head(vocab_ids)
    embedding = target.embed(torch.zeros(1, dtype=torch.long))
    hidden, device, dtype = target.spec.hidden_size, embedding.device, embedding.dtype
    offset = head(torch.zeros(1, hidden, device=device, dtype=dtype))[0].clone()
    columns = head(torch.eye(hidden, device=device, dtype=dtype))
    weight = (columns - offset).transpose(0, 1).contiguous()
    made = FrozenHead(weight, offset if bool(offset.any()) else None)
    probe = torch.randn(
        _PROBE_ROWS, hidden, generator=torch.Generator().manual_seed(0), dtype=torch.float32
    ).to(device, dtype)
    expected = head(probe).to(torch.float32)
    error = (made.logits(probe).to(torch.float32) - expected).abs().max()
    if float(error) > _TOLERANCE * max(1.0, float(expected.abs().max())):
        raise UnsupportedTarget(
            f"the LM head of {target.spec.name} is not linear (off by {float(error):.3g} on a "
            "trial), so a drafter can't be trained through it"
        )
    return made
