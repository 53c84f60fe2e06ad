"""`plan_training`: what a training will cost in memory, disk, arithmetic and time, before it runs.

Estimates from sizes alone: nothing is loaded or measured here. docs/features.md derives the
formulas. Weights are counted exactly, operations up to the spread of lengths; memory is rougher.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

from blockdraft.drafter.config import DrafterConfig
from blockdraft.errors import ConfigError
from blockdraft.training.cost.flops import (
    StepFlops,
    TargetShape,
    Work,
    fusion_weights,
    layer_weights,
    norm_weights,
    num_pairs,
    num_parameters,
    step_flops,
    target_flops,
)
from blockdraft.training.features.format import FeatureDtype, FeatureKind

EXPECTED_UTILIZATION = 0.35
FLOAT = 4
LOGIT_COPIES = 3
"""Logits, their softmax and their gradient, in float32."""

Precision = Literal["fp32", "bf16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSize:
    """How much there is to learn from. Tokens of prompts are context only.

    `num_anchors` and `num_rows` of an epoch None = estimated from the mean lengths. What is held
    out is cached and not learned from.
    """

    num_answers: int
    num_prompt_tokens: int
    num_answer_tokens: int
    num_anchors: int | None = None
    num_rows: int | None = None
    num_heldout: int = 0
    num_heldout_tokens: int = 0

    def __post_init__(self) -> None:
        if min(self.num_answers, self.num_prompt_tokens, self.num_answer_tokens) < 1:
            raise ConfigError("a training needs at least one answer with its prompt")

    @property
    def num_tokens(self) -> int:
        return self.num_prompt_tokens + self.num_answer_tokens

    @property
    def mean_prompt_len(self) -> float:
        return self.num_prompt_tokens / self.num_answers

    @property
    def mean_answer_len(self) -> float:
        return self.num_answer_tokens / self.num_answers


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSetup:
    """The settings of a training that its costs depend on.

    `logit_rows` are the slots whose logits exist at a time. `cache` None = features are computed on
    the fly, else the dtype of the cache. `soft` labels need the target's own logits.
    `target_bytes` are those of one target weight.
    """

    epochs: float = 1
    row_tokens: int = 4096
    row_anchors: int = 512
    anchors_per_sample: int = 512
    anchor_stride: int = 1
    optimizer: Literal["adamw", "muon"] = "muon"
    precision: Precision = "bf16"
    ema: bool = False
    recompute: bool = False
    cache: FeatureDtype | None = None
    soft: bool = False
    logit_rows: int = 1024
    target_bytes: int = 2
    checkpoints_kept: int = 3


class MemoryCost(NamedTuple):
    """Bytes at the widest moment of a step."""

    weights: float
    gradients: float
    optimizer: float
    ema: float
    target: float
    features: float
    activations: float
    logits: float


class DiskCost(NamedTuple):
    """Bytes. A checkpoint holds weights, optimizer states and averages."""

    features: float
    checkpoints: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCost:
    """What a whole training costs; `seconds` is None when the machine's peak is not known."""

    parameters: int
    anchors_per_epoch: float
    rows_per_epoch: float
    flops: StepFlops
    target_flops: float
    memory: MemoryCost
    disk: DiskCost
    utilization: float
    peak: float | None

    @property
    def total_flops(self) -> float:
        return self.flops.total + self.target_flops

    @property
    def seconds(self) -> float | None:
        return None if self.peak is None else self.total_flops / (self.peak * self.utilization)


def plan_training(
    config: DrafterConfig,
    target: TargetShape,
    data: DataSize,
    setup: TrainingSetup,
    *,
    peak: float | None = None,
    utilization: float = EXPECTED_UTILIZATION,
) -> TrainingCost:
    """The costs of all epochs. `peak` in operations a second (`measured_peak`)."""
    epoch = expected_work(config, data, setup)
    work = epoch.times(setup.epochs)
    mean_len = data.num_tokens / data.num_answers
    # A cache is filled once, with the held-out answers.
    cached = epoch.tokens + data.num_heldout_tokens
    read = work.tokens if setup.cache is None else cached
    frozen = target_flops(target, read, (mean_len + 1) / 2)
    if setup.soft:
        vocab_size = config.draft_vocab_size or config.vocab_size
        frozen += 2 * target.hidden_size * vocab_size * work.slots
    rows = max(data.num_tokens / setup.row_tokens, epoch.blocks / setup.row_anchors)
    return TrainingCost(
        parameters=num_parameters(config),
        anchors_per_epoch=epoch.blocks,
        rows_per_epoch=math.ceil(rows) if data.num_rows is None else data.num_rows,
        flops=step_flops(config, work, recompute=setup.recompute),
        target_flops=frozen,
        memory=memory_cost(config, target, setup),
        disk=disk_cost(config, data, setup),
        utilization=utilization,
        peak=peak,
    )


