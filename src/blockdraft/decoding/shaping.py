"""Reshaping a row without touching its most likely token: temperature, top-k, top-p, min-p.

Pure functions on one row of logits; -inf stands for probability 0. `chain.py` sets their order.
"""

import math

import torch

from blockdraft.decoding.rows import VocabRow

NEVER = float("-inf")


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
    """Keep a token while the mass of all more likely ones is below `p` (the reference's rule)."""
    ordered, order = logits.sort(descending=True, stable=True)
    probs = ordered.double().softmax(-1)
    mass_before = probs.cumsum(-1) - probs
    dropped = torch.zeros_like(order, dtype=torch.bool).index_copy(0, order, mass_before >= p)
    return logits.masked_fill(dropped, NEVER)


def keep_min_p(logits: VocabRow, min_p: float) -> VocabRow:
    """Keep tokens at least `min_p` (> 0) times as likely as the most likely one."""
    return logits.masked_fill(logits < logits.max() + math.log(min_p), NEVER)
