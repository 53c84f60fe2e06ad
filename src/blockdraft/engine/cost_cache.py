"""Keeps measured cost models on disk, one file for each combination that changes them.

A file that is missing, damaged or of another format is simply measured again.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from blockdraft.builtin.model_cache import cache_root
from blockdraft.engine.costs import CostModel
from blockdraft.errors import ConfigError


def cost_file(facts: Mapping[str, str]) -> Path:
    """Where the costs under these facts (machine, models, dtype, threads, versions) are kept."""
    digest = hashlib.sha256(json.dumps(dict(facts), sort_keys=True).encode()).hexdigest()[:20]
    return cache_root() / "costs" / f"{digest}.json"


def read_costs(path: Path) -> CostModel | None:
    try:
        return CostModel.from_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ConfigError):
        return None


def write_costs(path: Path, costs: CostModel) -> None:
    """Atomic; a cache that can't be written is no error."""
    unfinished = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(costs.to_json(), encoding="utf-8")
        unfinished.replace(path)
    except OSError:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
