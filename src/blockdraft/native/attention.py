"""Attention of a pass's segments, each over its own rows of the pool.

Masks and softmax only; projections are in `model.py`.

Shape legend: rows = tokens of one segment, kv = key/value heads, groups = query heads a kv head,
keys = context_len + rows, dim = head_dim.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from blockdraft.native.pool import KeyValues
from blockdraft.native.segments import Segment
from blockdraft.target.hf_attention import chunked_attention
from blockdraft.target.rows import visible

MASKED_ROWS = 64
"""Chains of more rows (prompts) are not worth keeping a mask for."""


class ChainMasks:
    """Causal masks of narrow chains as views of one growing tensor a width.

    The tensor for n rows is [n, room + n]: `room` columns that all rows see, then a triangle. Its
    last context_len + n columns are the mask of any context that fits.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._dtype = dtype
        self.device = device
        self._made: dict[int, Tensor] = {}

    def mask(self, num_rows: int, context_len: int) -> Float[Tensor, "rows keys"]:
        made = self._made.get(num_rows)
        room = -1 if made is None else made.shape[1] - num_rows
        if made is None or room < context_len:
            room = max(256, 2 * context_len)
            made = self._make(num_rows, room)
            self._made[num_rows] = made
        return made[:, room - context_len :]

    def _make(self, num_rows: int, room: int) -> Tensor:
        sees = torch.ones(num_rows, room + num_rows, dtype=torch.bool, device=self.device)
        return additive(sees.tril(room), self._dtype)


def additive(sees: Bool[Tensor, "rows keys"], dtype: torch.dtype) -> Float[Tensor, "rows keys"]:
    """0 where a row sees a key, -inf where not."""
    mask = torch.zeros(sees.shape, dtype=dtype, device=sees.device)
    return mask.masked_fill_(~sees, -torch.inf)


def sees_keys(segment: Segment, window: int | None) -> Bool[Tensor, "rows keys"]:
    """Who sees whom: context, ancestors and itself, nothing `window` or more positions back."""
    context_len = segment.context_len
    if segment.parents is None:
        sees = torch.ones(segment.num_rows, segment.end, dtype=torch.bool).tril(context_len)
    else:
        sees = visible(segment.parents, context_len)
    if window is not None:
        # A row's depth below the context is the number of its ancestors.
        depths = sees[:, context_len:].sum(1) - 1
        positions = torch.cat((torch.arange(context_len), context_len + depths))
        sees &= positions[context_len:, None] - positions < window
    return sees


class KeyMask(NamedTuple):
    """Which keys of a segment its rows see, made once a pass and shared by all layers alike.

    Keys before `first_key` are cut off. `mask` None = the rest is seen by all rows, or causally
    when `is_causal`.
    """

    first_key: int = 0
    mask: Float[Tensor, "rows keys"] | None = None
    is_causal: bool = False


class Span(NamedTuple):
    """A segment's rows in a pass, [start, start + num_rows), and the number of query heads."""

    start: int
    num_rows: int
    num_heads: int


def key_mask(
    segment: Segment, window: int | None, chains: ChainMasks, dtype: torch.dtype
) -> KeyMask:
    """The mask of a target's segment in layers of one window."""
    if segment.num_rows == 1:
        # One row sees the whole of its window: the keys are cut instead of masked.
        return KeyMask(0 if window is None else max(0, segment.end - window))
    if segment.parents is None and (window is None or segment.end <= window):
        if segment.num_rows <= MASKED_ROWS:
            return KeyMask(mask=chains.mask(segment.num_rows, segment.context_len))
        if segment.context_len == 0:
            return KeyMask(is_causal=True)
    return KeyMask(mask=additive(sees_keys(segment, window), dtype).to(chains.device))


def attend(
    heads: Float[Tensor, "rows all_heads dim"], span: Span, kept: KeyValues, mask: KeyMask
) -> Float[Tensor, "fed width"]:
    """Softmax attention of one segment; width = query heads * dim.

    The query heads are the first of `heads`. A single row's are laid out as rows of their key/value
    head, so that its keys are read once for all of them.
    """
    per_row, dim = heads.stride(0), heads.shape[2]
    offset = heads.storage_offset() + span.start * per_row
    width = span.num_heads * dim
    if span.num_rows == 1:
        groups = span.num_heads // kept.keys.shape[1]
        shape = (1, kept.keys.shape[1], groups, dim)
        queries = heads.as_strided(shape, (per_row, groups * dim, dim, 1), offset)
        attended = functional.scaled_dot_product_attention(queries, kept.keys, kept.values)
        return attended.view(1, width)
    shape = (1, span.num_heads, span.num_rows, dim)
    queries = heads.as_strided(shape, (per_row, dim, per_row, 1), offset)
    attended = functional.scaled_dot_product_attention(
        queries,
        kept.keys,
        kept.values,
        attn_mask=mask.mask,
        is_causal=mask.is_causal,
        enable_gqa=kept.keys.shape[1] != span.num_heads,
    )
    return attended.transpose(1, 2).reshape(span.num_rows, width)


def attend_invariantly(
    queries: Float[Tensor, "rows heads dim"],
    kept: KeyValues,
    sees: Bool[Tensor, "fed keys"],
) -> Float[Tensor, "rows width"]:
    """Attention whose bits for a row do not depend on the keys behind it or the rows beside it.

    Rows behind the `fed` ones are padding. Slower than `attend`, and exact in the same sense as
    `target/hf_attention.py`, whose fixed chunks of keys it uses.
    """
    rows, heads, dim = queries.shape
    mask = functional.pad(additive(sees, queries.dtype), (0, 0, 0, rows - sees.shape[0]))
    attended, _ = chunked_attention(
        nn.Module(),
        queries.transpose(0, 1)[None],
        kept.keys,
        kept.values,
        mask.to(queries.device)[None, None],
    )
    return attended.reshape(rows, heads * dim)
