"""`Objective`: head, loss and the gradient of the drafted states, some blocks at a time.

Logits of all slots at once would be the largest tensor of a training by far, so each chunk of
blocks is scored and differentiated on the spot; only the gradient of its states is kept. The head
is frozen: no gradient is computed for it.

Shape legend: blocks = anchors, slots = drafted slots of a block, tokens = rows of the context.
"""

from typing import NamedTuple, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from blockdraft.training.batches.layout import Labels
from blockdraft.training.frozen_head import FrozenHead
from blockdraft.training.loss import LossConfig, TargetProbs, slot_losses, slot_weights
from blockdraft.training.vocabulary import DraftVocabulary

CHUNK_SLOTS = 512
"""Slots whose logits exist at once."""


class Scores(NamedTuple):
    """What a batch of blocks scored.

    `loss` is the SUM of weighted slot losses (its gradient reaches the states), `weight` the sum of
    the weights; the mean loss is their ratio, over everything that one step takes in. `hits` tells
    whether a slot's likeliest token is its label, `scored` whether it has one.
    """

    loss: Tensor
    weight: Tensor
    hits: Bool[Tensor, "blocks slots"]
    scored: Bool[Tensor, "blocks slots"]


class _Chunk(NamedTuple):
    loss: Tensor
    weight: Tensor
    hits: Tensor
    gradient: Tensor


class Objective:
    """The loss of drafted states under one configuration.

    `vocabulary` None = the whole of the target's, whose head `head` then is; otherwise `head` has
    its rows. `target_head` is the whole head, needed by losses that learn from the target's
    distribution.
    """

    def __init__(
        self,
        config: LossConfig,
        head: FrozenHead,
        block_size: int,
        *,
        vocabulary: DraftVocabulary | None = None,
        target_head: FrozenHead | None = None,
        output_multiplier: float = 1.0,
        softcap: float | None = None,
    ) -> None:
        assert target_head is not None or not config.needs_target_logits
        self.config = config
        self.block_size = block_size
        self._head = head
        self._target_head = target_head
        self._multiplier = output_multiplier
        self._softcap = softcap
        self._draft_ids = None if vocabulary is None else vocabulary.ids.to(head.weight.device)
        table = None if vocabulary is None else vocabulary.to_draft()
        self._to_draft = None if table is None else table.to(head.weight.device)

    def __call__(
        self,
        states: Float[Tensor, "blocks slots hidden"],
        labels: Labels,
        final: Float[Tensor, "tokens hidden"] | None = None,
    ) -> Scores:
        """Score all blocks. `final` = inputs of the target's head, for losses that need them."""
        per_chunk = max(1, CHUNK_SLOTS // max(1, states.shape[1]))
        with_gradient = torch.is_grad_enabled() and states.requires_grad
        chunks: list[_Chunk] = []
        for first in range(0, states.shape[0], per_chunk):
            part = slice(first, first + per_chunk)
            cut = Labels(labels.ids[part], labels.rows[part])
            chunks.append(self._chunk(states[part].detach(), cut, final, with_gradient))
        loss = torch.stack([chunk.loss for chunk in chunks]).sum()
        if with_gradient:
            gradient = torch.cat([chunk.gradient for chunk in chunks])
            attached: object = _KnownGradient.apply(states, gradient, loss)  # pyright: ignore[reportUnknownVariableType]: apply is untyped
            assert isinstance(attached, Tensor)
            loss = attached
        return Scores(
            loss,
            torch.stack([chunk.weight for chunk in chunks]).sum(),
            torch.cat([chunk.hits for chunk in chunks]),
            labels.ids >= 0,
        )

    def draft(self, states: Float[Tensor, "*rows hidden"]) -> Int[Tensor, "*rows"]:
        """The likeliest target id of each state."""
        flat = states.flatten(0, -2)
        best = [self._logits(part).argmax(-1) for part in torch.split(flat, CHUNK_SLOTS)]
        chosen = torch.cat(best).view(states.shape[:-1])
        return chosen if self._draft_ids is None else self._draft_ids[chosen]

    def _chunk(
        self, states: Tensor, labels: Labels, final: Tensor | None, with_gradient: bool
    ) -> _Chunk:
        known = self._in_vocabulary(labels.ids)
        target = self._target_probs(labels, final)
        with torch.enable_grad() if with_gradient else torch.no_grad():
            leaf = states.requires_grad_(with_gradient)
            flat = self._logits(leaf.flatten(0, 1))
            logits = flat.view(*states.shape[:2], flat.shape[-1])
            slots = slot_losses(logits, known, self.config, target)
            scored = labels.ids >= 0
            weights = slot_weights(scored, slots.probs, self.config, self.block_size)
            if self.config.name == "ce":
                # A label that can't be drafted teaches nothing, but it did end the block above.
                weights = weights * (known >= 0)
            loss = (weights * slots.losses).sum()
            gradient = states
            if with_gradient:
                (gradient,) = torch.autograd.grad(loss, leaf)
        return _Chunk(loss.detach(), weights.sum(), slots.hits, gradient)

    def _logits(self, states: Float[Tensor, "rows hidden"]) -> Float[Tensor, "rows vocab"]:
        """As `BlockDrafter.scores`: multiplier and soft-cap of the drafter, in fp32."""
        logits = self._head.logits(states) * self._multiplier
        return logits if self._softcap is None else self._softcap * (logits / self._softcap).tanh()

    def _in_vocabulary(self, ids: Int[Tensor, "blocks slots"]) -> Int[Tensor, "blocks slots"]:
        """Draft ids of the labels; -1 where there is none."""
        if self._to_draft is None:
            return ids
        return torch.where(ids >= 0, self._to_draft[ids.clamp(min=0)], -1)

    def _target_probs(self, labels: Labels, final: Tensor | None) -> TargetProbs | None:
        if not self.config.needs_target_logits:
            return None
        assert final is not None and self._target_head is not None
        with torch.no_grad():
            logits = self._target_head.logits(final[labels.rows.flatten()])
            probs = logits.softmax(-1)
            if self._draft_ids is not None:
                probs = probs[:, self._draft_ids]
            # A slot without a label says nothing, whatever its loss.
            return TargetProbs(probs.view(*labels.ids.shape, probs.shape[-1]))


class _KnownGradient(torch.autograd.Function):
    """A value whose gradient with respect to `states` has been computed already."""

    @staticmethod
    def forward(ctx: FunctionCtx, states: Tensor, gradient: Tensor, value: Tensor) -> Tensor:
        del states
        ctx.save_for_backward(gradient)
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]: torch's own is (ctx, *grads)
        ctx: "_Saved", outer: Tensor
    ) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * outer, None, None


class _Saved(Protocol):
    """What the forward of `_KnownGradient` leaves for its backward."""

    @property
    def saved_tensors(self) -> tuple[Tensor]: ...
