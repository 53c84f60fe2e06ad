"""How each engine reads a drafter's causality and sliding windows: they do not agree.

Pure functions of the shape; what training meant is `trained_masks` (docs/checkpoint-format.md).
"""

from blockdraft.check.shape import DrafterShape
from blockdraft.drafter.config import MaskRule

Masks = tuple[MaskRule, ...]
"""One rule a layer."""


def trained_masks(shape: DrafterShape) -> Masks:
    """The rules that the file means, as Blockdraft and the reference read them.

    In the speculators layout sliding layers are causal unless `sliding_window_non_causal`.
    """
    override = shape.causal if shape.is_causal is None else shape.is_causal
    if override is None and shape.window_non_causal:
        override = False
    if shape.use_swa:
        return _all(shape, bool(override), shape.sliding_window)
    return tuple(
        MaskRule(
            sliding if override is None else override, shape.sliding_window if sliding else None
        )
        for sliding in _sliding(shape)
    )


def vllm_masks(shape: DrafterShape) -> Masks:
    """`is_causal` over `dflash_config.causal`, for all layers; `use_swa` slides everywhere.

    Of a speculators folder `sliding_window_non_causal: false` makes every layer causal.
    """
    override = shape.causal if shape.is_causal is None else shape.is_causal
    if override is None and shape.window_non_causal is not None:
        override = not shape.window_non_causal
    slides = (True,) * len(_sliding(shape)) if shape.use_swa else _sliding(shape)
    return tuple(
        MaskRule(is_sliding if override is None else override, _window(shape, is_sliding))
        for is_sliding in slides
    )


def sglang_masks(shape: DrafterShape) -> Masks:
    """`is_causal` only; `dflash_config.causal` and `use_swa` are ignored."""
    override = shape.is_causal
    return tuple(
        MaskRule(is_sliding if override is None else override, _window(shape, is_sliding))
        for is_sliding in _sliding(shape)
    )


def trtllm_masks(shape: DrafterShape) -> Masks:
    """From the layer types alone; `use_swa` is two-sided everywhere."""
    if shape.use_swa:
        return _all(shape, False, shape.sliding_window)
    return tuple(MaskRule(slides, _window(shape, slides)) for slides in _sliding(shape))


def llamacpp_masks(shape: DrafterShape) -> Masks:
    """One flag for all layers, false by default; windows only by `use_sliding_window`/`use_swa`."""
    override = shape.causal if shape.is_causal is None else shape.is_causal
    if shape.use_swa:
        return _all(shape, bool(override), shape.sliding_window)
    windowed = bool(shape.use_sliding_window)
    return tuple(
        MaskRule(bool(override), _window(shape, slides and windowed)) for slides in _sliding(shape)
    )


def openvino_masks(shape: DrafterShape) -> Masks:
    """Never causal; windows from the layer types alone."""
    return tuple(MaskRule(False, _window(shape, slides)) for slides in _sliding(shape))


def _sliding(shape: DrafterShape) -> tuple[bool, ...]:
    num_layers = shape.num_layers or 0
    if shape.layer_types:
        return tuple(name == "sliding_attention" for name in shape.layer_types)
    slides = bool(shape.use_sliding_window and shape.sliding_window)
    return (slides,) * num_layers


def _window(shape: DrafterShape, is_sliding: bool) -> int | None:
    return shape.sliding_window if is_sliding else None


def _all(shape: DrafterShape, causal: bool, window: int | None) -> Masks:
    return (MaskRule(causal, window),) * len(_sliding(shape))
