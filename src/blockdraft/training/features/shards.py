"""One safetensors file of cached features: written in one piece, read by slices of the mapped file.

Which sample lies where is the index's business (`index.py`).

Tensors of a shard, a row for each token:

    taps           [tokens, taps * hidden]   bf16 or fp8
    final          [tokens, hidden]          only in caches for soft labels
    taps.scale     [tokens, taps]            only in fp8
    final.scale    [tokens, 1]               likewise
"""

import os
from pathlib import Path
from typing import NamedTuple, Protocol, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file  # pyright: ignore[reportUnknownVariableType]: bare PathLike
from torch import Tensor

from blockdraft.data.durable import sync
from blockdraft.data.manifest import sha256_of
from blockdraft.errors import ConfigError
from blockdraft.training.batches.batch import TargetFeatures
from blockdraft.training.features.format import STORED, FeatureKind, Stored, encode
from blockdraft.training.features.index import AGAIN, ShardEntry

_READ_BYTES = 1 << 20


class ShardBuffer:
    """Features of one shard before they are written: filled from the first token to the last."""

    def __init__(self, kind: FeatureKind, num_tokens: int) -> None:
        self._kind = kind
        self._filled = 0
        self.tensors: dict[str, Tensor] = {}
        parts = {"taps": len(kind.taps)} | ({"final": 1} if kind.final else {})
        for name, num_parts in parts.items():
            shape = (num_tokens, num_parts * kind.hidden_size)
            self.tensors[name] = torch.empty(shape, dtype=STORED[kind.dtype])
            if kind.dtype == "fp8":
                self.tensors[f"{name}.scale"] = torch.empty(num_tokens, num_parts)

    def add(self, features: TargetFeatures) -> None:
        """Round and append the rows of `features`."""
        end = self._filled + features.taps.shape[0]
        self._put("taps", features.taps, len(self._kind.taps), end)
        if self._kind.final:
            assert features.final is not None, "the source gives no final states"
            self._put("final", features.final, 1, end)
        self._filled = end

    def _put(self, name: str, rows: Tensor, num_parts: int, end: int) -> None:
        stored = encode(rows, self._kind.dtype, num_parts)
        self.tensors[name][self._filled : end] = stored.values
        if stored.scale is not None:
            self.tensors[f"{name}.scale"][self._filled : end] = stored.scale


class WrittenFile(NamedTuple):
    """Size and SHA-256 of a file that is on disk."""

    num_bytes: int
    sha256: str


def write_shard(path: Path, tensors: dict[str, Tensor]) -> WrittenFile:
    """Write `tensors` to `path`, which appears complete or not at all.

    Raises ConfigError when the disk does not take it.
    """
    unfinished = path.with_name(f".{path.name}.tmp")
    try:
        save_file(tensors, unfinished)
        with unfinished.open("rb+") as file:
            os.fsync(file.fileno())
        written = WrittenFile(unfinished.stat().st_size, sha256_of(unfinished))
        unfinished.replace(path)
        sync(path.parent)
    except (OSError, SafetensorError) as error:
        raise ConfigError(
            f"{path} can't be written ({error}): make room or choose another folder; the same "
            "command goes on where it stopped"
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)
    return written


def check_size(folder: Path, entry: ShardEntry) -> None:
    """Raise ConfigError for a shard that is missing or of another size than when written."""
    path = folder / entry.file
    found = path.stat().st_size if path.is_file() else None
    if found != entry.num_bytes:
        said = "is missing" if found is None else f"has {found} bytes, not {entry.num_bytes}"
        raise ConfigError(f"{path} {said}: {AGAIN}")


def check_hash(folder: Path, entry: ShardEntry) -> None:
    """Raise ConfigError for a shard whose bytes have changed since it was written."""
    path = folder / entry.file
    if sha256_of(path) != entry.sha256:
        raise ConfigError(f"{path} is damaged (its SHA-256 is not that of the index): {AGAIN}")


class ShardReader:
    """An open shard; slices come straight from the mapped file."""

    def __init__(self, path: Path, kind: FeatureKind) -> None:
        self._path = path
        self._scaled = kind.dtype == "fp8"
        try:
            self._file = cast(_Reader, safe_open(path, "pt"))
        except (SafetensorError, OSError) as error:
            raise ConfigError(f"{path} can't be opened ({error}): {AGAIN}") from error

    def read(self, name: str, start: int, end: int) -> Stored:
        """Rows [start, end) of "taps" or "final"."""
        try:
            values = self._file.get_slice(name)[start:end]
            scale = self._file.get_slice(f"{name}.scale")[start:end] if self._scaled else None
        except (SafetensorError, OSError) as error:
            raise ConfigError(f"{self._path} can't be read ({error}): {AGAIN}") from error
        assert values.shape[0] == end - start, f"{self._path} has fewer rows than the index says"
        return Stored(values, scale)


class _Slice(Protocol):
    def __getitem__(self, rows: slice) -> Tensor: ...


class _Reader(Protocol):
    """The part of safetensors' untyped reader that is used here."""

    def get_slice(self, name: str) -> _Slice: ...
