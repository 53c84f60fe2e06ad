"""Where a drafter's first weights come from: random, a checkpoint, or layers of the target.

It builds modules and copies numbers; files are read by `checkpoint/`.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from blockdraft.drafter import BlockDrafter, DrafterConfig
from blockdraft.errors import ConfigError, UnsupportedTarget

STANDARD_DEVIATION = 0.02

_HEAD_NORMS = {"self_attn.q_norm": "self_attn.q_proj", "self_attn.k_norm": "self_attn.k_proj"}
"""Norms of heads that many targets lack, and what they norm."""

_FAINT = 0.1


def new_drafter(config: DrafterConfig, seed: int) -> BlockDrafter:
    """Random weights, fp32: normal with 0.02, the two projections into the residual stream smaller
    by sqrt(2 * layers) (GPT-2's scheme); norms 1."""
    drafter = BlockDrafter(config)
    generator = torch.Generator().manual_seed(seed)
    into_stream = STANDARD_DEVIATION / math.sqrt(2 * config.num_layers)
    with torch.no_grad():
        for name, parameter in drafter.named_parameters():
            if parameter.ndim == 2:
                narrow = name.endswith(("o_proj.weight", "down_proj.weight"))
                std = into_stream if narrow else STANDARD_DEVIATION
                parameter.normal_(0.0, std, generator=generator)
            elif name.endswith("bias"):
                parameter.zero_()
    return drafter


def spread_layers(num_target_layers: int, count: int) -> tuple[int, ...]:
    """`count` layers from the second to the third-last, evenly: the paper's taps (section 4.1)."""
    if count == 1:
        return (num_target_layers // 2,)
    first, last = min(1, num_target_layers - 1), max(0, num_target_layers - 3)
    if last - first + 1 < count:
        raise ConfigError(
            f"{count} taps from a target of {num_target_layers} layers: give at most "
            f"{last - first + 1}, or name them"
        )
    return tuple(round(first + i * (last - first) / (count - 1)) for i in range(count))


@torch.no_grad()
def copy_target_layers(
    drafter: BlockDrafter, tensors: Mapping[str, Tensor], layers: Sequence[int]
) -> None:
    """Overwrite the drafter's layers with the target's layers `layers`, one each.

    `tensors` are the target's, named as transformers names a Llama-like decoder's
    (`model.layers.3.mlp.up_proj.weight`). Features are fused to the tap next below the copied
    layers, normed as those layers norm their input: the copied attention then sees the keys and
    values that it saw in the target. A target without head norms gets norms of the usual size of
    its heads. Raises UnsupportedTarget when a tensor is missing or has another shape.
    """
    if len(layers) != len(drafter.layers):
        raise ConfigError(
            f"{len(layers)} target layers for a drafter of {len(drafter.layers)}; name one each"
        )
    for layer, source in zip(drafter.decoder_layers(), layers, strict=True):
        for name, parameter in layer.named_parameters():
            full = f"model.layers.{source}.{name}"
            module = name.rsplit(".", 1)[0]
            if full not in tensors and module in _HEAD_NORMS:
                projection = _HEAD_NORMS[module]
                parameter.fill_(_usual_size(tensors, source, projection))
            else:
                _copy(parameter, tensors.get(full), full)
    _fuse_one_tap(drafter, layers)
    norms = [tensors[f"model.layers.{layer}.input_layernorm.weight"] for layer in layers]
    drafter.hidden_norm.weight.copy_(torch.stack([norm.float() for norm in norms]).mean(0))
    if "model.norm.weight" in tensors:
        drafter.norm.weight.copy_(tensors["model.norm.weight"])


def _usual_size(tensors: Mapping[str, Tensor], layer: int, projection: str) -> float:
    """Root mean square of a projection's outputs for normed inputs without correlations."""
    weight = tensors[f"model.layers.{layer}.{projection}.weight"].float()
    norm = tensors[f"model.layers.{layer}.input_layernorm.weight"].float()
    return float((weight * norm).square().sum(1).mean().sqrt())


def _fuse_one_tap(drafter: BlockDrafter, layers: Sequence[int]) -> None:
    """Let `fc` pass the last tap below the copied layers (else the first), the others faintly."""
    config = drafter.config
    below = [index for index, tap in enumerate(config.taps) if tap < max(layers)]
    chosen = below[-1] if below else 0
    columns = slice(chosen * config.hidden_size, (chosen + 1) * config.hidden_size)
    drafter.fc.weight.mul_(_FAINT)
    drafter.fc.weight[:, columns] += torch.eye(config.hidden_size)


def _copy(parameter: Tensor, tensor: Tensor | None, name: str) -> None:
    if tensor is None:
        raise UnsupportedTarget(f"the target has no {name}; start from scratch instead")
    if tensor.shape != parameter.shape:
        raise UnsupportedTarget(
            f"{name} of the target is {list(tensor.shape)}, the drafter's is "
            f"{list(parameter.shape)}; give the drafter the target's widths or start from scratch"
        )
    parameter.copy_(tensor)
