"""A folder that appears whole or not at all, and the files that are written into it.

It knows no format.
"""

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file  # pyright: ignore[reportUnknownVariableType]: bare PathLike
from torch import Tensor

from blockdraft.checkpoint.tensors import WEIGHTS_FILE
from blockdraft.errors import ConfigError


def refuse_existing(folder: Path) -> None:
    """Raise ConfigError unless `folder` can be made, or is an empty folder that can be replaced."""
    if folder.name in ("", ".."):
        raise ConfigError(
            f"{folder} can't be replaced by the folder that is written; give the name of a new one "
            "as --out"
        )
    if folder.is_symlink():
        what = "a folder" if folder.is_dir() else "a file" if folder.exists() else "nothing"
        raise ConfigError(
            f"{folder} is a symbolic link to {os.readlink(folder)} ({what} is there), and links "
            "are not followed; remove it, or give another --out"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(
            f"{folder} exists already and is not an empty folder; remove it or choose another --out"
        )
    above = folder.parent
    while not above.exists() and above != above.parent:
        above = above.parent
    if not above.is_dir():
        raise ConfigError(f"{folder} can't be made: {above} is no folder; choose another --out")
    if not os.access(above, os.W_OK | os.X_OK):
        raise ConfigError(f"can't write to {above} (no permission); choose another --out")


@contextmanager
def new_folder(folder: Path) -> Generator[Path, None, None]:
    """Gives an empty folder to fill, beside `folder`; it becomes `folder` at the end.

    An error in the block leaves nothing behind; what a killed run of the same name left is removed
    at the start. Raises ConfigError where `folder` can't be made.
    """
    refuse_existing(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch, handle = _make_scratch(folder)
    except OSError as error:
        raise ConfigError(
            f"can't write to {folder.parent} ({error.strerror}); choose another --out"
        ) from error
    try:
        yield scratch
        _settle(scratch)
        refuse_existing(folder)
        os.replace(scratch, folder)
        _sync(folder.parent)
    except (OSError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"writing {folder} failed ({reason}), so nothing was kept; make room or choose another"
            " --out"
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        os.close(handle)


def _make_scratch(folder: Path) -> tuple[Path, int]:
    """A new folder beside `folder`, and the handle whose lock says that it is in use.

    The lock ends with the process, however that ends. While the parent is locked no other run can
    be between making its folder and locking it, so what is unlocked was left behind.
    """
    prefix = f".{folder.name}.blockdraft-"
    parent = os.open(folder.parent, os.O_RDONLY)
    try:
        is_locked = _lock(parent, fcntl.LOCK_EX)
        if is_locked:
            for left in folder.parent.iterdir():
                if left.name.startswith(prefix) and left.is_dir() and not left.is_symlink():
                    _remove_unused(left)
        scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
        handle = os.open(scratch, os.O_RDONLY)
        _lock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(parent)
    return scratch, handle


def _remove_unused(scratch: Path) -> None:
    try:
        handle = os.open(scratch, os.O_RDONLY)
    except OSError:
        return  # gone meanwhile, or another user's
    try:
        if _lock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB):
            shutil.rmtree(scratch, ignore_errors=True)
    finally:
        os.close(handle)


def _lock(handle: int, kind: int) -> bool:
    """Whether the lock was taken: false where another has it, or the file system has no locks."""
    try:
        fcntl.flock(handle, kind)
    except OSError:
        return False
    return True


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """One JSON object, for people to read too."""
    text = json.dumps(value, indent=2, ensure_ascii=True, allow_nan=False)
    path.write_text(f"{text}\n", encoding="utf-8")


def write_weights(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """`model.safetensors` with copies of `tensors`, in the order of their names."""
    # Copies, since tensors that share memory can't be saved.
    plain = {name: tensors[name].detach().cpu().clone().contiguous() for name in sorted(tensors)}
    save_file(plain, folder / WEIGHTS_FILE, metadata={"format": "pt"})


def _settle(scratch: Path) -> None:
    """Usual permissions instead of a temporary folder's, and everything on disk."""
    scratch.chmod(0o755)
    for path in sorted(scratch.rglob("*")):
        if path.is_file():
            path.chmod(0o644)
        _sync(path)
    _sync(scratch)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
