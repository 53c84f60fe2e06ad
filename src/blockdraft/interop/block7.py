"""DeepSpec folders (`*_block7`): read where they are plain DFlash, refused with the reason else.

Their body is the published one; what surrounds it (a slot 0 that predicts, a Markov head) usually
is not.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from torch import Tensor

from blockdraft.checkpoint.assemble import assemble
from blockdraft.checkpoint.format import parse_config
from blockdraft.checkpoint.mask_embedding import read_mask_embedding
from blockdraft.checkpoint.provenance import read_recorded_tau
from blockdraft.checkpoint.store import CONFIG_FILE
from blockdraft.checkpoint.tensors import list_tensors, read_json, read_tensors
from blockdraft.errors import CheckpointError
from blockdraft.interop.own_rows import strip_target_rows
from blockdraft.interop.speculators.read import ReadDrafter
from blockdraft.interop.target_facts import TargetRows
from blockdraft.json_values import as_list

_MARKOV_TENSORS = ("markov", "gate_proj.", "joint_proj.")
_CONFIDENCE_TENSORS = ("confidence", "conf_proj")
_MARKS = (
    "num_anchors",
    "markov_rank",
    "markov_head_type",
    "enable_confidence_head",
    "confidence_head_with_markov",
    "sample_from_anchor",
    "dspark_bonus_anchor",
)
"""Keys that only this family of checkpoints has at the top level."""


def is_block7(raw: Mapping[str, object]) -> bool:
    """Whether a config.json is one of DeepSpec's."""
    return any(raw.get(key) is not None for key in _MARKS) or any(
        "DSpark" in str(name) for name in as_list(raw.get("architectures"))
    )


def read_block7(
    folder: Path,
    source: str,
    *,
    rows: TargetRows | None = None,
    taps: Sequence[int] | None = None,
) -> ReadDrafter:
    """The drafter in `folder`, if it drafts as DFlash does.

    Raises CheckpointError with the reason where it does not: a Markov head, an anchor that
    predicts. A confidence head is dropped: it chooses how much to verify, not what is drafted.
    """
    raw = read_json(folder / CONFIG_FILE, source)
    stored = list_tensors(folder, source)
    names = {name: name.removeprefix("model.") for name in stored}
    _refuse_markov(raw, names.values(), source)
    _refuse_anchor_first(raw, source)
    config = parse_config(_published(raw), f"{source}/{CONFIG_FILE}", taps=taps)
    kept = {
        name: entry
        for name, entry in stored.items()
        if not names[name].startswith(_CONFIDENCE_TENSORS)
    }
    read = read_tensors(folder, kept, source)
    tensors: dict[str, Tensor] = {names[name]: tensor for name, tensor in read.items()}
    own = strip_target_rows(tensors, config, rows, source)
    mask_embedding = read_mask_embedding(folder, config, source)
    checkpoint = assemble(
        config,
        own.tensors,
        source,
        mask_embedding=own.mask_embedding if mask_embedding is None else mask_embedding,
        recorded_tau=read_recorded_tau(folder, source),
    )
    notes = own.notes
    if len(kept) < len(stored):
        notes += ("its confidence head is left out: it chooses how much to verify, not the drafts",)
    return ReadDrafter(checkpoint, notes)


def _refuse_markov(raw: Mapping[str, object], names: Iterable[str], source: str) -> None:
    rank = raw.get("markov_rank")
    marked = [name for name in names if name.startswith(_MARKOV_TENSORS)]
    if rank or marked:
        why = f"markov_rank {rank}" if rank else f"tensor {marked[0]}"
        raise CheckpointError(
            f"{source}: this drafter has a Markov head ({why}): each of its drafts depends on the"
            " one before, while DFlash drafts a block in one pass; it can't be converted without"
            " changing its drafts: use an engine with DSpark, or a plain DFlash checkpoint"
        )


def _refuse_anchor_first(raw: Mapping[str, object], source: str) -> None:
    from_anchor = raw.get("sample_from_anchor")
    bonus = raw.get("dspark_bonus_anchor")
    if from_anchor is False or (from_anchor is None and bonus is True):
        return
    slots = raw.get("block_size")
    raise CheckpointError(
        f"{source}: the layout is anchor-first ({slots} slots give {slots} drafts): slot 0 predicts"
        " and every slot predicts the token after its own, while a DFlash drafter's masks predict"
        " the token at their own place; the weights mean something else and can't be converted"
        " (a file that is not anchor-first says sample_from_anchor: false)"
    )


def _published(raw: Mapping[str, object]) -> dict[str, object]:
    """The keys of a plain drafter, under the name by which it goes."""
    left = {key: value for key, value in raw.items() if key not in _MARKS}
    return left | {"architectures": ["DFlashDraftModel"]}
