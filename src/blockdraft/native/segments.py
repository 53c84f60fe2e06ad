"""`Segment`: the rows that one request has in a pass, and how the segments of a pass lie in it.

Plain numbers and index tensors; nothing is computed with a model here.

A pass is one flat list of rows, segment after segment. Its rows, half-open, for segment s:

    rows of the pass   [start_s, start_s + num_rows)
    rows of the pool   [base + context_len, base + context_len + num_rows)   written by the pass
                       [base, base + context_len)                            read by it
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from blockdraft.target.rows import depths


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows that follow a committed context of `context_len` tokens at pool row `base`.

    `parents` None is a chain; otherwise parents[i] < i is the row that row i follows, -1 for the
    context (an ancestor mask is made of it).
    """

    base: int
    context_len: int
    num_rows: int
    parents: tuple[int, ...] | None = None

    @property
    def end(self) -> int:
        """Keys of the context and of the segment itself."""
        return self.context_len + self.num_rows


class Layout:
    """Where the rows of a pass stand: positions, pool rows, spans. `num_padded` rows follow.

    Pad rows stand at position 0, are written nowhere and see nothing.
    """

    def __init__(self, segments: Sequence[Segment], num_padded: int, device: torch.device) -> None:
        self.segments = tuple(segments)
        self.num_rows = sum(segment.num_rows for segment in segments)
        self.num_padded = num_padded
        self.last_end = max(segment.end for segment in segments)
        self.starts: list[int] = []
        """The first row of each segment in the pass."""
        positions: list[int] = []
        pool_rows: list[int] = []
        for segment in segments:
            self.starts.append(len(positions))
            first = segment.context_len
            if segment.parents is None:
                positions += range(first, segment.end)
            else:
                positions += [first + depth for depth in depths(segment.parents)]
            pool_rows += range(segment.base + first, segment.base + segment.end)
        positions += [0] * num_padded
        self.positions: Int[Tensor, " rows"] = torch.tensor(positions, device=device)
        self.pool_rows: Int[Tensor, " rows"] = torch.tensor(pool_rows, device=device)
