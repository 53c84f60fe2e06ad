"""The prompts that are part of the package, by the names of their sets.

They were written for this project and are given away (CC0); `sets/README.md` beside them says so.
"""

import hashlib
import json
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

from blockdraft.bench.prompt import JsonObject
from blockdraft.errors import ConfigError
from blockdraft.evaluation import read_prompt_rows

KINDS = ("math", "code", "chat", "reasoning", "extraction", "translation", "long")
MIXED = "mixed"
SETS = (*KINDS, MIXED)
LICENSE = "CC0-1.0"
MIXED_OF_EACH = 2


def read_set(name: str) -> tuple[str, list[tuple[str, JsonObject]]]:
    """The SHA-256 of a set, and its rows with what an error calls them.

    "mixed" has some of each kind in turn, the long ones last in each turn. Raises ConfigError for
    a name that is none of SETS.
    """
    if name not in SETS:
        raise ConfigError(f"no workload is called {name!r}; there are {', '.join(SETS)}")
    if name != MIXED:
        return _read(name)
    many = [_read(kind)[1][:MIXED_OF_EACH] for kind in KINDS]
    rows = [row for turn in zip(*many, strict=True) for row in turn]
    return digest_of(row for _, row in rows), rows


def digest_of(rows: Iterable[object]) -> str:
    """SHA-256 of values as JSON lines, for prompts that are no file by themselves."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(row, sort_keys=True).encode() + b"\n")
    return digest.hexdigest()


def _read(name: str) -> tuple[str, list[tuple[str, JsonObject]]]:
    path = Path(str(files("blockdraft.bench") / "sets" / f"{name}.jsonl"))
    file = read_prompt_rows(path)
    return file.sha256, [(f"workload {name}, line {number}", row) for number, row in file.rows]
