"""`CachedFeatures`: features of samples from disk, in any order.

`writer.py` puts them there, `format.py` says how numbers are stored. Prompts and
answers are not in the cache; hashes of them are, so that features of other tokens are refused.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from blockdraft.errors import ConfigError
from blockdraft.training.batches.batch import Batch, FeatureSource, Sample, TargetFeatures
from blockdraft.training.features.format import FeatureKind, decode, hash_ids
from blockdraft.training.features.index import AGAIN, FeatureIndex, read_index
from blockdraft.training.features.shards import ShardReader, check_hash, check_size

MOST_DIFFERENCE = 0.1
"""Of cached features to those of the target itself, as norms, of the median token: well above
what fp8 rounds."""


def plain_batch(samples: Sequence[Sample]) -> Batch:
    """Samples in one row, without anchors."""
    none = torch.empty(0, dtype=torch.long)
    return Batch(samples=tuple(samples), anchors=none, document_of=none, block_size=2)


class Place(NamedTuple):
    """Where a sample's tokens lie: [start, end) of a shard."""

    shard_idx: int
    start: int
    end: int
    ids_hash: str


class CachedFeatures:
    """A FeatureSource that reads a folder which `FeatureWriter` has filled, in any order.

    Shards are mapped and stay open. Sizes are checked at once; hashes when a shard is first read,
    unless `check_hashes` is off.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        dtype: torch.dtype = torch.bfloat16,
        device: str | torch.device = "cpu",
        check_hashes: bool = True,
    ) -> None:
        """Raises ConfigError for a cache that is missing, unfinished or damaged."""
        self._folder = Path(folder)
        index = read_index(self._folder)
        if index is None:
            raise ConfigError(
                f"{folder} is no feature cache (it has no index.json): make one with `blockdraft "
                "data features`"
            )
        if not index.is_complete:
            raise ConfigError(
                f"{folder} has features of {index.num_written} of {index.num_samples} samples: run "
                "the command that was making it again, it goes on where it stopped"
            )
        for shard in index.shards:
            check_size(self._folder, shard)
        self._index = index
        self._dtype = dtype
        self._device = torch.device(device)
        self._check_hashes = check_hashes
        self._places = _places(index)
        self._open: dict[int, ShardReader] = {}

    @property
    def kind(self) -> FeatureKind:
        return self._index.kind

    def require(self, taps: Sequence[int], *, final: bool, fingerprint: str | None = None) -> None:
        """Raise ConfigError unless the cache holds these layers of this target."""
        kind = self.kind
        wrong = None
        if kind.taps != tuple(taps):
            wrong = f"layers {kind.taps}, not {tuple(taps)}"
        elif final and not kind.final:
            wrong = "no final states, which soft labels need (--final)"
        elif fingerprint is not None and kind.fingerprint != fingerprint:
            wrong = f"another target ({kind.target}, fingerprint {kind.fingerprint})"
        if wrong is not None:
            raise ConfigError(f"the feature cache {self._folder} holds {wrong}: {AGAIN}")

    def check_against(self, live: FeatureSource, sample: Sample) -> None:
        """Raise ConfigError unless the target computes for `sample` what is cached, but rounded."""
        batch = plain_batch([sample])
        found, expected = self.features(batch).taps.float(), live.features(batch).taps.float()
        expected = expected.to(found.device)
        # By token: the first token of a text has states that outweigh all others together.
        size = expected.square().sum(-1).clamp_min(1e-30)  # a padding token may be all zeros
        off = (found - expected).square().sum(-1) / size
        difference = float(off.median()) ** 0.5
        if not difference < MOST_DIFFERENCE:
            raise ConfigError(
                f"the features of sample row {sample.row} in {self._folder} differ from the "
                f"target's own by {difference:.0%}: the cache is of another target; {AGAIN}"
            )

    def check_covers(self, samples: Iterable[Sample]) -> None:
        """Raise ConfigError, naming the first one, unless all samples are cached as they are."""
        for sample in samples:
            self._place(sample)

    def verify(self, progress: Callable[[], None]) -> None:
        """Check the hash of every shard; ConfigError names the first damaged one."""
        for shard in self._index.shards:
            check_hash(self._folder, shard)
            progress()

    @property
    def num_shards(self) -> int:
        return len(self._index.shards)

    def features(self, batch: Batch) -> TargetFeatures:
        """Features of all rows of `batch`.

        Raises ConfigError for a sample that is not in the cache, or is with other tokens.
        """
        kind = self.kind
        shape = (batch.num_tokens, len(kind.taps) * kind.hidden_size)
        taps = torch.empty(shape, dtype=self._dtype)
        final = torch.empty(batch.num_tokens, kind.hidden_size, dtype=self._dtype)
        start = 0
        for sample in batch.samples:
            end = start + len(sample.ids)
            place = self._place(sample)
            shard = self._shard(place.shard_idx)
            taps[start:end] = decode(shard.read("taps", place.start, place.end), self._dtype)
            if kind.final:
                final[start:end] = decode(shard.read("final", place.start, place.end), self._dtype)
            start = end
        return TargetFeatures(taps.to(self._device), final.to(self._device) if kind.final else None)

    def _place(self, sample: Sample) -> Place:
        place = self._places.get(sample.row)
        if place is None:
            raise ConfigError(
                f"sample row {sample.row} is not in the feature cache {self._folder}: it was made "
                f"of other answers; {AGAIN}"
            )
        if hash_ids(sample.ids) != place.ids_hash:
            raise ConfigError(
                f"sample row {sample.row} has other tokens than when the feature cache "
                f"{self._folder} was made: {AGAIN}"
            )
        return place

    def _shard(self, shard_idx: int) -> ShardReader:
        if shard_idx not in self._open:
            entry = self._index.shards[shard_idx]
            if self._check_hashes:
                check_hash(self._folder, entry)
            self._open[shard_idx] = ShardReader(self._folder / entry.file, self.kind)
        return self._open[shard_idx]


def _places(index: FeatureIndex) -> dict[int, Place]:
    places: dict[int, Place] = {}
    for shard_idx, shard in enumerate(index.shards):
        spans = zip(shard.offsets, shard.offsets[1:], shard.ids_hashes, strict=False)
        for row, (start, end, ids_hash) in zip(shard.rows, spans, strict=True):
            places[row] = Place(shard_idx, start, end, ids_hash)
    return places
