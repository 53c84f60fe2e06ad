"""Cosines and sines of positions as a growing table, laid out for one fused rotation of q, k and v.

The frequencies themselves come from the model (`weights.py`).
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

_FIRST_ROWS = 512


class Rotation(NamedTuple):
    """Factors for the heads of some rows; value heads are turned by nothing (cos 1, sin 0).

    The sign of rotate-half is inside `sin`: rotated = x * cos + roll(x, dim / 2) * sin.
    """

    cos: Float[Tensor, "rows heads dim"]
    sin: Float[Tensor, "rows heads dim"]


class RotaryTable:
    """Factors for every position so far, in the model's dtype but computed in float32.

    `scale` multiplies cosines and sines (YaRN's attention factor).
    """

    def __init__(
        self, inverse_frequencies: Float[Tensor, " freqs"], scale: float, dtype: torch.dtype
    ) -> None:
        self._inverse = inverse_frequencies.float()
        self._scale = scale
        self._dtype = dtype
        self._cos = self._sin = torch.empty(0)
        self._fill(_FIRST_ROWS)

    def rotation(
        self, positions: Int[Tensor, " rows"], num_turned: int, num_unturned: int
    ) -> Rotation:
        """Factors of `positions`, all within `reach`: heads that turn, then those that don't."""
        cos = self._cos.index_select(0, positions).unsqueeze(1)
        sin = self._sin.index_select(0, positions).unsqueeze(1)
        if num_unturned == 0:
            return Rotation(cos, sin)
        rows, dim = cos.shape[0], cos.shape[2]
        still = cos.new_ones(1, 1, 1).expand(rows, num_unturned, dim)
        return Rotation(
            torch.cat((cos.expand(-1, num_turned, -1), still), dim=1),
            torch.cat((sin.expand(-1, num_turned, -1), torch.zeros_like(still)), dim=1),
        )

    def reach(self, end: int) -> None:
        """Make the table cover positions [0, end); told by callers, who know it on the host."""
        if end > self._cos.shape[0]:
            self._fill(max(end, 2 * self._cos.shape[0]))

    def _fill(self, num_rows: int) -> None:
        positions = torch.arange(num_rows, device=self._inverse.device).to(self._inverse.dtype)
        angles = positions[:, None] * self._inverse
        cos, sin = angles.cos() * self._scale, angles.sin() * self._scale
        self._cos = torch.cat((cos, cos), dim=-1).to(self._dtype)
        self._sin = torch.cat((-sin, sin), dim=-1).to(self._dtype)


def rotate(heads: Float[Tensor, "rows heads dim"], by: Rotation) -> Float[Tensor, "rows heads dim"]:
    """Rotate each head's halves (GPT-NeoX layout)."""
    half = heads.shape[-1] // 2
    return torch.addcmul(heads * by.cos, heads.roll(half, -1), by.sin)
