"""`load_any`: a drafter in whatever format it lies there, told apart by its files.

Each format's own module reads it; the GGUF reader is imported only when a file is one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple, cast

from blockdraft.builtin import builtin_drafter_path
from blockdraft.checkpoint.contents import D2T_NAME, HEAD_NAME, DrafterCheckpoint
from blockdraft.checkpoint.provenance import PROVENANCE_FILE
from blockdraft.checkpoint.resolve import resolve
from blockdraft.checkpoint.store import CONFIG_FILE, load_checkpoint
from blockdraft.checkpoint.tensors import read_json
from blockdraft.checkpoint.unsupported import SPECULATORS_KEYS
from blockdraft.errors import CheckpointError, ConfigError
from blockdraft.gguf_header import GGUF_MAGIC
from blockdraft.interop.block7 import is_block7, read_block7
from blockdraft.interop.card import read_card
from blockdraft.interop.own_rows import strip_target_rows
from blockdraft.interop.provenance import head_was_targets, read_provenance
from blockdraft.interop.speculators.read import read_speculators
from blockdraft.interop.target_facts import TargetRows
from blockdraft.json_values import as_object

SourceFormat = Literal["hf", "speculators", "gguf", "block7"]

GGUF_NAME = "drafter.gguf"
"""The drafter in a folder that `blockdraft export --format gguf` wrote."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForeignDrafter:
    """A drafter and the format it was found in.

    `source` is the name that was given, with the commit of a hub repository.
    `provenance` and `card` are what lies beside it, None where nothing does. `notes` are for
    people: what was dropped or could not be compared.
    """

    checkpoint: DrafterCheckpoint
    format: SourceFormat
    source: str
    provenance: Mapping[str, object] | None
    card: str | None
    notes: tuple[str, ...] = ()


class Found(NamedTuple):
    """Where a drafter lies: a folder, or a GGUF file."""

    path: Path
    format: SourceFormat
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTarget:
    """What is known of the target while its drafter is read.

    `read_rows` gives its embedding and head; it is called only where a drafter brings its own.
    """

    num_layers: int | None = None
    read_rows: Callable[[], TargetRows] | None = None


def load_any(
    where: str | Path,
    *,
    revision: str | None = None,
    taps: Sequence[int] | None = None,
    target: KnownTarget | None = None,
) -> ForeignDrafter:
    """The drafter in a folder, a GGUF file, a hub repository or of a built-in name.

    `taps` belongs to the published layouts, which may not name them. Raises CheckpointError for a
    drafter that is damaged or can't be represented here, with the reason, and ConfigError for taps
    other than those that the drafter's files record.
    """
    found = find(where, revision=revision)
    target = target or KnownTarget()
    if taps is not None and found.format in ("speculators", "gguf"):
        raise ConfigError(f"--taps: {found.format} drafters name their layers; drop it")
    provenance = _recorded(found)
    if taps is not None:
        _refuse_other_taps(tuple(taps), found, provenance)
    checkpoint, notes = _read(found, taps, target, head_was_targets(provenance))
    checkpoint = replace(checkpoint, source=found.source)
    if checkpoint.config.num_target_layers is None and target.num_layers is not None:
        checkpoint = _with_depth(checkpoint, target.num_layers)
    return ForeignDrafter(
        checkpoint=checkpoint,
        format=found.format,
        source=found.source,
        provenance=provenance,
        card=read_card(found.path.parent if found.path.name == GGUF_NAME else found.path),
        notes=notes,
    )


