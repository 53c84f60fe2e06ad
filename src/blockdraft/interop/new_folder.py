"""A folder that appears whole or not at all, and the files that are written into it.

It knows no format.
"""

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
    """Raise ConfigError when `folder` is a file, or a folder that holds anything."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(
            f"{folder} exists already and is not an empty folder; remove it or choose another --out"
        )


@contextmanager
def new_folder(folder: Path) -> Generator[Path, None, None]:
    """Gives an empty folder to fill, beside `folder`; it becomes `folder` at the end.

    An error in the block leaves nothing behind. Raises ConfigError where `folder` can't be made.
    """
    refuse_existing(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
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
