"""`Sample` and `Batch`: answers to learn from, several of them packed into one row.

Plain data; who packs is `packing.py`, who draws anchors is `anchors.py`.

A packed row, half-open, for document d:

    [starts[d], starts[d + 1])                              the document: prompt, then answer
    [starts[d], + answer_start of samples[d])               its prompt: context only
    [starts[d] + answer_start, starts[d + 1])               its answer: supervised
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One answer with all that stood before it.

    `row` is its place in the data set: it names the sample in errors and seeds its anchors.
    """

    row: int
    ids: tuple[int, ...]
    answer_start: int

    def __post_init__(self) -> None:
        assert 0 < self.answer_start < len(self.ids), "a sample needs a prompt and an answer"

    @property
    def answer_len(self) -> int:
        return len(self.ids) - self.answer_start


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Samples packed into one row, and the anchors drawn in it.

    `anchors` are positions in the row, ascending; `document_of` gives the document of each. An
    anchor's block holds `block_size` tokens, the anchor included, and may run past the document's
    end: labels there are masked.
    """

    samples: tuple[Sample, ...]
    anchors: Int[Tensor, " anchors"]
    document_of: Int[Tensor, " anchors"]
    block_size: int

    @property
    def starts(self) -> tuple[int, ...]:
        """First position of each document, and the length of the row at the end."""
        return tuple(accumulate((len(sample.ids) for sample in self.samples), initial=0))

    @property
    def num_tokens(self) -> int:
        return sum(len(sample.ids) for sample in self.samples)

    @property
    def num_anchors(self) -> int:
        return self.anchors.shape[0]

    @property
    def ids(self) -> Int[Tensor, " tokens"]:
        """The row's token ids."""
        return torch.tensor([i for sample in self.samples for i in sample.ids])


class TargetFeatures(NamedTuple):
    """What the frozen target says about a packed row.

    `taps` are the outputs of the tapped layers, concatenated in tap order, as the drafter's context
    features are at inference. `final` are the inputs of the target's LM head (after its last norm),
    for soft labels; None unless asked for. Row i belongs to token i of the packed row; documents do
    not see each other.
    """

    taps: Float[Tensor, "tokens feature"]
    final: Float[Tensor, "tokens hidden"] | None


class FeatureSource(Protocol):
    """Where features come from: the target itself, or a cache on disk."""

    def features(self, batch: Batch) -> TargetFeatures: ...
