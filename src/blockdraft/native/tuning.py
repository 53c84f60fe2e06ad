"""Chooses kernels by measuring them on this machine, once, when a model is loaded.

Only kernels that read the same weight values compete, so the choice changes speed and never what
the model is. It decides nothing about dtypes but `faster_dtype`, which the caller asks for.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from blockdraft.native.linear import PACKED, PLAIN, KernelPlan, Linear, dense_linear, only

Clock = Callable[[], float]

MEASURED_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
REPEATS = 4
SAMPLE_BYTES = 96e6
"""Weights to measure on: more than the caches hold, so that memory is part of the figure."""

WORTH_PADDING = 0.9
"""A padded pass must be this much faster, or noise would decide."""

MOST_PADDING = 2
"""Times the rows; far beyond, attention and norms over pad rows would show."""

WORTH_SWITCHING = 0.75
"""Another kernel than the overall best must be this much faster: it costs a second layout."""


def measure_plan(
    linears: Sequence[Linear], dtype: torch.dtype, clock: Clock, *, on_cpu: bool
) -> KernelPlan:
    """The fastest kernel for each number of rows, over a sample of `linears`.

    Where there is no choice (float64, other devices than the CPU) nothing is measured.

    All linears of a model offer the same kernels but for odd shapes; a kernel that some of the
    sample lack does not compete.
    """
    sample = _sample(linears)
    names = [k for k in sample[0].kernels if all(k in linear.kernels for linear in linears)]
    if len(names) == 1 and (dtype == torch.float64 or not on_cpu):
        return only(names[0])
    seconds: dict[str, list[float]] = {}
    for name in names:
        for linear in sample:
            linear.prepare(only(name), final=False)
        seconds[name] = [_time(sample, rows, dtype, clock) for rows in MEASURED_ROWS]
    return choose_plan(MEASURED_ROWS, seconds)


def fixed_kernel(linears: Sequence[Linear]) -> str:
    """The kernel to take where the choice may not depend on timing: packed where all have it."""
    return PACKED if all(PACKED in linear.kernels for linear in linears) else PLAIN


def choose_plan(rows: Sequence[int], seconds: dict[str, list[float]]) -> KernelPlan:
    """The plan that measured `seconds` (kernel -> a figure for each of `rows`) suggest.

    A number of rows between two measured ones takes the kernel of the next larger one.
    """
    overall = min(seconds, key=lambda name: sum(seconds[name]))
    best: list[str] = []
    for i in range(len(rows)):
        fastest = min(seconds, key=lambda name: seconds[name][i])
        switches = seconds[fastest][i] < WORTH_SWITCHING * seconds[overall][i]
        best.append(fastest if switches else overall)
    times = [seconds[name][i] for i, name in enumerate(best)]
    kernels, padded = [best[0]], [0]
    for num_rows in range(1, rows[-1] + 1):
        at = next(i for i, measured in enumerate(rows) if measured >= num_rows)
        kernels.append(best[at])
        near = [i for i in range(at, len(rows)) if rows[i] <= max(MOST_PADDING * num_rows, 8)]
        cheapest = min(near or [at], key=lambda i: times[i])
        worth = times[cheapest] < WORTH_PADDING * times[at]
        padded.append(rows[cheapest] if worth else num_rows)
    return KernelPlan(tuple(kernels), tuple(padded))


def faster_dtype(weights: Sequence[Float[Tensor, "out in"]], clock: Clock) -> torch.dtype:
    """float32 or bfloat16, whichever multiplies one and eight rows faster here (best kernels).

    On other devices than the CPU bfloat16 is known to be it.
    """
    if weights[0].device.type != "cpu":
        return torch.bfloat16
    totals: dict[torch.dtype, float] = {}
    for dtype in (torch.float32, torch.bfloat16):
        linears = [dense_linear(weight.to(dtype), None) for weight in weights]
        sample = _sample(linears)
        best = [float("inf"), float("inf")]
        for name in sample[0].kernels:
            for linear in sample:
                linear.prepare(only(name), final=False)
            timed = [_time(sample, rows, dtype, clock) for rows in (1, 8)]
            best = [min(pair) for pair in zip(best, timed, strict=True)]
        streamed = sum(linear.num_bytes for linear in sample)
        totals[dtype] = sum(best) / streamed * torch.finfo(dtype).bits
    return min(totals, key=lambda dtype: totals[dtype])


def _sample(linears: Sequence[Linear]) -> list[Linear]:
    sample: list[Linear] = []
    num_bytes = 0
    for linear in linears:
        sample.append(linear)
        num_bytes += linear.num_bytes
        if num_bytes >= SAMPLE_BYTES:
            break
    return sample


def _time(sample: Sequence[Linear], rows: int, dtype: torch.dtype, clock: Clock) -> float:
    inputs = {linear.num_in: torch.ones(rows, linear.num_in, dtype=dtype) for linear in sample}
    return best_seconds(
        lambda: [linear(inputs[linear.num_in]) for linear in sample], clock, REPEATS + 1
    )


def best_seconds(run: Callable[[], object], clock: Clock, num_runs: int) -> float:
    """The fastest of a few runs, so that one disturbance or a cold start does not decide."""
    best = float("inf")
    for _ in range(num_runs):
        started = clock()
        run()
        best = min(best, clock() - started)
    return best
