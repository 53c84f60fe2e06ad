"""How the server's threads share the processor: the engine's, torch's and the one for HTTP.

It measures nothing; docs/serving.md has the figures.
"""

import os
import sys
from collections.abc import Mapping

import torch

SPARE_FROM = 4
"""Cores from which on one is left to HTTP: below, the engine would miss it more."""

THREADS_VARIABLE = "OMP_NUM_THREADS"
"""The environment variable from which torch takes its number of threads."""

SWITCH_SECONDS = 0.001
"""How long a thread may hold the interpreter while another one wants it (Python's own: 0.005).

Each pass of a small model takes a few milliseconds, so parsing one request must not hold it up for
as long as a pass.
"""


def engine_threads(asked: int | None, num_cores: int, environment: Mapping[str, str]) -> int:
    """Threads for torch: what was asked for, else torch's own number where the environment sets it.

    Without either one a core, with one left to HTTP if it can be.
    """
    if asked is not None:
        return asked
    if environment.get(THREADS_VARIABLE):
        return torch.get_num_threads()
    return num_cores - 1 if num_cores >= SPARE_FROM else max(1, num_cores)


def num_usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def share_interpreter() -> None:
    """Have the interpreter change hands often enough that HTTP and the engine don't wait long."""
    sys.setswitchinterval(SWITCH_SECONDS)
