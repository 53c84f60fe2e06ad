"""The user's cache directory for models that were made on this machine, and how they get there.

It knows nothing of models: a folder in it is complete or absent, however many processes want it.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from blockdraft.errors import FetchError


def cache_root() -> Path:
    """`$XDG_CACHE_HOME/blockdraft`, or `~/.cache/blockdraft`; not created here."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says that relative paths are to be ignored.
    base = Path(configured) if Path(configured).is_absolute() else Path.home() / ".cache"
    return base / "blockdraft"


def make_once(folder: Path, build: Callable[[Path], None]) -> Path:
    """`folder`, built by `build(empty folder)` unless it is there already.

    The folder appears under its name only when it is complete; a second process waits for the
    first one and then finds it. What `build` raises passes through and leaves nothing behind.
    """
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / f".{folder.name}.lock"):
            if not folder.is_dir():
                _build_beside(folder, build)
    except OSError as error:
        raise FetchError(
            f"can't write to {folder.parent} ({error.strerror}): make room or make it writable, "
            "or set XDG_CACHE_HOME to another directory"
        ) from error
    return folder


def _build_beside(folder: Path, build: Callable[[Path], None]) -> None:
    # In the same parent, so that the final rename stays on one file system and is atomic.
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        build(unfinished)
        unfinished.chmod(0o755)
        os.replace(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
