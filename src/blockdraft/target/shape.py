"""`DecoderShape`: the widths of a target's layers, for drafters that are made to fit it.

It reads a transformers configuration; families that lack a width say None there.
"""

from dataclasses import dataclass
from typing import Any, cast


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderShape:
    """What a drafter's layers take over from the target's. None = the configuration does not say.

    `rope_theta` is the base frequency without any scaling: a drafter is rotated plainly, whatever
    the target does for long contexts or for images.
    """

    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int | None
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int


def read_shape(config: Any) -> DecoderShape:
    """The shape in a transformers configuration (its text part, where it has several)."""
    config = config.get_text_config()
    heads = int(config.num_attention_heads)
    rope = getattr(config, "rope_parameters", None)
    theta: object = None
    if isinstance(rope, dict):
        theta = cast("dict[str, object]", rope).get("rope_theta")
    theta = theta or getattr(config, "rope_theta", None) or 10_000.0
    eps = getattr(config, "rms_norm_eps", None) or getattr(config, "layer_norm_eps", None) or 1e-6
    return DecoderShape(
        hidden_size=int(config.hidden_size),
        num_heads=heads,
        num_kv_heads=int(getattr(config, "num_key_value_heads", None) or heads),
        head_dim=int(getattr(config, "head_dim", None) or config.hidden_size // heads),
        intermediate_size=getattr(config, "intermediate_size", None),
        rms_norm_eps=float(eps),
        rope_theta=float(cast("float", theta)),
        max_position_embeddings=int(getattr(config, "max_position_embeddings", None) or 4096),
    )
