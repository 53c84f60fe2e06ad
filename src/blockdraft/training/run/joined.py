"""Several folders of answers as one, and the feature caches that belong to them.

Rows count through all folders in the order of the recipe.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

import torch

from blockdraft.data.answers import Answer, AnswerTable
from blockdraft.training.batches.batch import Batch, FeatureSource, Sample, TargetFeatures
from blockdraft.training.features.cache import CachedFeatures, plain_batch


class JoinedAnswers:
    """Answers of several folders; rows count through all of them in order."""

    def __init__(self, tables: Sequence[AnswerTable]) -> None:
        self._tables = tuple(tables)
        self._ends = list(accumulate(len(table) for table in tables))
        self.first_rows = (0, *self._ends[:-1])
        """The row of the first answer of each folder."""

    @property
    def manifests(self) -> tuple[Mapping[str, object], ...]:
        """The manifest of each folder; empty for one that is not finished."""
        return tuple(table.manifest for table in self._tables)

    def folder_of(self, row: int) -> int:
        """Which of the folders `row` is in, from 0."""
        return bisect_right(self._ends, row)

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, row: int) -> Answer:
        table = self.folder_of(row)
        return self._tables[table][row - self.first_rows[table]]


class JoinedFeatures:
    """A cache for each folder of answers; samples find theirs by their row."""

    def __init__(self, caches: Sequence[CachedFeatures], first_rows: Sequence[int]) -> None:
        self._caches = tuple(caches)
        self._first_rows = list(first_rows)

    def features(self, batch: Batch) -> TargetFeatures:
        parts = [self._of(sample) for sample in batch.samples]
        finals = [part.final for part in parts if part.final is not None]
        return TargetFeatures(
            torch.cat([part.taps for part in parts]), torch.cat(finals) if finals else None
        )

    def check_against(self, live: FeatureSource, samples: Iterable[Sample]) -> None:
        """Raise ConfigError unless all samples are cached, from the target that `live` runs."""
        compared: set[int] = set()
        for sample in samples:
            index = self._index(sample)
            self._caches[index].check_covers([self._local(sample)])
            if index not in compared:
                compared.add(index)
                self._caches[index].check_against(live, self._local(sample))

    def _of(self, sample: Sample) -> TargetFeatures:
        return self._caches[self._index(sample)].features(plain_batch([self._local(sample)]))

    def _index(self, sample: Sample) -> int:
        return bisect_right(self._first_rows, sample.row) - 1

    def _local(self, sample: Sample) -> Sample:
        """The sample with its row in its own folder, by which caches know it."""
        return replace(sample, row=sample.row - self._first_rows[self._index(sample)])
