"""The order of samples and how they are packed into rows: a pure function of seed and epoch.

A training is one endless stream of rows, epoch after epoch; step s takes `rows_per_step` of them,
and rank r of n computes those with index % n == r. So the order does not depend on the number of
ranks, and resuming is a seek.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch

from blockdraft.errors import ConfigError
from blockdraft.training.batches.anchors import (
    AnchorConfig,
    draw_anchors,
    num_anchors,
    seeded_generator,
)
from blockdraft.training.batches.batch import Batch, Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingConfig:
    """Limits of a row and the size of a step.

    A row ends before the sample that would exceed `row_tokens` or `row_anchors`; `shuffle` off
    keeps the order of the data set.
    """

    row_tokens: int = 4096
    row_anchors: int = 512
    rows_per_step: int = 1
    shuffle: bool = True

    def __post_init__(self) -> None:
        for name, value in (
            ("row_tokens", self.row_tokens),
            ("row_anchors", self.row_anchors),
            ("rows_per_step", self.rows_per_step),
        ):
            if value < 1:
                raise ConfigError(f"{name} is {value}; give at least 1")


@dataclass(frozen=True, slots=True)
class PackedRow:
    """Indices (into the samples) of the documents of one row, and the epoch they belong to."""

    epoch: int
    members: tuple[int, ...]


def epoch_order(num_samples: int, *, seed: int, epoch: int, shuffle: bool) -> list[int]:
    """The samples of one epoch, each exactly once."""
    if not shuffle:
        return list(range(num_samples))
    generator = seeded_generator("order", seed, epoch)
    return cast(list[int], torch.randperm(num_samples, generator=generator).tolist())


def pack_epoch(
    samples: Sequence[Sample],
    packing: PackingConfig,
    anchors: AnchorConfig,
    *,
    seed: int,
    epoch: int,
) -> list[PackedRow]:
    """All samples that have an anchor, in the epoch's order, as full rows; the last may be short.

    Raises ConfigError for a sample that fits no row: nothing is cut or left out in silence.
    """
    rows: list[PackedRow] = []
    members: list[int] = []
    tokens = drawn = 0
    for index in epoch_order(len(samples), seed=seed, epoch=epoch, shuffle=packing.shuffle):
        sample = samples[index]
        count = num_anchors(sample, anchors)
        if count == 0:
            continue
        check_fits(sample, count, packing)
        full = tokens + len(sample.ids) > packing.row_tokens or drawn + count > packing.row_anchors
        if members and full:
            rows.append(PackedRow(epoch, tuple(members)))
            members, tokens, drawn = [], 0, 0
        members.append(index)
        tokens += len(sample.ids)
        drawn += count
    if members:
        rows.append(PackedRow(epoch, tuple(members)))
    return rows


def check_fits(sample: Sample, count: int, packing: PackingConfig) -> None:
    """Raises ConfigError when a sample alone is more than a row holds."""
    if len(sample.ids) > packing.row_tokens:
        raise ConfigError(
            f"answer {sample.row} has {len(sample.ids)} tokens with its prompt, more than "
            f"row_tokens {packing.row_tokens}: raise it, or lower data.samples.max_tokens"
        )
    if count > packing.row_anchors:
        raise ConfigError(
            f"answer {sample.row} draws {count} anchors, more than row_anchors "
            f"{packing.row_anchors}: raise it, or lower anchors.per_sample"
        )


def make_batch(
    row: PackedRow, samples: Sequence[Sample], anchors: AnchorConfig, block_size: int, *, seed: int
) -> Batch:
    """The row's samples with the anchors of its epoch."""
    chosen = tuple(samples[index] for index in row.members)
    positions: list[int] = []
    documents: list[int] = []
    start = 0
    for document, sample in enumerate(chosen):
        drawn = draw_anchors(sample, anchors, seed=seed, epoch=row.epoch)
        positions += [start + position for position in drawn]
        documents += [document] * len(drawn)
        start += len(sample.ids)
    return Batch(
        samples=chosen,
        anchors=torch.tensor(positions, dtype=torch.long),
        document_of=torch.tensor(documents, dtype=torch.long),
        block_size=block_size,
    )
