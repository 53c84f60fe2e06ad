"""Files that are there completely or not at all, also when the machine goes down.

What is written is the callers' business.
"""

import json
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from blockdraft.errors import ConfigError
from blockdraft.json_values import read_object


@contextmanager
def new_file(path: Path) -> Generator[Path, None, None]:
    """Gives a path to write; it becomes `path` at the end, unless an error ends the block."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield unfinished
        sync(unfinished)
        unfinished.replace(path)
        sync(path.parent)
    finally:
        unfinished.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until a file or the entries of a folder are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """Write one JSON object, for people to read too."""
    with new_file(path) as unfinished:
        text = json.dumps(value, indent=2, ensure_ascii=True, allow_nan=False)
        unfinished.write_text(f"{text}\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, object]:
    """The JSON object of a file. Raises ConfigError when it is missing or something else."""
    try:
        return read_object(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"can't read {path} ({error}); make the folder again") from error


def cut_torn_line(path: Path) -> None:
    """Remove what follows the last line feed of a file of lines, if there is such a file."""
    if not path.exists():
        return
    with path.open("r+b") as file:
        size = end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - (1 << 16))
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            end = start + found + 1
            if found >= 0:
                break
        if end < size:
            file.truncate(end)
