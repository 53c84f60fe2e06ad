"""`FeatureWriter`: computes the features of all samples once and keeps them on disk.

It stops before the disk is full and goes on where it stopped. Reading is in `cache.py`.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from blockdraft.errors import ConfigError
from blockdraft.training.batches.batch import FeatureSource, Sample
from blockdraft.training.features.cache import plain_batch
from blockdraft.training.features.format import FeatureKind, digest_of, hash_ids, plan_shards
from blockdraft.training.features.index import FeatureIndex, ShardEntry, read_index, write_index
from blockdraft.training.features.shards import ShardBuffer, check_size, write_shard

SHARD_BYTES = 256 << 20
SPARE_BYTES = 1 << 30
"""Left free on the disk: a full one breaks more than this program."""
TOKENS_AT_ONCE = 4096
LOCK_FILE = ".lock"

Progress = Callable[[int], None]
"""Takes the number of tokens that were just done."""

FreeBytes = Callable[[Path], int]


def free_bytes(folder: Path) -> int:
    """What the disk of `folder` has left; the folder need not exist."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


class Need(NamedTuple):
    """Disk space: what is still to be written, and what there is."""

    num_bytes: int
    free: int


class FeatureWriter:
    """Writes the features of `samples` to `folder`, shard by shard; it can stop after any of them.

    Run again with the same samples it goes on behind the last finished shard.
    """

    def __init__(
        self,
        folder: Path,
        samples: Sequence[Sample],
        kind: FeatureKind,
        *,
        shard_bytes: int = SHARD_BYTES,
        free: FreeBytes = free_bytes,
    ) -> None:
        """Raises ConfigError when `folder` holds features of something else."""
        if not samples:
            raise ConfigError(
                "there are no samples to compute features of: the folder of answers is empty "
                "(finish `blockdraft data regenerate`), or all were left out for the reasons above"
            )
        self._folder = folder
        self._samples = samples
        self._kind = kind
        self._tokens_per_shard = max(1, shard_bytes // kind.bytes_per_token)
        self._free = free
        self._lengths = [len(sample.ids) for sample in samples]
        digest = digest_of((sample.row, hash_ids(sample.ids)) for sample in samples)
        self._index = FeatureIndex(
            kind=kind, num_samples=len(samples), num_tokens=sum(self._lengths), digest=digest
        )
        found = read_index(folder)
        if found is not None:
            _check_same(folder, found, self._index)
            self._index = replace(self._index, shards=tuple(_intact(folder, found)))

    @property
    def num_tokens_left(self) -> int:
        return sum(self._lengths[self._index.num_written :])

    def need(self) -> Need:
        """Disk space for what is not written yet."""
        num_left = len(self._samples) - self._index.num_written
        return Need(self._kind.num_bytes(self.num_tokens_left, num_left), self._free(self._folder))

    def check_room(self) -> None:
        """Raise ConfigError when the disk would be filled."""
        need = self.need()
        if need.num_bytes and need.num_bytes + SPARE_BYTES > need.free:
            raise ConfigError(
                f"{self._folder} needs {need.num_bytes / 1e9:.2f} GB more and its disk has "
                f"{need.free / 1e9:.2f} GB free (1 GB is kept): make room, use --dtype fp8, or "
                "compute features on the fly"
            )

    def write(self, source: FeatureSource, progress: Progress) -> FeatureIndex:
        """Compute and write what is missing; the complete index.

        Raises ConfigError when the disk is too small, before anything is computed, or becomes so.
        """
        self.check_room()
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(self._folder / LOCK_FILE, timeout=0):
                self._write_rest(source, progress)
        except Timeout as error:
            raise ConfigError(
                f"another process is writing to {self._folder}: wait for it, or choose another "
                "folder"
            ) from error
        return self._index

    def _write_rest(self, source: FeatureSource, progress: Progress) -> None:
        write_index(self._folder, self._index)
        first = self._index.num_written
        for shard in plan_shards(self._lengths[first:], self._tokens_per_shard):
            self.check_room()  # others write to the disk too
            chosen = [self._samples[first + i] for i in shard]
            entry = self._write_shard(chosen, source, progress)
            self._index = replace(self._index, shards=(*self._index.shards, entry))
            write_index(self._folder, self._index)

    def _write_shard(
        self, samples: Sequence[Sample], source: FeatureSource, progress: Progress
    ) -> ShardEntry:
        lengths = [len(sample.ids) for sample in samples]
        buffer = ShardBuffer(self._kind, sum(lengths))
        for group in plan_shards(lengths, TOKENS_AT_ONCE):
            batch = plain_batch([samples[i] for i in group])
            buffer.add(source.features(batch))
            progress(batch.num_tokens)
        file = f"features-{len(self._index.shards):05d}.safetensors"
        written = write_shard(self._folder / file, buffer.tensors)
        return ShardEntry(
            file=file,
            num_bytes=written.num_bytes,
            sha256=written.sha256,
            rows=tuple(sample.row for sample in samples),
            offsets=plain_batch(samples).starts,
            ids_hashes=tuple(hash_ids(sample.ids) for sample in samples),
        )


def _intact(folder: Path, index: FeatureIndex) -> list[ShardEntry]:
    """The first shards that are as they were written; the others are made again."""
    kept: list[ShardEntry] = []
    for shard in index.shards:
        try:
            check_size(folder, shard)
        except ConfigError:
            break
        kept.append(shard)
    return kept


def _check_same(folder: Path, found: FeatureIndex, wanted: FeatureIndex) -> None:
    """Raise ConfigError when the cache that is there is not the one to be written."""
    names = {
        "other target": (found.kind.fingerprint, wanted.kind.fingerprint),
        "other layers": (found.kind.taps, wanted.kind.taps),
        "another dtype": (found.kind.dtype, wanted.kind.dtype),
        "other final states": (found.kind.final, wanted.kind.final),
        "other answers": (found.digest, wanted.digest),
    }
    for what, (there, here) in names.items():
        if there != here:
            raise ConfigError(
                f"{folder} holds features of {what} ({there}, now {here}): remove it or choose "
                "another folder"
            )
