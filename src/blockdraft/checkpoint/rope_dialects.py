"""RoPE parameters in the spellings of transformers 4 and 5, to and from `RopeConfig`.

It computes no frequencies; `drafter/rope.py` does.
"""

from dataclasses import fields
from typing import cast, get_args

from blockdraft.checkpoint.fields import Fields
from blockdraft.checkpoint.unsupported import JUDGED_KEYS, refuse_unsupported
from blockdraft.drafter.config import LayerType, RopeConfig, RopeType
from blockdraft.errors import CheckpointError, ConfigError


def parse_rope(top: Fields) -> RopeConfig:
    """Read `rope_parameters` (transformers 5) or `rope_theta` and `rope_scaling` (4).

    `rope_parameters` may be nested by layer type, and may lack a `rope_theta` that stands at the
    top level. Raises CheckpointError when two spellings or two layer types disagree, for an
    unsupported type and for an unknown key.
    """
    theta = top.optional_number("rope_theta")
    sections = [*_sections(top, "rope_parameters"), *_sections(top, "rope_scaling")]
    if not sections:
        return RopeConfig(theta=top.number("rope_theta"))
    ropes = [_parse_section(top, section) for section in sections]
    for section, rope in zip(sections, ropes, strict=True):
        if rope != ropes[0] or (theta is not None and rope.theta != theta):
            raise CheckpointError(
                f"{top.where}: '{section.prefix}*' contradicts another description of the rotary"
                " embedding in the file, expected one for all layers; correct the file"
            )
    return ropes[0]


def render_rope(rope: RopeConfig) -> dict[str, object]:
    """The `rope_parameters` object of transformers 5, without optional keys at their default."""
    rendered: dict[str, object] = {"rope_type": rope.rope_type, "rope_theta": rope.theta}
    for field in fields(rope):
        value = cast("object", getattr(rope, field.name))
        if field.name not in ("rope_type", "theta") and value != field.default:
            rendered[field.name] = value
    if rope.rope_type != "default":
        rendered["factor"] = rope.factor
    if rope.rope_type == "llama3":
        # transformers has no defaults for these two.
        rendered["low_freq_factor"] = rope.low_freq_factor
        rendered["high_freq_factor"] = rope.high_freq_factor
    return rendered


def _sections(top: Fields, name: str) -> list[Fields]:
    section = top.section(name)
    if section.is_empty():
        return []
    nested = [key for key in get_args(LayerType) if section.raw(key) is not None]
    if not nested:
        return [section]
    section.refuse_unread(frozenset())
    return [section.section(key) for key in nested]


def _parse_section(top: Fields, section: Fields) -> RopeConfig:
    refuse_unsupported(section)
    rope_type = _rope_type(section)
    theta = section.optional_number("rope_theta")
    original_len = _original_len(top, section, rope_type)
    defaults = RopeConfig()

    def number(name: str, default: float) -> float:
        value = section.optional_number(name)
        return default if value is None else value

    truncate = section.optional_flag("truncate")
    try:
        rope = RopeConfig(
            rope_type=rope_type,
            theta=top.number("rope_theta") if theta is None else theta,
            factor=_factor(top, section, rope_type, original_len),
            original_max_position_embeddings=original_len,
            attention_factor=section.optional_number("attention_factor"),
            # The reference takes 0 for these two as "not given".
            beta_fast=number("beta_fast", 0.0) or defaults.beta_fast,
            beta_slow=number("beta_slow", 0.0) or defaults.beta_slow,
            mscale=section.optional_number("mscale"),
            mscale_all_dim=section.optional_number("mscale_all_dim"),
            truncate=defaults.truncate if truncate is None else truncate,
            low_freq_factor=number("low_freq_factor", defaults.low_freq_factor),
            high_freq_factor=number("high_freq_factor", defaults.high_freq_factor),
        )
    except ConfigError as error:
        raise CheckpointError(f"{top.where}: {error}; correct the file") from error
    section.refuse_unread(JUDGED_KEYS)
    return rope


def _rope_type(section: Fields) -> RopeType:
    older = section.optional_text("type")
    name = section.optional_text("rope_type") or older or "default"
    for known in get_args(RopeType):
        if name == known:
            return cast("RopeType", known)
    raise section.wrong("rope_type", name, f"one of {', '.join(get_args(RopeType))}")


def _original_len(top: Fields, section: Fields, rope_type: RopeType) -> int | None:
    """The length before scaling; transformers falls back to the maximal one."""
    outer = top.optional_integer("original_max_position_embeddings")
    inner = section.optional_integer("original_max_position_embeddings")
    if outer is not None and inner is not None and outer != inner:
        raise section.wrong("original_max_position_embeddings", inner, f"{outer} as at the top")
    known = inner if outer is None else outer
    if known is None and rope_type in ("yarn", "llama3"):
        return top.integer("max_position_embeddings")
    return known


def _factor(top: Fields, section: Fields, rope_type: RopeType, original_len: int | None) -> float:
    factor = section.optional_number("factor")
    if factor is not None:
        return factor
    if rope_type == "default":
        return 1.0
    if rope_type == "yarn":
        return _yarn_factor(top, section, original_len)
    return section.number("factor")


def _yarn_factor(top: Fields, section: Fields, original_len: int | None) -> float:
    """The ratio of the lengths after and before scaling, which is the factor where none is given.

    Raises CheckpointError where they don't differ: a factor of 1, no scaling, is not meant.
    """
    max_len = top.integer("max_position_embeddings")
    if original_len is None or max_len <= original_len:
        raise CheckpointError(
            f"{top.where}: '{section.prefix}*' is yarn without a factor, and it can't be computed:"
            f" max_position_embeddings {max_len} does not exceed the length before scaling,"
            f" {original_len}; add the 'factor' of the training, or fetch the checkpoint again"
        )
    return max_len / original_len
