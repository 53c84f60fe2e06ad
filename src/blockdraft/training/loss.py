"""Losses of drafted slots and the weights between slots, on logits in fp32 or wider.

Pure functions; the head and the order of computation are `objective.py`'s.

Shape legend: blocks = anchors, slots = drafted slots of a block, vocab = draft vocabulary.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from blockdraft.errors import ConfigError

LossName = Literal["ce", "kl", "tv", "lk"]
Weighting = Literal["decay", "dpace", "uniform"]

DECAY_OF_BLOCK = {16: 7.0, 10: 5.0, 8: 4.0}
"""Paper, section 4.1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossConfig:
    """What a slot's loss is, and how slots are weighted against each other.

    `name`: ce = the text's own token; kl = the target's distribution; tv = total variation, 1 - the
    probability that a sampled draft is accepted; lk = lambda * kl + (1 - lambda) * tv with
    lambda = exp(-`lk_eta` * acceptance), detached. `weighting`: decay = exp(-(k - 1) / gamma);
    dpace = D-PACE (arXiv 2605.18810); uniform. `gamma` None = the paper's for the block size.
    """

    name: LossName = "ce"
    weighting: Weighting = "decay"
    gamma: float | None = None
    dpace_alpha: float = 0.5
    lk_eta: float = 3.0

    def __post_init__(self) -> None:
        for given, allowed, what in (
            (self.name, ("ce", "kl", "tv", "lk"), "loss"),
            (self.weighting, ("decay", "dpace", "uniform"), "weighting"),
        ):
            if given not in allowed:
                raise ConfigError(f"{what} is {given!r}; give one of {', '.join(allowed)}")
        if self.gamma is not None and not self.gamma > 0:
            raise ConfigError(f"gamma is {self.gamma}; give a positive number of slots")
        if not 0 <= self.dpace_alpha < 1:
            raise ConfigError(f"dpace_alpha is {self.dpace_alpha}; give one from 0 to below 1")
        if not self.lk_eta > 0:
            raise ConfigError(f"lk_eta is {self.lk_eta}; give a positive number")

    @property
    def needs_target_logits(self) -> bool:
        """Whether the target's own distribution is part of the loss."""
        return self.name != "ce"

    def gamma_for(self, block_size: int) -> float:
        """The decay length: as set, else the paper's; (B - 1) / 2 for other sizes of block."""
        if self.gamma is not None:
            return self.gamma
        return DECAY_OF_BLOCK.get(block_size, max(1.0, (block_size - 1) / 2))


class TargetProbs(NamedTuple):
    """The target's distribution at each slot, over the draft vocabulary.

    Taken over the whole vocabulary first: with a reduced one the rows sum to less than 1.
    """

    probs: Float[Tensor, "blocks slots vocab"]


class SlotLosses(NamedTuple):
    """`losses` per slot, `probs` the drafter's probability of the label (detached; 0 where the
    label is outside the draft vocabulary), `hits` whether its likeliest token is the label."""

    losses: Float[Tensor, "blocks slots"]
    probs: Float[Tensor, "blocks slots"]
    hits: Bool[Tensor, "blocks slots"]


def slot_losses(
    logits: Float[Tensor, "blocks slots vocab"],
    labels: Int[Tensor, "blocks slots"],
    config: LossConfig,
    target: TargetProbs | None = None,
) -> SlotLosses:
    """The loss of every slot. Labels below 0 (none, or outside the vocabulary) have loss 0.

    `target` is needed by all losses but ce.
    """
    logprobs = logits.log_softmax(-1)
    known = labels >= 0
    own = logprobs.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    hits = (logits.argmax(-1) == labels) & known
    probs = own.detach().exp() * known
    if config.name == "ce":
        return SlotLosses(-own * known, probs, hits)
    assert target is not None, f"{config.name} needs the target's distribution"
    return SlotLosses(_soft_losses(logprobs, target.probs, config), probs, hits)


def _soft_losses(logprobs: Tensor, target: Tensor, config: LossConfig) -> Tensor:
    if config.name == "kl":
        return _kl(logprobs, target)
    accepted = torch.minimum(logprobs.exp(), target).sum(-1)
    if config.name == "tv":
        return 1 - accepted
    mix = torch.exp(-config.lk_eta * accepted.detach())
    return mix * _kl(logprobs, target) + (1 - mix) * (1 - accepted)


def _kl(logprobs: Tensor, target: Tensor) -> Tensor:
    # xlogy is 0 where the target's probability is, as the limit of p log p.
    return (torch.xlogy(target, target) - target * logprobs).sum(-1)


def slot_weights(
    scored: Bool[Tensor, "blocks slots"],
    probs: Float[Tensor, "blocks slots"],
    config: LossConfig,
    block_size: int,
) -> Float[Tensor, "blocks slots"]:
    """Weights of the slots, 0 where `scored` is False; no gradient flows through them.

    `scored` = the slot has a label; `probs` = the drafter's probability of it.
    """
    if config.weighting == "dpace":
        return dpace_weights(scored, probs, config.dpace_alpha)
    if config.weighting == "uniform":
        return scored.to(probs.dtype)
    slots = torch.arange(scored.shape[1], device=scored.device, dtype=probs.dtype)
    return torch.exp(-slots / config.gamma_for(block_size)) * scored


def dpace_weights(
    scored: Bool[Tensor, "blocks slots"], probs: Float[Tensor, "blocks slots"], alpha: float
) -> Float[Tensor, "blocks slots"]:
    """D-PACE: w_j = sum over m >= j of prod over i <= m of ((1 - alpha) * p_i + alpha).

    A slot weighs as much as the acceptance length depends on it. Slots without a label count
    neither in the products nor in the sums.
    """
    softened = torch.where(scored, (1 - alpha) * probs + alpha, 1.0)
    reached = softened.cumprod(1) * scored
    return reached.flip(1).cumsum(1).flip(1) * scored
