"""Anchors: which answer tokens of a sample start a block in one epoch.

Pure and stateless: the draw depends on (seed, epoch, row of the sample) alone, so neither the order
of samples nor the number of ranks changes it. Paper: 512 random anchors a sequence, drawn anew
every epoch (section 4.1, table 13).
"""

import hashlib
import math
from dataclasses import dataclass
from typing import cast

import torch

from blockdraft.errors import ConfigError
from blockdraft.training.batches.batch import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorConfig:
    """At most `per_sample` anchors, and at most one for every `stride` tokens of the answer."""

    per_sample: int = 512
    stride: int = 1

    def __post_init__(self) -> None:
        if self.per_sample < 1:
            raise ConfigError(f"anchors.per_sample is {self.per_sample}; give at least 1")
        if self.stride < 1:
            raise ConfigError(f"anchors.stride is {self.stride}; give at least 1 token an anchor")


def valid_anchors(sample: Sample) -> range:
    """Answer positions that an answer token follows: only these have something to learn from."""
    return range(sample.answer_start, len(sample.ids) - 1)


def num_anchors(sample: Sample, config: AnchorConfig) -> int:
    """How many anchors a sample gets; 0 for an answer of one token."""
    valid = len(valid_anchors(sample))
    return min(config.per_sample, valid, math.ceil(sample.answer_len / config.stride))


def draw_anchors(sample: Sample, config: AnchorConfig, *, seed: int, epoch: int) -> tuple[int, ...]:
    """Positions in the sample, ascending, without repeats, uniform over `valid_anchors`."""
    valid = valid_anchors(sample)
    count = num_anchors(sample, config)
    if count == len(valid):
        return tuple(valid)
    generator = seeded_generator("anchors", seed, epoch, sample.row)
    chosen = torch.randperm(len(valid), generator=generator)[:count].sort().values
    return tuple(valid.start + i for i in cast(list[int], chosen.tolist()))


def seeded_generator(purpose: str, *numbers: int) -> torch.Generator:
    """A generator whose stream depends on nothing but the arguments."""
    text = "/".join((purpose, *(str(number) for number in numbers)))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    generator = torch.Generator()
    # manual_seed takes 64 bits; the sign bit is left out to stay a plain positive number.
    generator.manual_seed(int.from_bytes(digest, "little") >> 1)
    return generator
