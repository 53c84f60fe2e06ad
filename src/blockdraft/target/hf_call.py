"""One forward pass of a transformers causal language model, whatever version spells its keywords.

`Any` stops here: transformers is untyped, what goes in and comes out is not. It keeps no state.
"""

import inspect
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import DynamicCache

from blockdraft.errors import UnsupportedTarget
from blockdraft.target.rollback import KVCache

CACHE_KEYWORDS = ("cache", "past_key_values")
"""Newest first: transformers 5.24 renamed `past_key_values` and warns about the old name."""


class ModelCall:
    """Calls `model.forward` with batch size 1."""

    def __init__(self, model: Any) -> None:
        """Raises UnsupportedTarget for a model whose forward takes no key/value cache."""
        parameters = inspect.signature(model.forward).parameters
        spelled = [keyword for keyword in CACHE_KEYWORDS if keyword in parameters]
        if not spelled:
            raise UnsupportedTarget(
                f"{type(model).__name__} takes no key/value cache, so drafts can't be rolled back: "
                "use a decoder-only attention model"
            )
        self._model = model
        self._cache_keyword = spelled[0]
        self._keeps_logits = "logits_to_keep" in parameters
        self.takes_positions = "position_ids" in parameters

    def new_cache(self) -> KVCache:
        """An empty cache that keeps every key and value of every layer.

        Made without the model's config on purpose: with it, sliding-window layers would throw old
        keys away and could not be rolled back exactly. The sliding *mask* still comes from the
        config, so nothing changes but memory.
        """
        return cast(KVCache, DynamicCache())

    def __call__(
        self,
        ids: Int[Tensor, " rows"],
        cache: KVCache | None,
        *,
        last_only: bool = False,
        position_ids: Int[Tensor, " rows"] | None = None,
        mask: Float[Tensor, "rows keys"] | None = None,
    ) -> Float[Tensor, "kept vocab"]:
        """Feed `ids`, append their keys and values to `cache`, return the logits.

        `mask` is additive and replaces the causal one. Gradients are off.
        """
        kwargs: dict[str, Any] = {"use_cache": cache is not None}
        if cache is not None:
            kwargs[self._cache_keyword] = cache
        if position_ids is not None:
            kwargs["position_ids"] = position_ids[None]
        if mask is not None:
            kwargs["attention_mask"] = mask[None, None]
        if last_only and self._keeps_logits:
            kwargs["logits_to_keep"] = 1
        with torch.no_grad():
            logits: Tensor = self._model(input_ids=ids[None], **kwargs).logits[0]
        return logits[-1:] if last_only else logits