def expected_work(config: DrafterConfig, data: DataSize, setup: TrainingSetup) -> Work:
    """One epoch over answers of the mean length, anchors spread evenly over them."""
    answer_len = data.mean_answer_len
    drawn = min(setup.anchors_per_sample, answer_len - 1, answer_len / setup.anchor_stride)
    blocks = data.num_answers * max(0.0, drawn)
    if data.num_anchors is not None:
        blocks = float(data.num_anchors)
    width = config.block_size
    middle = torch.tensor([round(data.mean_prompt_len + (answer_len - 1) / 2)])
    pairs = [
        float(blocks * num_pairs(middle, width, config.mask_rule(layer)))
        for layer in range(config.num_layers)
    ]
    # The last width - 1 tokens of an answer have fewer labelled slots behind them.
    missing = (width - 1) * (width - 2) / 2 / max(answer_len - 1, 1)
    slots = blocks * max(0.0, width - 1 - missing)
    return Work(tokens=data.num_tokens, blocks=blocks, slots=slots, pairs=tuple(pairs))


def memory_cost(config: DrafterConfig, target: TargetShape, setup: TrainingSetup) -> MemoryCost:
    """Of one process that computes one row at a time and shards nothing."""
    parameters = num_parameters(config)
    number = 2 if setup.precision == "bf16" else FLOAT
    copies = FLOAT + (2 if setup.precision == "bf16" else 0)
    table = target.vocab_size * target.hidden_size
    frozen = target.num_parameters if setup.cache is None else table
    vocab_size = config.draft_vocab_size or config.vocab_size
    states = len(config.taps) * config.hidden_size + (config.hidden_size if setup.soft else 0)
    return MemoryCost(
        weights=copies * parameters,
        gradients=FLOAT * parameters,
        optimizer=optimizer_bytes(config, setup),
        ema=FLOAT * parameters if setup.ema else 0,
        target=setup.target_bytes * frozen,
        features=number * states * setup.row_tokens,
        activations=activation_bytes(config, setup),
        logits=LOGIT_COPIES * FLOAT * vocab_size * setup.logit_rows,
    )


def optimizer_bytes(config: DrafterConfig, setup: TrainingSetup) -> int:
    """AdamW keeps two averages of every gradient, Muon one, and only of matrices."""
    matrices = config.num_layers * layer_weights(config) + fusion_weights(config)
    per_matrix = 1 if setup.optimizer == "muon" else 2
    return FLOAT * (per_matrix * matrices + 2 * norm_weights(config))


def activation_bytes(config: DrafterConfig, setup: TrainingSetup) -> float:
    """What is kept for the backward pass of one row.

    Of a block row in a layer: its input, three more states of that width (normed, residual, normed
    again), queries three times (raw, normed, rotated) and attended, keys three times and values,
    gate, up, silu(gate) and their product.
    """
    number = 2 if setup.precision == "bf16" else FLOAT
    heads = config.num_heads * config.head_dim
    key_values = config.num_kv_heads * config.head_dim
    row = 4 * (config.hidden_size + heads + key_values + config.intermediate_size)
    rows = setup.row_anchors * config.block_size
    layers = config.num_layers * rows * row
    context_layers = config.num_layers * setup.row_tokens * 4 * key_values
    if setup.recompute:  # only inputs, and one layer in full
        layers = rows * (config.num_layers * config.hidden_size + row)
        context_layers = setup.row_tokens * 4 * key_values
    context = 2 * config.hidden_size * setup.row_tokens
    return number * (layers + context_layers + context)


def disk_cost(config: DrafterConfig, data: DataSize, setup: TrainingSetup) -> DiskCost:
    """Feature cache and the checkpoints that are kept (the newest besides the best ones)."""
    features = 0
    if setup.cache is not None:
        kind = FeatureKind(
            target="",
            fingerprint="",
            hidden_size=config.hidden_size,
            taps=config.taps,
            dtype=setup.cache,
            final=setup.soft,
        )
        num_tokens = data.num_tokens + data.num_heldout_tokens
        features = kind.num_bytes(num_tokens, data.num_answers + data.num_heldout)
    parameters = num_parameters(config)
    weights = FLOAT * parameters * (2 if setup.ema else 1)
    checkpoint = weights + optimizer_bytes(config, setup)
    return DiskCost(features, (setup.checkpoints_kept + 1) * checkpoint)
