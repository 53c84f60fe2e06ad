"""What differs from family to family among transformers models, and which families are refused.

Everything is read off the configuration and the classes; no model is run here. `Any` is tolerated
in this file because transformers is untyped.
"""

from dataclasses import dataclass
from typing import Any

from blockdraft.target.caches import RECURRENT_KINDS, LayerKind, layer_kinds, refuse
from blockdraft.target.hf_attention import register_chunked_attention

REFUSED: dict[str, str] = {
    "minimax": "the state of its lightning attention lies in a cache of its own, without roll back",
    "recurrent_gemma": "its recurrent state lies in its modules, where no request can own it",
    "rwkv": "its recurrent state is kept in no cache that transformers could roll back",
    "xlstm": "its recurrent state is kept in no cache that transformers could roll back",
    "deepseek_v4": "its compressed attention cache can't be cut back",
}
"""Model types whose transformers code keeps a state out of our reach, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyTraits:
    """How one model differs from a plain decoder with full attention.

    `wrapper`: the language model sits inside a multimodal one, which must be told the positions of
    plain text. `shares_keys`: the last layers reuse keys of earlier ones, and transformers then
    skips rows of them whose logits are not asked for by an index.
    """

    layer_kinds: tuple[LayerKind, ...]
    wrapper: bool
    shares_keys: bool

    @property
    def recurrent(self) -> bool:
        """Whether some layer keeps a state that no row can be taken out of."""
        return any(kind in RECURRENT_KINDS for kind in self.layer_kinds)

    @property
    def keeps_keys(self) -> bool:
        """Whether some layer is attention, alone or beside a recurrent state."""
        return any(kind not in ("recurrent", "none") for kind in self.layer_kinds)


def text_config(model: Any) -> Any:
    """The configuration of the language model itself, also inside a multimodal wrapper."""
    return model.config.get_text_config(decoder=True)


def read_family(name: str, model: Any) -> FamilyTraits:
    """The traits of `model`; UnsupportedTarget for one that can't be rolled back, with the reason.

    That the rest can be is tried out afterwards (`support.py`).
    """
    config: Any = model.config
    if getattr(config, "is_encoder_decoder", False):
        raise refuse(name, "it is an encoder-decoder model")
    text = text_config(model)
    for model_type in (config.model_type, text.model_type):
        reason = REFUSED.get(str(model_type).removesuffix("_text"))
        if reason is not None:
            raise refuse(name, reason)
    traits = FamilyTraits(
        layer_kinds=layer_kinds(name, text),
        wrapper=text is not config,
        shares_keys=bool(getattr(text, "num_kv_shared_layers", 0)),
    )
    if getattr(model, "_is_stateful", False) and not traits.recurrent:
        raise refuse(name, "it keeps a recurrent state outside of the cache")
    return traits


def why_no_trees(traits: FamilyTraits, model: Any) -> str | None:
    """Why this model can't be given a tree mask; None when it may be tried."""
    if traits.recurrent:
        return "its recurrent layers keep one state, which can't branch"
    if "window" in traits.layer_kinds:
        return "its sliding-window layers need a mask of their own"
    if "indexed" in traits.layer_kinds:
        return "the index of its sparse attention knows chains only"
    attention: str = text_config(model)._attn_implementation
    if attention not in ("eager", "sdpa", register_chunked_attention()):
        return f"attention {attention} takes no mask (load it with attn='sdpa')"
    return None


def why_not_invariant(traits: FamilyTraits) -> str | None:
    """Why this model can't be made batch-invariant; None when it may be tried."""
    if traits.recurrent:
        return (
            "its recurrent layers add up the rows of a pass in an order that depends on their "
            "number"
        )
    return None


def read_attribute(config: Any, name: str) -> Any:
    """An attribute of a configuration, None without it; the first layer's where layers differ."""
    try:
        return getattr(config, name, None)
    except RuntimeError:  # transformers raises one of its own kind for attributes of single layers
        return getattr(config.per_layer_config[0], name, None)
