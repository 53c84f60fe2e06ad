"""What the drafter's arithmetic costs: floating-point operations of a training step, part by part.

Counted are the products of matrices, forward and backward, that the method itself asks for; norms,
activations, casts and the optimizer are not counted (docs/features.md derives the formulas). Pure
numbers; times are in `machine.py`, whole trainings in `plan.py`.

A multiplication and an addition are two operations. A product of n numbers a row with a trained
weight costs 2n forward and 4n backward (gradients of input and weight).
"""

from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from jaxtyping import Int
from torch import Tensor

from blockdraft.drafter.config import DrafterConfig, MaskRule
from blockdraft.errors import ConfigError
from blockdraft.training.batches.batch import Batch


class Work(NamedTuple):
    """What a step, or an epoch, has to do; expectations need not be whole.

    `slots` are drafted slots with a label; `pairs` the (query, key) pairs of each layer.
    """

    tokens: float
    blocks: float
    slots: float
    pairs: tuple[float, ...]

    def times(self, factor: float) -> "Work":
        pairs = tuple(pair * factor for pair in self.pairs)
        return Work(self.tokens * factor, self.blocks * factor, self.slots * factor, pairs)


class StepFlops(NamedTuple):
    """Forward and backward. `layers`: products of the block rows. `context`: fusion of features
    and their keys and values. `head`: the frozen LM head.
    """

    layers: float
    context: float
    attention: float
    head: float

    @property
    def total(self) -> float:
        return sum(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetShape:
    """Sizes of a dense Llama-like target."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int

    @property
    def layer_weights(self) -> int:
        """Numbers in the matrices of one layer."""
        attention = 2 * self.hidden_size * self.head_dim * (self.num_heads + self.num_kv_heads)
        return attention + 3 * self.hidden_size * self.intermediate_size

    @property
    def num_parameters(self) -> int:
        """Layers and one embedding table (an untied head has its own: count it as well)."""
        return self.num_layers * self.layer_weights + self.vocab_size * self.hidden_size


def read_shape(config: object, name: str) -> TargetShape:
    """The sizes in a transformers configuration of the target `name`.

    Raises ConfigError when it does not have them under their usual names. `target/shape.py` fills
    in what a new drafter may choose freely; here a guess would be a wrong figure.
    """

    def whole(*keys: str) -> int:
        for key in keys:
            value = cast(object, getattr(config, key, None))
            if isinstance(value, int):
                return value
        raise ConfigError(f"the configuration of {name} has no {keys[0]}: its costs are not known")

    hidden_size, num_heads = whole("hidden_size"), whole("num_attention_heads")
    has_dim = isinstance(cast(object, getattr(config, "head_dim", None)), int)
    return TargetShape(
        hidden_size=hidden_size,
        intermediate_size=whole("intermediate_size"),
        num_layers=whole("num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=whole("num_key_value_heads", "num_attention_heads"),
        head_dim=whole("head_dim") if has_dim else hidden_size // num_heads,
        vocab_size=whole("vocab_size"),
    )


def layer_weights(config: DrafterConfig) -> int:
    """Numbers in the matrices of one drafter layer."""
    heads = config.num_heads + config.num_kv_heads
    attention = 2 * config.hidden_size * config.head_dim * heads
    return attention + 3 * config.hidden_size * config.intermediate_size


def fusion_weights(config: DrafterConfig) -> int:
    """Numbers in the projection of the context features."""
    return len(config.taps) * config.hidden_size**2


def norm_weights(config: DrafterConfig) -> int:
    """Numbers in norms and biases: what is no matrix."""
    layer = 2 * config.hidden_size + 2 * config.head_dim
    if config.attention_bias:
        layer += config.head_dim * (config.num_heads + 2 * config.num_kv_heads)
        layer += config.hidden_size
    return config.num_layers * layer + 2 * config.hidden_size


def num_parameters(config: DrafterConfig) -> int:
    """All trained numbers; embedding and head are the target's."""
    return config.num_layers * layer_weights(config) + fusion_weights(config) + norm_weights(config)


def step_flops(config: DrafterConfig, work: Work, *, recompute: bool = False) -> StepFlops:
    """Operations of `work`, forward and backward.

    `recompute` runs the layers forward twice (gradient checkpointing).
    """
    passes = 8 if recompute else 6
    rows = work.blocks * config.block_size
    key_values = 2 * config.hidden_size * config.num_kv_heads * config.head_dim
    vocab_size = config.draft_vocab_size or config.vocab_size
    per_row = passes * layer_weights(config)
    if recompute:  # nothing needs the last product of a layer again
        per_row -= 2 * config.hidden_size * config.intermediate_size
    return StepFlops(
        layers=config.num_layers * per_row * rows,
        # The features are frozen: the fusion has no gradient of its input.
        context=(4 * fusion_weights(config) + passes * config.num_layers * key_values)
        * work.tokens,
        # Scores and weighted sum, 2 dim each; the backward pass has four such products.
        attention=2 * passes * config.num_heads * config.head_dim * sum(work.pairs),
        # Frozen as well: the gradient of its input only.
        head=4 * config.hidden_size * vocab_size * work.slots,
    )


def target_flops(shape: TargetShape, num_tokens: float, mean_context: float) -> float:
    """One forward pass over `num_tokens`, each seeing `mean_context` keys; no head."""
    attention = 4 * shape.num_heads * shape.head_dim * mean_context
    return num_tokens * shape.num_layers * (2 * shape.layer_weights + attention)


def work_of(config: DrafterConfig, batch: Batch) -> Work:
    """What one packed row asks for."""
    starts = torch.tensor(batch.starts)
    positions = batch.anchors - starts[:-1][batch.document_of]
    left = starts[1:][batch.document_of] - batch.anchors - 1
    rules = [config.mask_rule(layer) for layer in range(config.num_layers)]
    pairs = {rule: num_pairs(positions, batch.block_size, rule) for rule in dict.fromkeys(rules)}
    return Work(
        tokens=batch.num_tokens,
        blocks=batch.num_anchors,
        slots=int(left.clamp(max=batch.block_size - 1).sum()),
        pairs=tuple(pairs[rule] for rule in rules),
    )


def num_pairs(positions: Int[Tensor, " blocks"], width: int, rule: MaskRule) -> int:
    """(query, key) pairs that a layer's rule allows to blocks at these positions."""
    slots = torch.arange(width)
    distance = slots[:, None] - slots
    own = torch.ones_like(distance, dtype=torch.bool)
    if rule.causal:
        own &= distance >= 0
    context = positions[:, None].expand(-1, width)
    if rule.window is not None:
        own &= distance.abs() < rule.window
        # Slot j sees the last window - 1 - j tokens before the anchor.
        context = torch.minimum(context, (rule.window - 1 - slots).clamp(min=0))
    return int(context.sum()) + len(positions) * int(own.sum())
