"""Cutting a transformers key/value cache back to the rows that were accepted.

It decides nothing: which rows stay is the caller's business, recurrent states are rolled back in
`recurrent.py`, and whether a model can be rolled back at all is checked in `support.py` when the
model is loaded.
"""

from collections.abc import Sequence
from typing import Protocol, cast, runtime_checkable

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer, LinearAttentionLayer


@runtime_checkable
class KVLayer(Protocol):
    """One layer's cache: keys and values of shape [batch, heads, length, head_dim]."""

    keys: Tensor
    values: Tensor

    def get_seq_length(self) -> int: ...

    def crop(self, tokens_to_remove: int) -> None: ...


@runtime_checkable
class KVCache(Protocol):
    """The part of transformers' `DynamicCache` that is used here."""

    @property
    def layers(self) -> Sequence[KVLayer]: ...

    def get_seq_length(self) -> int: ...

    def crop(self, tokens_to_remove: int) -> None: ...


def rows_held(cache: KVCache) -> int:
    """Tokens whose keys are in the cache, pending rows included; 0 when no layer keeps keys."""
    return max((layer.get_seq_length() for layer in _key_layers(cache)), default=0)


def cut_to(cache: KVCache, length: int) -> None:
    """Forget what lies behind the first `length` tokens, in every layer that keeps keys.

    Layers may hold different numbers of tokens, as after a pass that broke off between them.
    `crop` takes a negative count of tokens to remove in every transformers version we claim; its
    other spelling, a positive final length, was deprecated in 5.17 and is an error since 5.18.
    """
    for layer in _key_layers(cache):
        excess = layer.get_seq_length() - length
        if excess <= 0:
            continue
        if isinstance(layer, LinearAttentionLayer):
            # Its own `crop` would also cut the convolution state and leave the recurrent one.
            DynamicLayer.crop(cast(DynamicLayer, layer), -excess)
        else:
            layer.crop(-excess)


def keep_rows(cache: KVCache, context_len: int, rows: Sequence[int]) -> None:
    """Keep the context and, of the pending rows after it, exactly `rows` in that order.

    before: [0, context_len) context | [context_len, length) pending rows
    after:  [0, context_len) context | [context_len, context_len + len(rows)) the kept rows
    """
    if tuple(rows) == tuple(range(len(rows))):
        cut_to(cache, context_len + len(rows))
        return
    kept = torch.tensor([*range(context_len), *(context_len + row for row in rows)])
    for layer in _key_layers(cache):
        kept_here = kept.to(layer.keys.device)
        layer.keys = layer.keys.index_select(-2, kept_here)
        layer.values = layer.values.index_select(-2, kept_here)


def _key_layers(cache: KVCache) -> list[KVLayer]:
    """Without layers that are recurrent only, keep nothing, or were not used yet."""
    return [
        layer
        for layer in cache.layers
        if isinstance(layer, DynamicLayer) and cast("Tensor | None", layer.keys) is not None
    ]
