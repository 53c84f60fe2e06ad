"""Keys and values of committed context, one buffer a layer, rows of different lengths.

It computes nothing and never holds a block's own keys and values: those die with the pass.

Token ranges of one batch row, half-open:

    [0, length)             committed context, written once by `append`
    [length, capacity)      unused, masked out; always finite, since 0 * NaN would not be 0
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from blockdraft.drafter.attention import KeyValues
from blockdraft.drafter.config import DrafterConfig

_FIRST_CAPACITY = 64


class ContextCache:
    """The context memory of `batch_size` requests. Grows by doubling; shrinks only by `reset`."""

    def __init__(
        self,
        config: DrafterConfig,
        batch_size: int = 1,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        shape = (batch_size, config.num_kv_heads, 0, config.head_dim)
        self._lengths = [0] * batch_size
        self._layers = [
            KeyValues(
                torch.empty(shape, dtype=dtype, device=device),
                torch.empty(shape, dtype=dtype, device=device),
            )
            for _ in range(config.num_layers)
        ]

    @property
    def lengths(self) -> tuple[int, ...]:
        """Committed tokens of each batch row."""
        return tuple(self._lengths)

    @property
    def capacity(self) -> int:
        """Tokens a row can hold before the buffers grow again."""
        return self._layers[0].keys.shape[2]

    def append(self, layers: Sequence[KeyValues], counts: Sequence[int]) -> None:
        """Commit the first `counts[b]` of the new rows of each batch row b, in every layer."""
        assert len(layers) == len(self._layers) and len(counts) == len(self._lengths)
        assert all(0 <= count <= layers[0].keys.shape[2] for count in counts)
        ends = [length + count for length, count in zip(self._lengths, counts, strict=True)]
        if max(ends) > self.capacity:
            self._grow(max(ends))
        for kept, new in zip(self._layers, layers, strict=True):
            for row, (start, end) in enumerate(zip(self._lengths, ends, strict=True)):
                kept.keys[row, :, start:end] = new.keys[row, :, : end - start]
                kept.values[row, :, start:end] = new.values[row, :, : end - start]
        self._lengths = ends

    def context(self, layer_idx: int) -> KeyValues:
        """Views of one layer's buffers, cut to the longest row; shorter rows end in padding."""
        longest = max(self._lengths)
        kept = self._layers[layer_idx]
        return KeyValues(kept.keys[:, :, :longest], kept.values[:, :, :longest])

    def crop(self, row: int, length: int) -> None:
        """Forget all but the first `length` tokens of batch row `row`; the buffers stay."""
        end = self._lengths[row]
        assert 0 <= length <= end
        for kept in self._layers:
            kept.keys[row, :, length:end] = 0
            kept.values[row, :, length:end] = 0
        self._lengths[row] = length

    def reset(self) -> None:
        """Forget every token and give the buffers back."""
        self._lengths = [0] * len(self._lengths)
        self._layers = [
            KeyValues(kept.keys[:, :, :0].clone(), kept.values[:, :, :0].clone())
            for kept in self._layers
        ]

    def _grow(self, needed: int) -> None:
        capacity = max(needed, 2 * self.capacity, _FIRST_CAPACITY)
        # One layer at a time: the old buffer of a layer is freed before the next one is copied.
        for layer_idx, kept in enumerate(self._layers):
            self._layers[layer_idx] = KeyValues(
                _enlarged(kept.keys, capacity), _enlarged(kept.values, capacity)
            )


def _enlarged(buffer: Tensor, capacity: int) -> Tensor:
    shape = (*buffer.shape[:2], capacity, buffer.shape[3])
    larger = torch.zeros(shape, dtype=buffer.dtype, device=buffer.device)
    larger[:, :, : buffer.shape[2]] = buffer
    return larger
