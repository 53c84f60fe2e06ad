"""Reshaping a row without touching its most likely token: temperature, top-k, top-p, min-p.

Pure functions on one row of logits; -inf stands for probability 0. `chain.py` sets their order.
"""

import math

import torch
from torch import Tensor

from blockdraft.decoding.rows import VocabRow

NEVER = float("-inf")

_FEW = 512


def apply_temperature(logits: VocabRow, temperature: float) -> VocabRow:
    """Divide by the temperature (> 0)."""
    return logits / temperature


def keep_top_k(logits: VocabRow, k: int) -> VocabRow:
    """Keep the `k` (>= 1) most likely tokens, and every token as likely as the k-th."""
    if k >= logits.shape[-1]:
        return logits
    threshold = logits.topk(k).values[-1]
    return logits.masked_fill(logits < threshold, NEVER)


def keep_top_p(logits: VocabRow, p: float) -> VocabRow:
    """Keep a token while the mass of all more likely ones is below `p` (the reference's rule).

    Among equals the lower id counts as the more likely one.
    """
    probs = logits.double().softmax(-1)
    likely = _enough_for(logits, probs, p)
    order = logits[likely].sort(descending=True, stable=True).indices
    likely = likely[order]
    mass = probs[likely]
    kept = likely[mass.cumsum(-1) - mass < p]
    return torch.full_like(logits, NEVER).index_copy(0, kept, logits[kept])


def _enough_for(logits: VocabRow, probs: Tensor, p: float) -> Tensor:
    """Ids of the most likely tokens, ascending, with a mass of at least `p`: few, where few are
    enough, since sorting a whole vocabulary costs more than all the rest of a step."""
    if logits.shape[-1] > _FEW:
        # Strictly more likely ones only: which of several equals topk takes is not defined.
        few = (logits > logits.topk(_FEW).values[-1]).nonzero()[:, 0]
        if float(probs[few].sum()) >= p:
            return few
    return torch.arange(logits.shape[-1], device=logits.device)


def keep_min_p(logits: VocabRow, min_p: float) -> VocabRow:
    """Keep tokens at least `min_p` (> 0) times as likely as the most likely one."""
    return logits.masked_fill(logits < logits.max() + math.log(min_p), NEVER)
