"""How fast this machine multiplies matrices, and how much of that a training step uses.

It measures one product; what a step has to compute is in `flops.py`.
"""

import time
from collections.abc import Callable

import torch

Clock = Callable[[], float]
"""Seconds since some moment."""

PEAK_SIZE = 4096
PEAK_RUNS = 3


@torch.no_grad()
def measured_peak(
    n: int = PEAK_SIZE,
    dtype: torch.dtype = torch.bfloat16,
    *,
    device: str | torch.device = "cpu",
    clock: Clock = time.perf_counter,
) -> float:
    """Operations a second of a product of two n x n matrices: the best of three, after one more.

    With as many threads as torch has. Takes about ten seconds on a small CPU, and 4 n^2 numbers.
    """
    generator = torch.Generator().manual_seed(0)
    left = torch.randn(n, n, generator=generator).to(device, dtype)
    right = torch.randn(n, n, generator=generator).to(device, dtype)
    product = torch.empty(n, n, dtype=dtype, device=device)
    best = float("inf")
    for run in range(PEAK_RUNS + 1):
        _wait(left.device)
        start = clock()
        torch.mm(left, right, out=product)
        _wait(left.device)
        seconds = clock() - start
        if run > 0:  # the first one also chooses kernels and touches memory
            best = min(best, seconds)
    return 2 * n**3 / best


def utilization(flops: float, seconds: float, peak: float) -> float:
    """The share of the measured peak that was used: 1 = nothing but one large product."""
    assert seconds > 0 and peak > 0, "nothing was measured"
    return flops / seconds / peak


def _wait(device: torch.device) -> None:
    """CUDA returns before it is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
