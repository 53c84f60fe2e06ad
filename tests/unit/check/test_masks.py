"""How engines read causality and windows, against the table of docs/check.md."""

import pytest

from blockdraft.check import masks
from blockdraft.check.rules.parts import ReadMasks
from blockdraft.check.shape import DrafterShape, read_shape
from blockdraft.checkpoint.format import parse_config, render_config
from blockdraft.drafter import DrafterConfig
from blockdraft.drafter.config import LayerType, MaskRule

FULL, SLIDING = MaskRule(False, None), MaskRule(True, 8)
TWO_SIDED = MaskRule(False, 8)


def shape_of(**keys: object) -> DrafterShape:
    raw: dict[str, object] = {
        "num_hidden_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 8,
        "use_sliding_window": True,
    }
    return read_shape(raw | keys)


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (masks.trained_masks, (SLIDING, FULL)),
        (masks.vllm_masks, (SLIDING, FULL)),
        (masks.sglang_masks, (SLIDING, FULL)),
        (masks.trtllm_masks, (SLIDING, FULL)),
        (masks.llamacpp_masks, (TWO_SIDED, FULL)),
        (masks.openvino_masks, (TWO_SIDED, FULL)),
    ],
)
def test_layer_types_alone(read: ReadMasks, expected: masks.Masks) -> None:
    assert read(shape_of()) == expected


@pytest.mark.parametrize(
    ("read", "obeys"),
    [
        (masks.trained_masks, True),
        (masks.vllm_masks, True),
        (masks.sglang_masks, True),
        (masks.trtllm_masks, False),
        (masks.llamacpp_masks, True),
        (masks.openvino_masks, False),
    ],
)
def test_is_causal_true(read: ReadMasks, obeys: bool) -> None:
    assert read(shape_of(is_causal=True))[1].causal == obeys


@pytest.mark.parametrize(
    ("read", "obeys"),
    [
        (masks.trained_masks, True),
        (masks.vllm_masks, True),
        (masks.sglang_masks, False),
        (masks.trtllm_masks, False),
        (masks.llamacpp_masks, True),
        (masks.openvino_masks, False),
    ],
)
def test_causal_in_dflash_config(read: ReadMasks, obeys: bool) -> None:
    assert read(shape_of(dflash_config={"causal": True}))[1].causal == obeys


def test_speculators_default_makes_full_layers_causal_in_vllm() -> None:
    shape = shape_of(sliding_window_non_causal=False)
    assert masks.trained_masks(shape) == (SLIDING, FULL)
    assert [rule.causal for rule in masks.vllm_masks(shape)] == [True, True]


@pytest.mark.parametrize("is_causal", [None, True, False])
@pytest.mark.parametrize(
    "layer_types",
    [
        ("full_attention", "full_attention"),
        ("sliding_attention", "full_attention"),
        ("sliding_attention", "sliding_attention"),
    ],
)
def test_trained_masks_are_those_of_our_drafter(
    is_causal: bool | None, layer_types: tuple[LayerType, ...]
) -> None:
    config = DrafterConfig(
        hidden_size=8,
        intermediate_size=8,
        num_layers=2,
        num_heads=2,
        num_kv_heads=1,
        head_dim=4,
        rms_norm_eps=1e-6,
        vocab_size=16,
        block_size=4,
        mask_token_id=3,
        taps=(0, 1),
        layer_types=layer_types,
        sliding_window=8,
        max_position_embeddings=64,
        is_causal=is_causal,
    )
    raw = render_config(config, "float32")
    read = parse_config(raw, "config.json")
    assert masks.trained_masks(read_shape(raw)) == tuple(read.mask_rule(i) for i in range(2))
