"""Top-p over a large vocabulary against sorting all of it; the rest is in test_rows.py."""

import pytest
import torch
from torch import Tensor

from blockdraft.decoding.shaping import NEVER, keep_top_p


def by_sorting_everything(logits: Tensor, p: float) -> Tensor:
    ordered, order = logits.sort(descending=True, stable=True)
    probs = ordered.double().softmax(-1)
    dropped = torch.zeros_like(order, dtype=torch.bool)
    dropped[order] = probs.cumsum(-1) - probs >= p
    return logits.masked_fill(dropped, NEVER)


@pytest.mark.parametrize("size", [5, 600, 3000])
@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("p", [0.05, 0.5, 0.9, 0.999])
def test_few_or_all_sorted_keep_the_same(size: int, scale: float, p: float) -> None:
    # Flat rows need more than the few that are tried first, peaked ones do not.
    logits = torch.randn(size, generator=torch.Generator().manual_seed(size)) * scale
    rounded = (logits * 2).round() / 2  # many equals
    for row in (logits, rounded):
        assert torch.equal(keep_top_p(row, p), by_sorting_everything(row, p))


def test_equals_are_kept_from_the_lowest_id_on() -> None:
    row = torch.zeros(2000)
    kept = (keep_top_p(row, 0.25) > NEVER).nonzero()[:, 0]
    assert torch.equal(kept, torch.arange(500))


def test_forbidden_tokens_stay_forbidden() -> None:
    row = torch.full((2000,), NEVER)
    row[[3, 700]] = torch.tensor([1.0, 1.5])
    assert torch.equal(
        keep_top_p(row, 0.5), torch.full((2000,), NEVER).index_fill(0, torch.tensor(700), 1.5)
    )
    assert torch.equal(keep_top_p(row, 0.9), row)
