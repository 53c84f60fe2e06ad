"""What is recorded of a drafter's making, carried along from format to format.

`checkpoint/provenance.py` reads the one value that engines use; this keeps all the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from blockdraft import __version__
from blockdraft.checkpoint.contents import DrafterCheckpoint
from blockdraft.checkpoint.provenance import PROVENANCE_FILE, TAU_KEY
from blockdraft.checkpoint.tensors import read_json
from blockdraft.json_values import as_list

EXPORTS_KEY = "exports"
"""The list of conversions, oldest first."""

_TARGETS_HEAD = "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """One export: from which format and source to which, for which target.

    `changes` are those that the target format asked for, in words.
    """

    to_format: str
    outtype: str
    from_format: str
    source: str
    target: str
    own_head: bool
    changes: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        return {
            "format": self.to_format,
            "outtype": self.outtype,
            "converted_from": {"format": self.from_format, "source": self.source},
            "target": self.target,
            "head": "own" if self.own_head else _TARGETS_HEAD,
            "changes": list(self.changes),
            "blockdraft": __version__,
        }


def read_provenance(folder: Path, source: str) -> dict[str, object] | None:
    """The record in `folder`; None without one. Raises CheckpointError for a damaged one."""
    if not (folder / PROVENANCE_FILE).exists():
        return None
    return read_json(folder / PROVENANCE_FILE, source)


def carry_on(
    recorded: Mapping[str, object] | None, checkpoint: DrafterCheckpoint, conversion: Conversion
) -> dict[str, object]:
    """`recorded` with one more conversion, and the acceptance length where only that is known."""
    carried = dict(recorded or {})
    if carried.get(TAU_KEY) is None and checkpoint.recorded_tau is not None:
        carried[TAU_KEY] = checkpoint.recorded_tau
    carried[EXPORTS_KEY] = [*conversions(recorded), conversion.to_json()]
    return carried


def conversions(recorded: Mapping[str, object] | None) -> list[object]:
    """The conversions on record, oldest first."""
    return as_list((recorded or {}).get(EXPORTS_KEY))


def head_was_targets(recorded: Mapping[str, object] | None) -> bool:
    """Whether the last conversion wrote the target's rows as the drafter's head."""
    known = conversions(recorded)
    last = known[-1] if known else None
    if not isinstance(last, dict):
        return False
    return cast("dict[str, object]", last).get("head") == _TARGETS_HEAD
