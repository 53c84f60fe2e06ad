"""One training at a time in a run folder. The lock goes with the process, however it ends."""

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from blockdraft.errors import ConfigError

LOCK_FILE = ".lock"


@contextmanager
def locked(folder: Path) -> Generator[None]:
    """Make `folder` if it is missing, and hold it. Raises ConfigError when it is held by another
    process, is no folder or can't be written to."""
    is_new = not folder.exists()
    lock = FileLock(folder / LOCK_FILE)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout as error:
        raise ConfigError(
            f"another training is running in {folder}: wait for it, or give another --out"
        ) from error
    except OSError as error:
        raise ConfigError(f"can't write to the run folder {folder}: {error.strerror}") from error
    try:
        yield
    finally:
        lock.release()
        if is_new and [path.name for path in folder.iterdir()] in ([], [LOCK_FILE]):
            # A mistake in the recipe leaves nothing behind.
            shutil.rmtree(folder, ignore_errors=True)
