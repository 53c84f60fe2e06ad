"""What each export format makes of a drafter: the checkpoint as written, its writer, its check.

It creates no folder; `export.py` gives an empty one.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from blockdraft.builtin import builtin_target_names
from blockdraft.checkpoint.contents import DrafterCheckpoint
from blockdraft.checkpoint.store import load_checkpoint
from blockdraft.errors import CheckpointError
from blockdraft.interop.cast import cast_checkpoint, chosen_dtype, outtype_name
from blockdraft.interop.compare import (
    config_difference,
    first_difference,
    shape_difference,
    tensor_difference,
)
from blockdraft.interop.hf.write import for_engines, write_hf
from blockdraft.interop.order import ExportOrder
from blockdraft.interop.output import Output
from blockdraft.interop.source import GGUF_NAME
from blockdraft.interop.speculators.read import read_speculators
from blockdraft.interop.speculators.write import for_speculators, write_speculators
from blockdraft.interop.target_facts import TargetFacts, TargetRows

Report = Callable[[str], None]

GGUF_TARGET_NAME = "target.gguf"


def prepare(
    order: ExportOrder,
    checkpoint: DrafterCheckpoint,
    target: TargetFacts,
    rows: Callable[[], TargetRows],
    report: Report,
) -> Output:
    """The export that `order` asks for.

    Raises CheckpointError for a drafter that the format can't carry, ConfigError for a type that
    it is not written in. `report` gets lines for people while the export is written.
    """
    if order.format != "hf":
        _refuse_second_version(order, checkpoint)
    if order.format == "gguf":
        return _gguf(order, checkpoint, target, rows, report)
    dtype = chosen_dtype(checkpoint, order.outtype)
    written = cast_checkpoint(checkpoint, dtype)
    changes = _cast_changes(checkpoint, written)
    if order.format == "hf":
        return _hf(order, written, target, changes)
    return _speculators(order, written, target, rows(), changes)


_NO_SECOND_VERSION = {
    "speculators": "the layout of its DFlash 2 is not documented, and plain DFlash has no place for"
    " convolutions and selector",
    "gguf": "writing these tensors is not implemented here; llama.cpp's own convert_hf_to_gguf.py"
    " converts the published folder",
}


def _refuse_second_version(order: ExportOrder, checkpoint: DrafterCheckpoint) -> None:
    if checkpoint.config.dflash2 is not None:
        raise CheckpointError(
            f"{checkpoint.source}: a DFlash 2 drafter can't be written as {order.format}:"
            f" {_NO_SECOND_VERSION[order.format]}; use --format hf"
        )


def _hf(
    order: ExportOrder, checkpoint: DrafterCheckpoint, target: TargetFacts, changes: list[str]
) -> Output:
    written = checkpoint if order.keep_draft_vocabulary else for_engines(checkpoint)
    drafted = checkpoint.config.draft_vocab_size
    if drafted is not None and written.d2t is None:
        changes.append(
            f"the draft vocabulary of {drafted:,} ids is left out: drafts come from the target's"
            " whole head, of which it was a subset"
        )
    elif drafted is not None:
        changes.append(f"the draft vocabulary of {drafted:,} ids is kept, for Blockdraft only")
    if target.model_type.startswith("gemma"):
        changes.append(
            f"a {target.model_type} target scales its embedding inside the model; some engines"
            " need dflash_config.input_embedding_scale for that, which this drafter was not"
            " trained with: measure the acceptance there"
        )

    def write(folder: Path, _: Mapping[str, object]) -> None:
        write_hf(folder, written)

    return Output(
        checkpoint=written,
        outtype=outtype_name(written.dtype),
        changes=tuple(changes),
        write=write,
        find_difference=lambda folder: first_difference(written, load_checkpoint(folder)),
    )


def _speculators(
    order: ExportOrder,
    checkpoint: DrafterCheckpoint,
    target: TargetFacts,
    rows: TargetRows,
    changes: list[str],
) -> Output:
    written = for_speculators(checkpoint, target)
    verifier = _verifier(order, target)
    changes.append("layer ids are one higher, as this format counts them")
    head = "its own head" if written.lm_head is not None else "the target's head rows"
    changes.append(f"the target's embedding and {head} are inside, as this format wants them")
    if written.config.vocab_size != checkpoint.config.vocab_size:
        changes.append(
            f"vocab_size is the target's {target.vocab_size} instead of the padded"
            f" {checkpoint.config.vocab_size}"
        )

    def write(folder: Path, _: Mapping[str, object]) -> None:
        write_speculators(folder, written, target, rows, verifier)

    def find_difference(folder: Path) -> str | None:
        depth = written.config.num_target_layers
        read = read_speculators(folder, str(folder), rows=rows, num_target_layers=depth)
        return first_difference(written, read.checkpoint)

    return Output(
        checkpoint=written,
        outtype=outtype_name(written.dtype),
        changes=tuple(changes),
        write=write,
        find_difference=find_difference,
    )


def _gguf(
    order: ExportOrder,
    checkpoint: DrafterCheckpoint,
    target: TargetFacts,
    rows: Callable[[], TargetRows],
    report: Report,
) -> Output:
    from blockdraft.interop.gguf import read_drafter, read_tokenizer, write_drafter, write_target
    from blockdraft.interop.gguf.dtypes import parse_gguf_type

    outtype = parse_gguf_type(order.outtype or outtype_name(chosen_dtype(checkpoint, None)))
    exact = outtype != "q8_0"
    changes = ["layer ids are one higher and d2t holds target ids, as llama.cpp reads them"]
    written = checkpoint
    if exact:
        written = cast_checkpoint(checkpoint, chosen_dtype(checkpoint, outtype))
        changes += _cast_changes(checkpoint, written)
    else:
        changes.append("matrices are rounded to blocks of 8-bit integers (q8_0)")
    config = replace(written.config, vocab_size=target.vocab_size)
    written = replace(written, config=config)
    needs_rows = written.mask_embedding is not None or (
        written.d2t is not None and written.lm_head is None
    )

    def write(folder: Path, provenance: Mapping[str, object]) -> None:
        write_drafter(
            written,
            read_tokenizer(target.folder),
            folder / GGUF_NAME,
            dtype=outtype,
            provenance=provenance,
            rows=rows() if needs_rows else None,
            report=report,
        )
        write_target(target.folder, folder / GGUF_TARGET_NAME, dtype=outtype, report=report)

    def find_difference(folder: Path) -> str | None:
        found = read_drafter(folder / GGUF_NAME)
        changed = config_difference(written.config, found.config)
        if changed is not None:
            return changed
        return tensor_difference(written, found) if exact else shape_difference(written, found)

    return Output(
        checkpoint=written,
        outtype=outtype,
        changes=tuple(changes),
        write=write,
        find_difference=find_difference,
    )


def _verifier(order: ExportOrder, target: TargetFacts) -> str:
    """How an engine finds the target: as the user says, by hub id, or by its folder."""
    if order.verifier is not None:
        return order.verifier
    is_local = order.target in builtin_target_names() or target.folder == _as_folder(order.target)
    if is_local or order.target.endswith(".gguf"):
        return str(target.folder.resolve())
    return order.target


def _as_folder(name: str) -> Path:
    return Path(name).expanduser()


def _cast_changes(before: DrafterCheckpoint, after: DrafterCheckpoint) -> list[str]:
    if before.dtype == after.dtype:
        return []
    old, new = (str(one.dtype).removeprefix("torch.") for one in (before, after))
    return [f"weights are {new}, cast from {old}"]
