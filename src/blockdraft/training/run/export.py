"""The drafter of a run as a folder in the published layout, with its provenance and its card.

Layout of what it writes, which appears whole or not at all:

    config.json, model.safetensors    the drafter (bf16), d2t inside where its vocabulary is reduced
    provenance.json                   acceptance length and everything that led to it
    README.md                         the card, made of the provenance
"""

import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from blockdraft.checkpoint import DrafterCheckpoint, save_checkpoint
from blockdraft.checkpoint.card import CARD_FILE, count, made_by_lines, measured_lines
from blockdraft.checkpoint.provenance import PROVENANCE_FILE
from blockdraft.drafter import DrafterConfig
from blockdraft.json_values import as_object
from blockdraft.training.vocabulary import DraftVocabulary

DRAFTER_FOLDER = "drafter"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedDrafter:
    """Weights under their published names, with the shape and vocabulary that they belong to."""

    config: DrafterConfig
    tensors: Mapping[str, Tensor]
    vocabulary: DraftVocabulary | None
    provenance: Mapping[str, object]


def export_drafter(trained: TrainedDrafter, folder: Path) -> None:
    """Write `trained` to `folder`, replacing what an earlier export left there."""
    vocabulary = trained.vocabulary
    checkpoint = DrafterCheckpoint(
        config=trained.config,
        state={name: tensor.to(torch.bfloat16) for name, tensor in trained.tensors.items()},
        source=str(folder),
        d2t=None if vocabulary is None else vocabulary.d2t,
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        made = unfinished / folder.name
        save_checkpoint(made, checkpoint)
        text = json.dumps(trained.provenance, indent=2)
        (made / PROVENANCE_FILE).write_text(f"{text}\n", encoding="utf-8")
        (made / CARD_FILE).write_text(render_card(trained.provenance), encoding="utf-8")
        if folder.exists():
            folder.rename(unfinished / "replaced")
        made.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def render_card(provenance: Mapping[str, object]) -> str:
    """A model card: what it drafts for, what it was measured at, and how to make it again."""
    training = as_object(provenance.get("training"))
    drafter = as_object(provenance.get("drafter"))
    lines = [
        f"# DFlash drafter for {training.get('target')}",
        "",
        f"{drafter.get('layers')} layers, blocks of {drafter.get('block_size')}, "
        f"{count(drafter.get('parameters'))} parameters, draft vocabulary "
        f"{count(drafter.get('draft_vocabulary'))}, taps {drafter.get('taps')}, bf16.",
        "",
        "## Measured",
        "",
        *(measured_lines(provenance) or ["Nothing is recorded."]),
        "",
        "## Made by",
        "",
        *(made_by_lines(provenance) or ["Not recorded."]),
        "",
        "All settings, versions and hashes are in `provenance.json`.",
        "",
    ]
    return "\n".join(lines)
