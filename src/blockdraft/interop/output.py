"""`Output`: an export that is ready to be written.

It is made by `formats.py`, one for each format; `export.py` gives it an empty folder.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from blockdraft.checkpoint.contents import DrafterCheckpoint
from blockdraft.errors import CheckpointError

Write = Callable[[Path, Mapping[str, object]], None]
"""Fills an empty folder; the record is for formats that carry it inside."""

Verify = Callable[[Path], str | None]
"""Reads the folder back; what differs first, None when nothing does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """`checkpoint` is the drafter as written, cast and changed; `changes` say how, in words."""

    checkpoint: DrafterCheckpoint
    outtype: str
    changes: tuple[str, ...]
    write: Write
    find_difference: Verify

    def verify(self, folder: Path) -> None:
        """Raise CheckpointError unless the folder reads back as what was written."""
        difference = self.find_difference(folder)
        if difference is not None:
            raise CheckpointError(
                f"the written drafter does not read back as it was ({difference}), so nothing was"
                " kept; check the disk, then report this"
            )
