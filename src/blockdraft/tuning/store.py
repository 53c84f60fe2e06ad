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


def check_folder(folder: Path, facts: Mapping[str, object]) -> None:
    """Raise the ConfigError that a `RunStore` of `folder` would, as far as these `facts` tell.

    It makes and changes nothing: it is for the time before models are loaded.
    """
    there = next((path for path in (folder, *folder.parents) if os.path.lexists(path)), folder)
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        what = "may not be written to" if there.is_dir() else "is no folder"
        raise ConfigError(f"can't use --out {folder}: {there} {what}; give another --out")
    path = folder / FILE_NAME
    lines = _read_lines(path)
    if lines:
        _check_facts(lines[0].get("facts"), _as_stored(facts), path)


class RunStore:
    """Runs by name. `facts` are what they depend on: another machine's runs are refused.

    Without a folder they are kept in memory alone.
    """

    def __init__(self, folder: Path | None, facts: Mapping[str, object]) -> None:
        """Raises ConfigError for a folder of other facts, a damaged file, or one that can't be
        written."""
        self.path = None if folder is None else folder / FILE_NAME
        self._runs: dict[str, object] = {}
        self._facts = _as_stored(facts)
        if self.path is not None:
            self._open(self.path)

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
        if self.path is not None:
            self._append({"name": name, "run": value})

    def _where(self, name: str) -> str:
        return f"{self.path}, run {name}"

    def _open(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            cut_torn_line(path)
        except OSError as error:
            raise ConfigError(f"can't use --out {path.parent}: {error}") from error
        lines = _read_lines(path)
        if not lines:
            self._append({"facts": self._facts})
            return
        if lines[0].get("facts") != self._facts:
            _check_facts(lines[0].get("facts"), self._facts, path, changed="unknown")
        for line in lines[1:]:
            self._runs[cast(str, line["name"])] = line["run"]

    def _append(self, line: Mapping[str, object]) -> None:
        assert self.path is not None
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=True, allow_nan=False) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise ConfigError(f"can't write {self.path}: {error.strerror}") from error


def _as_stored(facts: Mapping[str, object]) -> dict[str, object]:
    return cast("dict[str, object]", json.loads(json.dumps(facts)))


def _check_facts(
    found: object, facts: Mapping[str, object], path: Path, *, changed: str = ""
) -> None:
    """Refuse other facts than those found; `changed` is said where it can't be told which."""
    before = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    changed = ", ".join(key for key in facts if before.get(key) != facts[key]) or changed
    if changed:
        raise ConfigError(
            f"{path} was measured under other conditions ({changed} changed); give another --out, "
            "or the same arguments"
        )


def _read_lines(path: Path) -> list[dict[str, object]]:
    """The facts and the runs after them; of a torn last line nothing."""
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"can't use --out {path.parent}: {error}") from error
    whole = text[: text.rfind("\n") + 1].splitlines()
    lines = [_parsed(line, path, number) for number, line in enumerate(whole, start=1)]
    for number, line in enumerate(lines[1:], start=2):
        if set(line) != {"name", "run"} or not isinstance(line["name"], str):
            raise ConfigError(f"{path}, line {number}: not a run; measure into a new --out")
    return lines


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
