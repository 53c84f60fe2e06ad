"""What a model remembers, layer by layer, and an empty cache that can be rolled back exactly.

It cuts nothing back (`rollback.py`, `recurrent.py`) and runs no model. `Any` is tolerated in this
file because transformers is untyped.
"""

from typing import Any, Literal, cast

from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, LinearAttentionAndFullAttentionLayer

from blockdraft.errors import UnsupportedTarget
from blockdraft.target.rollback import KVCache

LayerKind = Literal["full", "window", "indexed", "recurrent", "mixed", "mixed_window", "none"]
"""`mixed` layers keep keys and a recurrent state; `none` keeps nothing or another layer's keys."""

KIND_OF: dict[str, LayerKind] = {
    "DynamicLayer": "full",
    "DynamicSlidingWindowLayer": "window",
    "DynamicIndexedLayer": "indexed",
    "LinearAttentionLayer": "recurrent",
    "LinearAttentionAndFullAttentionLayer": "mixed",
    "LinearAttentionAndSlidingWindowAttentionLayer": "mixed_window",
    "DummyLayer": "none",
}
"""By name, because the oldest transformers that we claim lacks the last one."""

RECURRENT_KINDS: tuple[LayerKind, ...] = ("recurrent", "mixed", "mixed_window")


def layer_kinds(name: str, config: Any) -> tuple[LayerKind, ...]:
    """The kinds of the cache layers that transformers itself would make for this configuration.

    Raises UnsupportedTarget for a layer that can't be cut back here.
    """
    try:
        layers: list[Any] = list(DynamicCache(config=config).layers)
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise refuse(name, f"its cache can't be told from its configuration ({error!r})") from error
    kinds: list[LayerKind] = []
    for layer in layers:
        kind = KIND_OF.get(type(layer).__name__)
        if kind is None:
            raise refuse(
                name,
                f"it needs a cache of kind {type(layer).__name__}, which can't be cut back here",
            )
        kinds.append(kind)
    return tuple(kinds)


def new_cache(config: Any) -> KVCache:
    """An empty cache for a model of this configuration that keeps every key and value.

    Window layers are replaced by ones without a window, on purpose: they would throw old keys away
    and could not be rolled back by more rows than they kept. The sliding *mask* comes from the
    configuration, so nothing changes but memory.
    """
    cache = DynamicCache(config=config)
    layers = cast("list[Any]", cache.layers)
    for index, layer in enumerate(layers):
        kind = KIND_OF.get(type(layer).__name__)
        if kind == "window":
            layers[index] = DynamicLayer()
        elif kind == "mixed_window":
            layers[index] = LinearAttentionAndFullAttentionLayer(
                number_of_states=layer.number_of_states
            )
    return cast(KVCache, cache)


def refuse(name: str, reason: str) -> UnsupportedTarget:
    """The error for a model that can't be decoded losslessly here."""
    return UnsupportedTarget(
        f"{name} can't be decoded losslessly here: {reason}. Use a decoder-only model whose state "
        "can be rolled back (docs/targets.md lists the families)"
    )
