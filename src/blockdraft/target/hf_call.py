"""One forward pass of a transformers causal language model, whatever version spells its keywords.

`Any` stops here: transformers is untyped, what goes in and comes out is not. It keeps no state.
"""

import inspect
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from blockdraft.errors import UnsupportedTarget
from blockdraft.target.caches import new_cache
from blockdraft.target.families import FamilyTraits, text_config
from blockdraft.target.rollback import KVCache

CACHE_KEYWORDS = ("cache", "past_key_values", "cache_params")
"""Newest first: transformers 5.24 renamed the other two and warns about the old names."""


class ModelCall:
    """Calls `model.forward` with batch size 1."""

    def __init__(self, model: Any, traits: FamilyTraits | None = None) -> None:
        """`traits` None = a plain decoder. Raises UnsupportedTarget for a model whose forward
        takes no cache.
        """
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
        # A wrapper would go on counting from the images of whatever it was last asked, and some
        # hybrids count the tokens of their first layer, which keeps none (Bamba).
        self.needs_positions = (
            self.takes_positions and traits is not None and (traits.wrapper or traits.recurrent)
        )
        self._keeps_by_index = traits is not None and traits.shares_keys

    def new_cache(self) -> KVCache:
        """An empty cache that keeps what exact roll back needs; see `caches.py`."""
        return new_cache(text_config(self._model))

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
        if position_ids is None and self.needs_positions:
            assert cache is None, "this model must be told where the rows of a cached pass stand"
            position_ids = torch.arange(ids.numel(), device=ids.device)
        if position_ids is not None:
            kwargs["position_ids"] = position_ids[None]
        if mask is not None:
            kwargs["attention_mask"] = mask[None, None]
        if last_only and self._keeps_logits:
            # A count would let layers that share keys skip rows, and they may be tapped.
            last = torch.tensor([ids.numel() - 1], device=ids.device)
            kwargs["logits_to_keep"] = last if self._keeps_by_index else 1
        with torch.no_grad():
            logits: Tensor = self._model(input_ids=ids[None], **kwargs).logits[0]
        return logits[-1:] if last_only else logits