def find(where: str | Path, *, revision: str | None = None) -> Found:
    """Where `where` lies and which format it has, from file names and config.json alone.

    Raises CheckpointError for what is missing, ConfigError for a revision of a local path.
    """
    path = builtin_drafter_path(str(where)) or Path(where)
    gguf = path / GGUF_NAME if path.is_dir() and not (path / CONFIG_FILE).exists() else path
    if gguf.is_file():
        if revision is not None:
            raise ConfigError(f"revision {revision} was given for a local file, {gguf}; drop it")
        with gguf.open("rb") as file:
            magic = file.read(len(GGUF_MAGIC))
        if magic != GGUF_MAGIC:
            raise CheckpointError(
                f"{gguf} is a file, but no GGUF file; pass a folder with config.json and"
                " model.safetensors, or a drafter's .gguf file"
            )
        return Found(gguf, "gguf", str(where))
    is_local = path.is_dir()
    folder, resolved = resolve(path if is_local else where, revision)
    source = str(where) if is_local else resolved
    raw = read_json(folder / CONFIG_FILE, source)
    if any(raw.get(key) is not None for key in SPECULATORS_KEYS):
        return Found(folder, "speculators", source)
    return Found(folder, "block7" if is_block7(raw) else "hf", source)


def _read(
    found: Found, taps: Sequence[int] | None, target: KnownTarget, head_is_targets: bool
) -> tuple[DrafterCheckpoint, tuple[str, ...]]:
    if found.format == "hf":
        return load_checkpoint(found.path, taps=taps), ()
    if found.format == "gguf":
        return _read_gguf(found, target)
    rows = None if target.read_rows is None else target.read_rows()
    if found.format == "block7":
        read = read_block7(found.path, found.source, rows=rows, taps=taps)
    else:
        read = read_speculators(
            found.path,
            found.source,
            rows=rows,
            num_target_layers=target.num_layers,
            head_is_targets=head_is_targets,
        )
    return read.checkpoint, read.notes


def _read_gguf(found: Found, target: KnownTarget) -> tuple[DrafterCheckpoint, tuple[str, ...]]:
    from blockdraft.interop.gguf import read_drafter

    notes: list[str] = []
    checkpoint = read_drafter(found.path, report=notes.append)
    if checkpoint.lm_head is None or target.read_rows is None:
        return checkpoint, tuple(notes)
    brought = {HEAD_NAME: checkpoint.lm_head}
    if checkpoint.d2t is not None:
        brought[D2T_NAME] = checkpoint.d2t
    own = strip_target_rows(brought, checkpoint.config, target.read_rows(), found.source)
    checkpoint = replace(checkpoint, lm_head=own.tensors.get(HEAD_NAME))
    return checkpoint, (*notes, *own.notes)


def _refuse_other_taps(
    taps: tuple[int, ...], found: Found, provenance: Mapping[str, object] | None
) -> None:
    """Layers are those of the training: a drafter that names them can't be given others."""
    config = read_json(found.path / CONFIG_FILE, found.source)
    levels = [(CONFIG_FILE, level) for level in (as_object(config.get("dflash_config")), config)]
    places = [(file, level.get("target_layer_ids")) for file, level in levels]
    places.append((PROVENANCE_FILE, as_object((provenance or {}).get("drafter")).get("taps")))
    for file, recorded in places:
        if isinstance(recorded, list) and recorded != list(taps):
            named = ",".join(str(tap) for tap in cast("list[object]", recorded))
            given = ",".join(str(tap) for tap in taps)
            raise ConfigError(
                f"--taps {given} are other layers than the {named} that {file} of {found.source} "
                "records, and a drafter works with those of its training only: drop --taps, or "
                "correct the file if it is wrong"
            )


def _recorded(found: Found) -> Mapping[str, object] | None:
    """What is recorded inside the file, or beside it."""
    if found.format == "gguf":
        from blockdraft.interop.gguf import read_provenance as read_inside

        inside = read_inside(found.path)
        if inside:
            return inside
        folder = found.path.parent
        return read_provenance(folder, found.source) if found.path.name == GGUF_NAME else None
    return read_provenance(found.path, found.source)


def _with_depth(checkpoint: DrafterCheckpoint, num_layers: int) -> DrafterCheckpoint:
    try:
        config = replace(checkpoint.config, num_target_layers=num_layers)
    except ConfigError as error:
        raise CheckpointError(f"{checkpoint.source}: {error}; use its own target") from error
    return replace(checkpoint, config=config)
