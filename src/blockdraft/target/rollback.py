"""Cutting a transformers key/value cache back to the rows that were accepted.

It decides nothing: which rows stay is the caller's business, and whether a model's cache can be
cut at all is checked in `support.py` when the model is loaded.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class KVLayer(Protocol):
    """One layer's cache: keys and values of shape [batch, heads, length, head_dim]."""

    keys: Tensor
    values: Tensor


@runtime_checkable
class KVCache(Protocol):
    """The part of transformers' `DynamicCache` that is used here."""

    @property
    def layers(self) -> Sequence[KVLayer]: ...

    def get_seq_length(self) -> int: ...

    def crop(self, tokens_to_remove: int) -> None: ...


def drop_last(cache: KVCache, num_rows: int) -> None:
    """Forget the last `num_rows` tokens of every layer.

    `crop` takes a negative count of tokens to remove in every transformers version we claim; its
    other spelling, a positive final length, was deprecated in 5.17 and is an error since 5.18.
    """
    if num_rows > 0:
        cache.crop(-num_rows)


def keep_rows(cache: KVCache, context_len: int, rows: Sequence[int]) -> None:
    """Keep the context and, of the pending rows after it, exactly `rows` in that order.

    before: [0, context_len) context | [context_len, length) pending rows
    after:  [0, context_len) context | [context_len, context_len + len(rows)) the kept rows
    """
    if tuple(rows) == tuple(range(len(rows))):
        drop_last(cache, cache.get_seq_length() - context_len - len(rows))
        return
    kept = torch.tensor([*range(context_len), *(context_len + row for row in rows)])
    for layer in cache.layers:
        kept_here = kept.to(layer.keys.device)
        layer.keys = layer.keys.index_select(-2, kept_here)
        layer.values = layer.values.index_select(-2, kept_here)
