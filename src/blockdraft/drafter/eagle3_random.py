"""EAGLE-3 drafters of random weights, for measuring what drafting a token at a time costs.

The cost does not depend on the weights. What they draft is useless on purpose.
"""

from typing import Protocol, runtime_checkable

import torch

from blockdraft.decoding.interfaces import TargetModel
from blockdraft.drafter.config import RopeConfig
from blockdraft.drafter.eagle3 import Eagle3Drafter
from blockdraft.drafter.eagle3_config import DEFAULT_BLOCK_SIZE, Eagle3Config, public_taps
from blockdraft.drafter.eagle3_model import Kernels, eagle3_shapes

MOST_DRAFTED = 32_000
"""Ids of the reduced draft vocabulary that most published EAGLE-3 checkpoints have."""

_SPREAD = 0.02
_INNER_RATIO = 4
"""Of the feed-forward to the hidden size, where the target does not say its own."""


@runtime_checkable
class LayerShape(Protocol):
    """The widths that a drafter takes over from its target's layers."""

    @property
    def num_heads(self) -> int: ...
    @property
    def num_kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def intermediate_size(self) -> int | None: ...
    @property
    def rms_norm_eps(self) -> float: ...
    @property
    def rope_theta(self) -> float: ...
    @property
    def max_position_embeddings(self) -> int: ...


@runtime_checkable
class ShapedTarget(TargetModel, Protocol):
    """A target whose layers are known."""

    @property
    def shape(self) -> LayerShape: ...


def eagle3_config(
    target: ShapedTarget,
    *,
    block_size: int = DEFAULT_BLOCK_SIZE,
    taps: tuple[int, ...] | None = None,
) -> Eagle3Config:
    """An EAGLE-3 drafter as one would be made for `target`: its layer's widths, 32000 ids at most.

    Raises ConfigError for a target of one layer.
    """
    spec, shape = target.spec, target.shape
    return Eagle3Config(
        hidden_size=spec.hidden_size,
        target_hidden_size=spec.hidden_size,
        intermediate_size=shape.intermediate_size or _INNER_RATIO * spec.hidden_size,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        rms_norm_eps=shape.rms_norm_eps,
        vocab_size=spec.vocab_size,
        draft_vocab_size=min(MOST_DRAFTED, spec.vocab_size),
        taps=public_taps(spec.num_layers) if taps is None else taps,
        max_position_embeddings=shape.max_position_embeddings,
        block_size=block_size,
        rope=RopeConfig(theta=shape.rope_theta),
    )


def random_eagle3(
    target: ShapedTarget,
    seed: int,
    *,
    config: Eagle3Config | None = None,
    kernels: Kernels | None = None,
) -> Eagle3Drafter:
    """A drafter of random weights in the target's dtype and on its device; the same for a seed."""
    config = config or eagle3_config(target)
    like = target.embed(torch.zeros(1, dtype=torch.long))
    generator = torch.Generator().manual_seed(seed)
    state: dict[str, torch.Tensor] = {}
    for name, shape in eagle3_shapes(config).items():
        if len(shape) == 1:
            state[name] = torch.ones(shape).to(like)
        else:
            state[name] = (torch.randn(shape, generator=generator) * _SPREAD).to(like)
    return Eagle3Drafter(config, state, target, kernels=kernels)
