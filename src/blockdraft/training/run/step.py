"""One micro-batch: features, forward, loss and gradients, and the sums that describe it.

It takes no optimizer step and knows no schedule; `trainer.py` does.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor, nn

from blockdraft.decoding.interfaces import TargetModel
from blockdraft.drafter import DrafterConfig
from blockdraft.training.batches.batch import Batch, FeatureSource
from blockdraft.training.batches.layout import Layout, lay_out
from blockdraft.training.config import Precision
from blockdraft.training.cost.flops import step_flops, work_of
from blockdraft.training.objective import Objective, Scores


@dataclass(frozen=True, slots=True)
class StepSums:
    """Sums over micro-batches and ranks, as one tensor: loss, weight, then per slot hits and
    scored slots, then tokens, anchors and operations."""

    values: Float64[Tensor, " sums"]

    @classmethod
    def of(cls, scores: Scores, batch: Batch, flops: float) -> "StepSums":
        parts = [
            torch.stack((scores.loss.detach().double(), scores.weight.double())).cpu(),
            scores.hits.sum(0).double().cpu(),
            scores.scored.sum(0).double().cpu(),
            torch.tensor([batch.num_tokens, batch.num_anchors, flops], dtype=torch.float64),
        ]
        return cls(torch.cat(parts))

    def __add__(self, other: "StepSums") -> "StepSums":
        return StepSums(self.values + other.values)

    @property
    def weight(self) -> float:
        return float(self.values[1])

    @property
    def loss(self) -> float:
        """Weighted mean over slots; 0 when none had a weight."""
        return float(self.values[0] / self.values[1]) if self.weight > 0 else 0.0

    @property
    def accuracy_by_position(self) -> list[float]:
        """For each slot, labels that were the likeliest token / labels."""
        num_slots = (len(self.values) - 5) // 2
        hits, scored = self.values[2 : 2 + num_slots], self.values[2 + num_slots : -3]
        return cast(list[float], (hits / scored.clamp(min=1)).tolist())

    @property
    def num_slots(self) -> int:
        """Slots that had a label."""
        num_slots = (len(self.values) - 5) // 2
        return int(self.values[2 + num_slots : -3].sum())

    @property
    def num_tokens(self) -> int:
        return int(self.values[-3])

    @property
    def num_anchors(self) -> int:
        return int(self.values[-2])

    @property
    def flops(self) -> float:
        """Forward and backward of drafter and head, as `cost/flops.py` counts them."""
        return float(self.values[-1])


class BlockInputs:
    """Embeddings of blocks: the anchor's own, then the mask token's."""

    def __init__(self, target: TargetModel, mask_token_id: int) -> None:
        self._embed = target.embed
        self._mask: Float[Tensor, "1 1 hidden"] = target.embed(torch.tensor([[mask_token_id]]))

    def __call__(
        self, anchor_ids: Int[Tensor, " blocks"], width: int
    ) -> Float[Tensor, "blocks width hidden"]:
        anchors = self._embed(anchor_ids)[:, None]
        return torch.cat((anchors, self._mask.expand(len(anchors), width - 1, -1)), dim=1)


@dataclass(frozen=True)
class StepParts:
    """What a micro-batch runs through; `model` is the (parallelized) BlockForward."""

    model: nn.Module
    shape: DrafterConfig
    source: FeatureSource
    inputs: BlockInputs
    objective: Objective
    precision: Precision
    device: torch.device

    def states(self, batch: Batch, layout: Layout) -> tuple[Tensor, Tensor | None]:
        """Drafted states [blocks, slots, hidden], and the target's final states if it gave them."""
        features = self.source.features(batch)
        embeddings = self.inputs(layout.anchor_ids, layout.width)
        taps = features.taps.to(self.device)
        with self.arithmetic():
            states = self.model(*self._in_dtype(taps, embeddings.to(self.device)), layout)
        assert isinstance(states, Tensor)
        return states, None if features.final is None else features.final.to(self.device)

    def train(self, batch: Batch) -> StepSums:
        """Forward and backward; gradients of the SUM of losses are added to `.grad`."""
        layout = lay_out(batch, self.device)
        states, final = self.states(batch, layout)
        scores = self.objective(states, layout.labels, final)
        scores.loss.backward()
        flops = step_flops(self.shape, work_of(self.shape, batch)).total
        return StepSums.of(scores, batch, flops)

    @torch.no_grad()
    def draft(self, batch: Batch, layout: Layout) -> Int[Tensor, "blocks slots"]:
        """The drafted target ids of every block."""
        states, _ = self.states(batch, layout)
        return self.objective.draft(states)

    def arithmetic(self) -> AbstractContextManager[object]:
        """bf16 products over fp32 weights, or everything as it is."""
        if self.precision == "bfloat16":
            return torch.autocast(self.device.type, torch.bfloat16)
        return nullcontext()

    def _in_dtype(self, *tensors: Tensor) -> list[Tensor]:
        dtype = torch.bfloat16 if self.precision == "bfloat16" else torch.float32
        return [tensor.to(dtype) for tensor in tensors]
