"""What a checkpoint records of its own making: so far, how long its acceptance was measured to be.

The file is optional; published checkpoints have none.
"""

import json
import math
from pathlib import Path

from blockdraft.checkpoint.tensors import read_json
from blockdraft.errors import CheckpointError

PROVENANCE_FILE = "provenance.json"
TAU_KEY = "acceptance_length"


def read_recorded_tau(folder: Path, source: str) -> float | None:
    """The acceptance length that the drafter's makers measured; None when nothing is recorded.

    Raises CheckpointError for a file that is damaged or records what can't be one.
    """
    if not (folder / PROVENANCE_FILE).exists():
        return None
    value = read_json(folder / PROVENANCE_FILE, source).get(TAU_KEY)
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        tau = float(value)
        if math.isfinite(tau) and tau >= 1:
            return tau
    raise CheckpointError(
        f"{source}: {PROVENANCE_FILE} has {TAU_KEY} {value!r}, expected a number of at least 1 "
        "(tokens committed per verification); correct or remove it"
    )


def write_recorded_tau(folder: Path, tau: float) -> None:
    """Record an acceptance length beside the checkpoint in `folder`."""
    text = json.dumps({TAU_KEY: tau}, indent=2)
    (folder / PROVENANCE_FILE).write_text(f"{text}\n", encoding="utf-8")
