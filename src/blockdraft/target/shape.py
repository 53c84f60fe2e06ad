"""`DecoderShape`: the widths of a target's layers, for drafters that are made to fit it.

It reads a transformers configuration; families that lack a width say None there.
"""

from dataclasses import dataclass
from typing import Any, cast

from blockdraft.json_values import as_object
from blockdraft.target.families import read_attribute


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
    # Models without attention name no heads; 64 wide is what most others use.
    heads = int(read_attribute(config, "num_attention_heads") or max(1, config.hidden_size // 64))
    rope = as_object(getattr(config, "rope_parameters", None))
    # Where kinds of layers have tables of their own, a drafter goes by the full attention.
    table = as_object(rope.get("full_attention")) or rope
    theta = table.get("rope_theta") or getattr(config, "rope_theta", None) or 10_000.0
    eps = getattr(config, "rms_norm_eps", None) or getattr(config, "layer_norm_eps", None) or 1e-6
    return DecoderShape(
        hidden_size=int(config.hidden_size),
        num_heads=heads,
        num_kv_heads=int(read_attribute(config, "num_key_value_heads") or heads),
        head_dim=int(read_attribute(config, "head_dim") or config.hidden_size // heads),
        intermediate_size=_one_width(read_attribute(config, "intermediate_size")),
        rms_norm_eps=float(eps),
        rope_theta=float(cast("float", theta)),
        max_position_embeddings=int(getattr(config, "max_position_embeddings", None) or 4096),
    )


def _one_width(width: object) -> int | None:
    """Some families list one width a layer; the first stands for all."""
    if isinstance(width, list | tuple):
        return cast("list[int]", width)[0]
    return cast("int | None", width)
