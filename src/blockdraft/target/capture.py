"""Reads the outputs of chosen decoder layers during a forward pass, by hooks.

It never changes what the model computes, and never uses `output_hidden_states`, whose last entry
is already normed. The hooks are removed whatever happens inside.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from blockdraft.errors import UnsupportedTarget

# Where transformers models keep their decoder layers, seen from `model.base_model`.
LAYER_PATHS = (
    "layers",
    "language_model.layers",
    "language_model.model.layers",
    "h",
    "decoder.layers",
    "blocks",
    "model.layers",
)


def find_decoder_layers(base_model: nn.Module, num_layers: int) -> nn.ModuleList:
    """The list of the model's `num_layers` decoder layers.

    Raises UnsupportedTarget when no list of that length is found in a known place.
    """
    for path in LAYER_PATHS:
        found: object = base_model
        for name in path.split("."):
            found = getattr(found, name, None)
        if isinstance(found, nn.ModuleList) and len(found) == num_layers:
            return found
    raise UnsupportedTarget(
        f"{type(base_model).__name__} has no list of {num_layers} decoder layers in a known place "
        f"({', '.join(LAYER_PATHS)}), so its layers can't be tapped: use a target of another "
        "family (docs/targets.md lists them)"
    )


class Captured:
    """The layer outputs of the pass under way; `features` puts them together."""

    def __init__(self, taps: Sequence[int]) -> None:
        self._taps = taps
        self._outputs: dict[int, Float[Tensor, "batch rows hidden"]] = {}

    def store(self, tap: int, output: object) -> None:
        """Take the raw output of layer `tap`: a tensor, or a tuple that starts with it."""
        if isinstance(output, tuple):
            output = output[0]  # pyright: ignore[reportUnknownVariableType] # any tuple
        if not isinstance(output, Tensor) or output.ndim != 3:
            raise UnsupportedTarget(
                f"decoder layer {tap} does not return one hidden state a token: it can't be tapped"
            )
        self._outputs[tap] = output

    def features(self) -> Float[Tensor, "rows feature"] | None:
        """Outputs of batch row 0, concatenated in tap order; None when nothing is tapped."""
        if not self._taps:
            return None
        return torch.cat([self._outputs[tap][0] for tap in self._taps], dim=-1)


@contextmanager
def capture(layers: nn.ModuleList, taps: Sequence[int]) -> Generator[Captured]:
    """Capture the outputs of `layers[tap]` of every forward pass inside the `with` block.

    The value is the residual stream after the block, before any following norm. Hooks sit on the
    shared model, so two threads must not run passes of one model at the same time.
    """
    captured = Captured(taps)
    handles: list[RemovableHandle] = []
    try:
        for tap in set(taps):
            handles.append(_hook(layers[tap], tap, captured))
        yield captured
    finally:
        for handle in handles:
            handle.remove()


def _hook(layer: nn.Module, tap: int, captured: Captured) -> RemovableHandle:
    def store(module: nn.Module, args: object, output: object) -> None:
        captured.store(tap, output)

    return layer.register_forward_hook(store)
