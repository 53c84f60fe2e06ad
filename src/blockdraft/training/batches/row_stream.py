"""`RowStream`: the packed rows of a run, one after the other, from any point on.

Positions are (epoch, row within it); which rows an epoch has is `packing.py`'s business.
"""

from collections.abc import Sequence
from typing import NamedTuple

from blockdraft.errors import ConfigError
from blockdraft.training.batches.anchors import AnchorConfig
from blockdraft.training.batches.batch import Sample
from blockdraft.training.batches.packing import PackedRow, PackingConfig, pack_epoch


class Place(NamedTuple):
    """The next row to take."""

    epoch: int
    position: int


class RowStream:
    """An endless stream of rows; the next one is at `place`."""

    def __init__(
        self,
        samples: Sequence[Sample],
        packing: PackingConfig,
        anchors: AnchorConfig,
        *,
        seed: int,
        place: Place | None = None,
    ) -> None:
        """Raises ConfigError when no sample has anything to learn from, or one fits no row."""
        self._samples = samples
        self._packing = packing
        self._anchors = anchors
        self._seed = seed
        self.place = place or Place(0, 0)
        self._rows = self._pack(self.place.epoch)

    def take(self, count: int) -> list[PackedRow]:
        """The next `count` rows, across the ends of epochs."""
        taken: list[PackedRow] = []
        while len(taken) < count:
            epoch, position = self.place
            if position == len(self._rows):
                self._rows = self._pack(epoch + 1)
                self.place = Place(epoch + 1, 0)
                continue
            taken.append(self._rows[position])
            self.place = Place(epoch, position + 1)
        return taken

    def _pack(self, epoch: int) -> list[PackedRow]:
        rows = pack_epoch(self._samples, self._packing, self._anchors, seed=self._seed, epoch=epoch)
        if not rows:
            raise ConfigError("no answer has two tokens or more: there is nothing to learn from")
        return rows


def count_rows(
    samples: Sequence[Sample],
    packing: PackingConfig,
    anchors: AnchorConfig,
    *,
    seed: int,
    num_epochs: int,
) -> int:
    """Rows of the first `num_epochs` epochs together; they differ a little from epoch to epoch."""
    return sum(
        len(pack_epoch(samples, packing, anchors, seed=seed, epoch=epoch))
        for epoch in range(num_epochs)
    )
