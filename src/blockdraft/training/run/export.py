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
from typing import cast

import torch
from torch import Tensor

from blockdraft.checkpoint import DrafterCheckpoint, save_checkpoint
from blockdraft.checkpoint.provenance import PROVENANCE_FILE
from blockdraft.drafter import DrafterConfig
from blockdraft.training.vocabulary import DraftVocabulary

DRAFTER_FOLDER = "drafter"
CARD_FILE = "README.md"


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
    training = _section(provenance, "training")
    drafter = _section(provenance, "drafter")
    lines = [
        f"# DFlash drafter for {training.get('target')}",
        "",
        f"{drafter.get('layers')} layers, blocks of {drafter.get('block_size')}, "
        f"{_count(drafter.get('parameters'))} parameters, draft vocabulary "
        f"{_count(drafter.get('draft_vocabulary'))}, taps {drafter.get('taps')}, bf16.",
        "",
        "## Measured",
        "",
        "| how | acceptance length |",
        "|---|---:|",
    ]
    for name, tau in _section(provenance, "measured").items():
        lines.append(f"| {name} | {tau} |")
    lines += [
        "",
        "Acceptance length = tokens committed for each verification, bonus token included, pooled.",
        "",
        "## Made by",
        "",
        f"`{training.get('command')}`, seed {training.get('seed')}: {training.get('steps')} steps "
        f"over {_count(training.get('answers'))} answers "
        f"({_count(training.get('answer_tokens'))} tokens).",
    ]
    licenses = _section(provenance, "licenses")
    if licenses:
        lines += ["", "| license | conversations in the answer folders |", "|---|---:|"]
    for name, count in licenses.items():
        lines.append(f"| {name} | {_count(count)} |")
    lines += ["", "All settings, versions and hashes are in `provenance.json`.", ""]
    return "\n".join(lines)


def _section(provenance: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = provenance.get(name)
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


def _count(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
