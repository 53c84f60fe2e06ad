"""A folder of results that appears whole or not at all.

It knows no file in it except the manifest, by which it tells folders of ours from others.
"""

import errno
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from blockdraft.data.durable import sync
from blockdraft.data.manifest import MANIFEST_FILE
from blockdraft.errors import ConfigError

_REFUSED_BY_DISK = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS),
        *(errno.EACCES, errno.EPERM, errno.EEXIST, errno.ENOTDIR, errno.EISDIR),
    }
)


@contextmanager
def writing(place: Path, remedy: str) -> Generator[None]:
    """What a disk refuses in the block (full, read-only, not allowed) becomes a ConfigError.

    It names `place` and what can be done; other errors pass.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _REFUSED_BY_DISK:
            raise
        raise ConfigError(f"can't write to {place}: {error.strerror}; {remedy}") from error


def check_new_folder(folder: Path, *, overwrite: bool) -> None:
    """Raise ConfigError unless results may be written to `folder`.

    Only data that `blockdraft data` made is ever overwritten: a folder with a manifest.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not folder.is_dir():
        raise ConfigError(f"{folder} is a file: name a folder")
    if not overwrite:
        raise ConfigError(f"{folder} is not empty: name another folder, or add --overwrite")
    if not (folder / MANIFEST_FILE).is_file():
        raise ConfigError(
            f"{folder} has no {MANIFEST_FILE}, so it may hold other things than data made here and "
            "is not overwritten: remove it yourself, or name another folder"
        )


@contextmanager
def new_folder(folder: Path, *, overwrite: bool = False) -> Generator[Path, None, None]:
    """Gives an empty folder to fill; it becomes `folder` when the block ends without an error.

    After an error nothing is left and `folder` is as it was. Raises ConfigError like
    `check_new_folder`.
    """
    check_new_folder(folder, overwrite=overwrite)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise ConfigError(f"can't write to {folder.parent}: {error.strerror}") from error
    try:
        with writing(folder.parent, "nothing was written; make room, or name another folder"):
            yield unfinished
            unfinished.chmod(0o755)  # mkdtemp makes it private
            for path in unfinished.iterdir():
                sync(path)
            _put_in_place(unfinished, folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    sync(folder.parent)


def _put_in_place(unfinished: Path, folder: Path) -> None:
    if not folder.exists() or not any(folder.iterdir()):
        unfinished.rename(folder)  # which may replace an empty folder
        return
    old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
    folder.rename(old)
    try:
        unfinished.rename(folder)
    except OSError:
        old.rename(folder)
        raise
    shutil.rmtree(old)
