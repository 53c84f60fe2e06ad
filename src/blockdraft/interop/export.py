"""`export_pair`: a drafter in any readable format, written for another engine, whole or not at all.

The formats are in their own modules. What was written is read back and compared before it appears.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from blockdraft.checkpoint.card import CARD_FILE
from blockdraft.checkpoint.contents import DrafterCheckpoint
from blockdraft.checkpoint.pairing import check_pair
from blockdraft.checkpoint.provenance import PROVENANCE_FILE
from blockdraft.interop.card import CardFacts, render_card
from blockdraft.interop.formats import prepare
from blockdraft.interop.new_folder import new_folder, refuse_existing, write_json
from blockdraft.interop.order import ExportOrder
from blockdraft.interop.output import Output
from blockdraft.interop.provenance import Conversion, carry_on
from blockdraft.interop.source import ForeignDrafter, KnownTarget, load_any
from blockdraft.interop.target_facts import TargetRows, read_rows, read_target

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A file of the export, and its size."""

    name: str
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """What was written. `changes` are the conversion's, in words; `notes` were found in reading."""

    out: str
    format: str
    outtype: str
    target: str
    drafter: str
    source_format: str
    block_size: int
    num_drafts: int
    parameters: int
    recorded_tau: float | None
    changes: tuple[str, ...]
    notes: tuple[str, ...]
    files: tuple[WrittenFile, ...]

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def export_pair(order: ExportOrder, *, report: Report | None = None) -> ExportReport:
    """Write the pair to `order.out`, which appears complete and verified, or not at all.

    Raises ConfigError for an order that makes no sense or an `out` that is not empty, and
    CheckpointError for a drafter that is damaged, of another target, or that the format can't
    carry.
    """
    say = report or _say_nothing
    refuse_existing(order.out)
    say(f"reading target {order.target}")
    target = read_target(order.target, revision=order.revision, report=say)

    @cache
    def rows() -> TargetRows:
        return read_rows(target)

    say(f"reading drafter {order.drafter}")
    foreign = load_any(
        order.drafter,
        revision=order.drafter_revision,
        taps=order.taps,
        target=KnownTarget(num_layers=target.num_layers, read_rows=rows),
    )
    check_pair(foreign.checkpoint.config, target.spec)
    output = prepare(order, foreign.checkpoint, target, rows, say)
    conversion = _conversion(order, foreign, output)
    provenance = carry_on(foreign.provenance, foreign.checkpoint, conversion)
    card = render_card(
        CardFacts(
            config=output.checkpoint.config,
            parameters=_num_parameters(output.checkpoint),
            conversion=conversion,
            provenance=provenance,
            original=foreign.card,
            notes=foreign.notes,
        )
    )
    with new_folder(order.out) as scratch:
        say(f"writing {order.out}")
        output.write(scratch, provenance)
        write_json(scratch / PROVENANCE_FILE, provenance)
        (scratch / CARD_FILE).write_text(card, encoding="utf-8")
        say("reading it back")
        output.verify(scratch)
        files = _list_files(scratch)
    return _summary(order, foreign, output, files)


def _conversion(order: ExportOrder, foreign: ForeignDrafter, output: Output) -> Conversion:
    return Conversion(
        to_format=order.format,
        outtype=output.outtype,
        from_format=foreign.format,
        source=foreign.source,
        target=order.target,
        own_head=output.checkpoint.lm_head is not None,
        changes=output.changes,
    )


def _summary(
    order: ExportOrder, foreign: ForeignDrafter, output: Output, files: tuple[WrittenFile, ...]
) -> ExportReport:
    block_size = output.checkpoint.config.block_size
    return ExportReport(
        out=str(order.out),
        format=order.format,
        outtype=output.outtype,
        target=order.target,
        drafter=order.drafter,
        source_format=foreign.format,
        block_size=block_size,
        num_drafts=block_size - 1,
        parameters=_num_parameters(output.checkpoint),
        recorded_tau=foreign.checkpoint.recorded_tau,
        changes=output.changes,
        notes=foreign.notes,
        files=files,
    )


def _num_parameters(checkpoint: DrafterCheckpoint) -> int:
    optional = (checkpoint.lm_head, checkpoint.mask_embedding)
    own = [*checkpoint.state.values(), *(tensor for tensor in optional if tensor is not None)]
    return sum(tensor.numel() for tensor in own)


def _list_files(folder: Path) -> tuple[WrittenFile, ...]:
    return tuple(
        WrittenFile(name=path.name, num_bytes=path.stat().st_size)
        for path in sorted(folder.iterdir())
    )


def _say_nothing(line: str) -> None:
    pass
