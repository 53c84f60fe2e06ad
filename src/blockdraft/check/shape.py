"""`DrafterShape`: what a drafter's config.json says, of whatever layout, without judging it.

Nothing is refused here: what is absent or malformed is None.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from blockdraft.check.loose import Loose, shortened
from blockdraft.check.plausible import sized
from blockdraft.check.rope import rope_faults
from blockdraft.json_values import as_object

REQUIRED = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "rms_norm_eps",
    "vocab_size",
    "max_position_embeddings",
)
"""Keys without which no engine can build the layers."""

LAYER_TYPES = ("full_attention", "sliding_attention")
_ACTIVATIONS = frozenset(
    {
        "silu", "swish", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_10",
        "quick_gelu", "relu", "relu2", "relu6", "leaky_relu", "laplace", "linear", "mish",
        "sigmoid", "tanh", "gelu_accurate", "gelu_python", "gelu_python_tanh", "prelu", "xielu",
    }
)  # fmt: skip
"""Those of transformers 5; which of them an engine has is its own rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterShape:
    """The keys of a drafter, `taps` 0-based whatever the layout writes.

    `missing` and `malformed` name keys; `impossible` has keys with values that no engine can use,
    which are None here, and `rope_faults` clauses. `block_top` and `block_nested` are the two
    places of `block_size`, `mask_nested` says whether the mask id is where every engine looks for
    it.
    """

    architectures: tuple[str, ...]
    model_type: str | None
    missing: tuple[str, ...]
    malformed: tuple[str, ...]
    impossible: tuple[str, ...]
    rope_faults: tuple[str, ...]
    hidden_size: int | None
    num_layers: int | None
    num_heads: int | None
    num_kv_heads: int | None
    head_dim: int | None
    intermediate_size: int | None
    vocab_size: int | None
    draft_vocab_size: int | None
    position_limit: int | None
    num_target_layers: int | None
    taps: tuple[int, ...] | None
    raised_taps: tuple[int, ...] | None
    block_top: int | None
    block_nested: int | None
    proposed_tokens: int | None
    mask_token_id: int | None
    mask_nested: bool
    mask_token: str | None
    layer_types: tuple[str, ...]
    sliding_window: int | None
    use_sliding_window: bool | None
    use_swa: bool
    is_causal: bool | None
    causal: bool | None
    window_non_causal: bool | None
    attention_bias: bool
    hidden_act: str
    neox: bool | None
    rope_neox: bool | None
    partial_rotary: float
    has_image_axes: bool
    sample_from_anchor: bool
    dtype: str | None

    @property
    def block_size(self) -> int | None:
        """The block, anchor included; the nested key first, as most readers do."""
        return self.block_top if self.block_nested is None else self.block_nested

    @property
    def num_drafts(self) -> int | None:
        """Tokens drafted in a step: the block without its anchor."""
        return None if self.block_size is None else self.block_size - 1


def read_shape(raw: Mapping[str, object]) -> DrafterShape:
    """The shape in a published DFlash config.json or in that of a speculators folder."""
    outer = Loose(raw)
    nested = outer.section("dflash_config")
    inner = outer.section("transformer_layer_config")
    top = Loose(raw, inner)
    own = Loose(nested, raw, inner)
    within = Loose(nested)
    layers = Loose(inner, raw) if inner else top
    rope = Loose(layers.section("rope_parameters"), layers.section("rope_scaling"))
    raised = own.integers("aux_hidden_state_layer_ids")
    shape = DrafterShape(
        architectures=outer.texts("architectures"),
        model_type=top.text("model_type"),
        missing=tuple(name for name in REQUIRED if layers.raw(name) is None),
        malformed=(),
        impossible=(),
        rope_faults=rope_faults(layers),
        hidden_size=sized(layers, "hidden_size"),
        num_layers=sized(layers, "num_hidden_layers"),
        num_heads=sized(layers, "num_attention_heads"),
        num_kv_heads=sized(layers, "num_key_value_heads"),
        head_dim=sized(layers, "head_dim"),
        intermediate_size=sized(layers, "intermediate_size"),
        vocab_size=sized(layers, "vocab_size"),
        draft_vocab_size=sized(own, "draft_vocab_size"),
        position_limit=sized(layers, "max_position_embeddings"),
        num_target_layers=sized(own, "num_target_layers"),
        taps=_taps(own.integers("target_layer_ids"), raised),
        raised_taps=raised or own.integers("eagle_aux_hidden_state_layer_ids"),
        # What is too small is DFL031's.
        block_top=sized(outer, "block_size", least=-1),
        block_nested=sized(within, "block_size", least=-1),
        proposed_tokens=_proposed_tokens(raw),
        mask_token_id=own.integer("mask_token_id"),
        mask_nested=nested.get("mask_token_id") is not None,
        mask_token=own.text("mask_token"),
        layer_types=layers.texts("layer_types"),
        # Without sliding layers a window of 0 or -1 says that there is none.
        sliding_window=sized(layers, "sliding_window", least=-1)
        or sized(own, "swa_window_size", least=-1),
        use_sliding_window=layers.flag("use_sliding_window"),
        use_swa=bool(own.flag("use_swa")),
        is_causal=own.flag("is_causal"),
        causal=own.flag("causal"),
        window_non_causal=own.flag("sliding_window_non_causal"),
        attention_bias=bool(layers.flag("attention_bias")),
        hidden_act=layers.text("hidden_act") or "silu",
        neox=layers.flag("is_neox_style"),
        rope_neox=layers.flag("rope_is_neox_style"),
        partial_rotary=rope.number("partial_rotary_factor")
        or layers.number("partial_rotary_factor")
        or 1.0,
        has_image_axes=rope.raw("mrope_section") is not None,
        sample_from_anchor=bool(own.flag("sample_from_anchor")),
        dtype=top.text("dtype") or top.text("torch_dtype"),
    )
    layers.number("rms_norm_eps", above=0)
    layers.integer("max_window_layers")
    for name in ("final_logit_softcapping", "input_embedding_scale", "output_multiplier"):
        own.number(name)
    read = (outer, within, layers, own, top)
    return replace(
        shape,
        malformed=tuple(dict.fromkeys(name for keys in read for name in keys.malformed)),
        impossible=tuple(
            dict.fromkeys([*(said for keys in read for said in keys.impossible), *_unusable(shape)])
        ),
    )


def _unusable(shape: DrafterShape) -> list[str]:
    """Values of the right type that no engine has code for."""
    said = [
        f"a layer type {shortened(name)}"
        for name in dict.fromkeys(shape.layer_types)
        if name not in LAYER_TYPES
    ]
    if shape.hidden_act not in _ACTIVATIONS:
        said.append(f"hidden_act {shortened(shape.hidden_act)}")
    if shape.head_dim is not None and shape.head_dim % 2:
        said.append(f"head_dim {shape.head_dim}, which has no halves to rotate")
    return said


def _taps(
    written: tuple[int, ...] | None, raised: tuple[int, ...] | None
) -> tuple[int, ...] | None:
    if written is not None or raised is None:
        return written
    return tuple(layer_id - 1 for layer_id in raised)


def _proposed_tokens(raw: Mapping[str, object]) -> int | None:
    """The drafts a step that a speculators folder proposes, if it does."""
    methods = as_object(raw.get("speculators_config")).get("proposal_methods")
    if not isinstance(methods, list):
        return None
    listed = cast("list[object]", methods)
    found = [Loose(as_object(method)).integer("speculative_tokens") for method in listed]
    return next((number for number in found if number is not None), None)
