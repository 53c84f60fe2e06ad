"""`Recorder`: what runs of other engines gave, in one JSON document that is whole at any time.

It judges nothing; a run that failed is a record too.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from blockdraft.cli.hardware import describe_hardware

NAME = "results.json"
SHOWN = ("error", "tokens_per_second", "tau", "our_tau", "same_as_own_plain", "same_as_ours_plain")


class Recorder:
    """Records by name in `folder`/results.json; a run of the same name again replaces its own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / NAME
        self._records: dict[str, object] = {}
        if self._path.exists():
            self._records = cast(dict[str, object], json.loads(self._path.read_text("utf-8")))
        hardware = describe_hardware("cpu")
        self._records["machine"] = {"machine": hardware.machine, "software": hardware.software}
        self.num_errors = 0

    def keep(self, name: str, record: Mapping[str, object]) -> None:
        """Write the record down, and say the figures that matter most."""
        self._records[name] = dict(record)
        self.num_errors += "error" in record
        scratch = self._path.with_suffix(".tmp")
        with scratch.open("w", encoding="utf-8") as out:
            out.write(json.dumps(self._records, indent=1) + "\n")
            out.flush()
            os.fsync(out.fileno())
        scratch.replace(self._path)
        self.say(f"{name}: {summary(record)}")

    def say(self, line: str) -> None:
        """Progress, for a person."""
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def summary(record: Mapping[str, object]) -> str:
    """The record's main figures in a line."""
    parts: list[str] = []
    for key in SHOWN:
        value = record.get(key)
        if value is None:
            continue
        parts.append(f"{key} {value:.2f}" if isinstance(value, float) else f"{key} {value}")
    return ", ".join(parts) or "recorded"
