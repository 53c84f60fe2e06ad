"""`TokenPool`: keys and values of many requests in one tensor, addressed by rows.

It owns memory only; who holds which rows is decided by its callers (the engine's extents, or a
single state that owns them all).

Rows of one request, half-open, `base` = the first row of its extent:

    [base, base + context_len)             committed tokens
    [base + context_len, + pending)        rows of the pass that is being verified
    [.., base + capacity)                  unused
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor


class KeyValues(NamedTuple):
    """Keys and values of consecutive rows of one layer."""

    keys: Float[Tensor, "1 kv rows dim"]
    values: Float[Tensor, "1 kv rows dim"]


class TokenPool:
    """Keys and values, [layers, 2, kv heads, rows, head_dim] (index 0 = keys, 1 = values)."""

    def __init__(
        self,
        *,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        num_rows: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        shape = (num_layers, 2, num_kv_heads, num_rows, head_dim)
        # Not zeroed: memory that no token has used yet is not taken from the system.
        self.tensor = torch.empty(shape, dtype=dtype, device=device)

    @property
    def num_rows(self) -> int:
        return self.tensor.shape[3]

    @property
    def bytes_per_token(self) -> int:
        layers, two, heads, _, dim = self.tensor.shape
        return layers * two * heads * dim * self.tensor.element_size()

    def layer(self, layer_idx: int) -> Float[Tensor, "2 kv rows dim"]:
        """A view of one layer's keys and values."""
        return self.tensor[layer_idx]

    def keys_values(self, layer_idx: int, first: int, count: int) -> KeyValues:
        """Views of `count` rows of one layer.

        Made in one operation each: slicing step by step costs several, in every layer.
        """
        per_layer, per_kind, per_head, per_row, _ = self.tensor.stride()
        shape = (1, self.tensor.shape[2], count, self.tensor.shape[4])
        stride = (per_kind, per_head, per_row, 1)
        offset = layer_idx * per_layer + first * per_row
        return KeyValues(
            self.tensor.as_strided(shape, stride, offset),
            self.tensor.as_strided(shape, stride, offset + per_kind),
        )

    def in_layers(self, first: int, count: int) -> tuple[Float[Tensor, "2 kv rows dim"], ...]:
        """Views of `count` rows, one for each layer."""
        return self.tensor[:, :, :, first : first + count].unbind(0)

    def write(self, layer_idx: int, first: int, new: Float[Tensor, "rows 2 kv dim"]) -> None:
        """Write keys and values of consecutive rows."""
        per_layer, per_kind, per_head, per_row, _ = self.tensor.stride()
        stride = (per_row, per_kind, per_head, 1)
        offset = layer_idx * per_layer + first * per_row
        self.tensor.as_strided(new.shape, stride, offset).copy_(new)

    def scatter(
        self, layer_idx: int, rows: Int[Tensor, " rows"], new: Float[Tensor, "rows 2 kv dim"]
    ) -> None:
        """Write keys and values of any rows."""
        self.tensor[layer_idx].index_copy_(2, rows, new.permute(1, 2, 0, 3))

    def move(self, source: int, destination: int, count: int) -> None:
        """Copy `count` rows; the ranges may overlap."""
        if count == 0 or source == destination:
            return
        rows = self.tensor[:, :, :, source : source + count]
        overlap = abs(source - destination) < count
        self.tensor[:, :, :, destination : destination + count] = rows.clone() if overlap else rows

    def gather(self, start: int, rows: Sequence[int]) -> None:
        """Put the rows start + rows[0], start + rows[1], .. at start, start + 1, .."""
        if list(rows) == list(range(len(rows))):
            return
        index = torch.tensor(rows, device=self.tensor.device) + start
        self.tensor[:, :, :, start : start + len(rows)] = self.tensor.index_select(3, index)

    def grow(self, num_rows: int) -> None:
        """Enlarge to at least `num_rows`, by doubling; contents stay where they are."""
        if num_rows <= self.num_rows:
            return
        shape = list(self.tensor.shape)
        shape[3] = max(num_rows, 2 * self.num_rows)
        larger = torch.empty(shape, dtype=self.tensor.dtype, device=self.tensor.device)
        larger[:, :, :, : self.num_rows] = self.tensor
        self.tensor = larger
