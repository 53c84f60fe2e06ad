"""`RunStore`: measured runs in a file of lines, so that a sweep that was stopped goes on.

It measures nothing. Each run is on disk as soon as it is complete.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from blockdraft.data.durable import cut_torn_line
from blockdraft.errors import ConfigError
from blockdraft.tuning.observed import Observed

FILE_NAME = "runs.jsonl"


class RunStore:
    """Runs by name. `facts` are what they depend on: another machine's runs are refused.

    Without a folder they are kept in memory alone.
    """

    def __init__(self, folder: Path | None, facts: Mapping[str, object]) -> None:
        """Raises ConfigError for a folder of other facts, a damaged file, or one that can't be
        written."""
        self._path = None if folder is None else folder / FILE_NAME
        self._runs: dict[str, object] = {}
        self._facts = cast("dict[str, object]", json.loads(json.dumps(facts)))
        if self._path is not None:
            self._open(self._path)

    @property
    def num_kept(self) -> int:
        """Runs that an earlier call left here, and those added since."""
        return len(self._runs)

    def get(self, name: str) -> Observed | None:
        value = self._runs.get(name)
        return None if value is None else Observed.of_json(_object(value), self._where(name))

    def get_table(self, name: str) -> str | None:
        """The table that was kept with `add_table`."""
        value = self._runs.get(name)
        return value if isinstance(value, str) else None

    def add(self, name: str, run: Observed) -> None:
        self._keep(name, run.as_json())

    def add_table(self, name: str, text: str) -> None:
        self._keep(name, text)

    def _keep(self, name: str, value: object) -> None:
        self._runs[name] = value
        if self._path is not None:
            self._append({"name": name, "run": value})

    def _where(self, name: str) -> str:
        return f"{self._path}, run {name}"

    def _open(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            cut_torn_line(path)
            text = path.read_text(encoding="utf-8") if path.exists() else ""
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"can't use --out {path.parent}: {error}") from error
        lines = [_parsed(line, path, n) for n, line in enumerate(text.splitlines(), start=1)]
        if not lines:
            self._append({"facts": self._facts})
            return
        self._check(lines[0].get("facts"), path)
        for number, line in enumerate(lines[1:], start=2):
            name = line.get("name")
            if set(line) != {"name", "run"} or not isinstance(name, str):
                raise ConfigError(f"{path}, line {number}: not a run; measure into a new --out")
            self._runs[name] = line["run"]

    def _check(self, found: object, path: Path) -> None:
        if found == self._facts:
            return
        before = cast("dict[str, object]", found) if isinstance(found, dict) else {}
        changed = [key for key in self._facts if before.get(key) != self._facts[key]]
        raise ConfigError(
            f"{path} was measured under other conditions ({', '.join(changed) or 'unknown'} "
            "changed); give another --out, or the same arguments"
        )

    def _append(self, line: Mapping[str, object]) -> None:
        assert self._path is not None
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=True, allow_nan=False) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise ConfigError(f"can't write {self._path}: {error.strerror}") from error


def _parsed(line: str, path: Path, number: int) -> dict[str, object]:
    try:
        value: object = json.loads(line)
    except ValueError as error:
        raise ConfigError(
            f"{path}, line {number}: not JSON ({error}); measure into a new --out"
        ) from None
    return _object(value)


def _object(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ConfigError(f"a line of {FILE_NAME} is no object; measure into a new --out")
    return cast("dict[str, object]", value)
