"""The configuration of a new drafter: the recipe's choices, the target's widths for the rest."""

from collections.abc import Collection

from blockdraft.decoding.interfaces import TargetSpec
from blockdraft.drafter import DrafterConfig, RopeConfig
from blockdraft.errors import ConfigError
from blockdraft.target.shape import DecoderShape
from blockdraft.target.text import TextCodec
from blockdraft.training.config import DrafterSection
from blockdraft.training.initialize import spread_layers

DEFAULT_LAYERS, DEFAULT_TAPS, DEFAULT_BLOCK_SIZE = 5, 5, 16
"""The paper's."""

_WIDTHS_PER_HIDDEN = 3
"""Feed-forward width of a drafter for a target whose configuration has none."""


def shape_drafter(
    section: DrafterSection, spec: TargetSpec, shape: DecoderShape, mask_token_id: int
) -> DrafterConfig:
    """The drafter that `section` describes, for the target of `spec` and `shape`.

    Raises ConfigError for taps that are no layers and for layer kinds that do not fit.
    """
    num_layers = section.num_layers or DEFAULT_LAYERS
    taps = section.taps or spread_layers(spec.num_layers, section.num_taps or DEFAULT_TAPS)
    kinds = section.layer_types or ("full_attention",) * num_layers
    if len(kinds) != num_layers:
        raise ConfigError(
            f"drafter.layer_types names {len(kinds)} layers, num_layers is {num_layers}"
        )
    width = section.intermediate_size or shape.intermediate_size
    return DrafterConfig(
        hidden_size=spec.hidden_size,
        intermediate_size=width or _WIDTHS_PER_HIDDEN * spec.hidden_size,
        num_layers=num_layers,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        rms_norm_eps=shape.rms_norm_eps,
        vocab_size=spec.vocab_size,
        block_size=section.block_size or DEFAULT_BLOCK_SIZE,
        mask_token_id=mask_token_id,
        taps=taps,
        layer_types=kinds,
        max_position_embeddings=shape.max_position_embeddings,
        num_target_layers=spec.num_layers,
        rope=RopeConfig(theta=shape.rope_theta),
        sliding_window=section.sliding_window,
        is_causal=section.is_causal,
        draft_vocab_size=section.draft_vocab_size,
    )


def refuse_second_version(found: DrafterConfig, source: str) -> None:
    """Raise ConfigError when a run would start from a DFlash 2 drafter.

    The training pass has neither its convolutions nor the loss of its selector: what came out would
    be worse than what went in.
    """
    if found.dflash2 is not None:
        raise ConfigError(
            f"drafter.init: {source} is a DFlash 2 drafter (convolutions and a candidate selector),"
            " which can't be trained further here; start from a plain DFlash drafter, from the"
            " target's layers or from scratch"
        )


def choose_mask_token(
    wanted: str | int | None, spec: TargetSpec, codec: TextCodec | None, used: Collection[int]
) -> int:
    """The id that stands in a block's masked slots.

    A name must be one token. Without a wish: the first row of the embedding table without a text,
    else the last special token that occurs in no answer (`used` holds those that do). Raises
    ConfigError when there is none, or the wish is no such id.
    """
    if isinstance(wanted, int):
        if not 0 <= wanted < spec.vocab_size:
            raise ConfigError(
                f"drafter.mask_token {wanted} is outside the vocabulary of {spec.vocab_size}"
            )
        return wanted
    if codec is None:
        raise ConfigError("the target has no tokenizer: give drafter.mask_token as an id")
    if wanted is not None:
        ids = [i for i in codec.encode(wanted) if codec.decode([i], skip_special_tokens=False)]
        exact = [i for i in ids if codec.decode([i], skip_special_tokens=False) == wanted]
        if len(exact) != 1:
            raise ConfigError(f"drafter.mask_token {wanted!r} is not one token of the target")
        return exact[0]
    if codec.vocab_size < spec.vocab_size:
        return codec.vocab_size
    for token_id in reversed(range(spec.vocab_size)):
        if token_id not in used and token_id not in spec.stop_ids and not codec.decode([token_id]):
            return token_id
    raise ConfigError(
        "no special token of the target is free to stand for a mask: name one (drafter.mask_token)"
    )
