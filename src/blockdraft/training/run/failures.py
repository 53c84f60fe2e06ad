"""What ends a run with a clear word: a loss or gradient that is not finite, memory that ran out.

It saves and loads nothing; the last checkpoint stays as it was.
"""

import math
from collections.abc import Sequence

import torch

from blockdraft.errors import NumericsError, TrainingFault

_CPU_OUT_OF_MEMORY = ("defaultcpuallocator: can't allocate memory", "not enough memory: you tried")
_SHOWN_ROWS = 8


def check_loss_finite(loss: float, rows: Sequence[int], step: int) -> None:
    """Raise NumericsError, naming the batch's sample rows, unless `loss` is finite."""
    if not math.isfinite(loss):
        raise NumericsError(
            f"step {step}: the loss is {loss} on {_named(rows)}; nothing was updated or saved:"
            " look at these samples, or resume with a lower learning rate"
        )


def check_gradient_finite(norm: float, rows: Sequence[int], step: int) -> None:
    """Raise NumericsError, naming the step's sample rows, unless the gradient norm is finite."""
    if not math.isfinite(norm):
        raise NumericsError(
            f"step {step}: the gradient norm is {norm} after {_named(rows)}; nothing was updated"
            " or saved: look at these samples, or resume with a lower learning rate"
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that the CPU or the accelerator had no memory left."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(part in text for part in _CPU_OUT_OF_MEMORY)


def out_of_memory(
    step: int, rows: Sequence[int], num_tokens: int, num_anchors: int
) -> TrainingFault:
    """The error to raise when the batch of `rows` did not fit into memory at `step`."""
    return TrainingFault(
        f"step {step}: out of memory on {_named(rows)} ({num_tokens} tokens, {num_anchors}"
        " anchors); the last checkpoint is intact: resume with run.recompute=true, or start anew"
        " with fewer tokens or anchors a row (packing)"
    )


def _named(rows: Sequence[int]) -> str:
    shown = ", ".join(str(row) for row in rows[:_SHOWN_ROWS])
    more = f" and {len(rows) - _SHOWN_ROWS} more" if len(rows) > _SHOWN_ROWS else ""
    return f"sample row{'s' if len(rows) != 1 else ''} {shown}{more}"
