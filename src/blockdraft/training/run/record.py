"""The provenance of a trained drafter: who made it of what, how, and how long it drafts.

Assembles values only; `export.py` writes them.
"""

from collections.abc import Mapping, Sequence
from typing import cast

from blockdraft.checkpoint.provenance import TAU_KEY
from blockdraft.target.fingerprint import fingerprint_of
from blockdraft.training.config import RunConfig
from blockdraft.training.run.setup import Training
from blockdraft.training.vocabulary import DraftVocabulary

SCHEMA = 1


def make_provenance(
    training: Training,
    config: RunConfig,
    measured: Mapping[str, float],
    *,
    steps: int,
    command: str,
    machine: Mapping[str, str],
    tokenizer: Mapping[str, object] | None,
) -> dict[str, object]:
    """Everything that is recorded beside the weights.

    `measured` is what `measured_at` found for these weights. `acceptance_length` is the decoded
    one, else the simulated one; engines raise an alarm far below it. `machine` says hardware and
    software. `tokenizer` is what a later check of another target is compared with.
    """
    train = training.data.train
    tau = measured.get("decoded, all", measured.get("simulated, all"))
    used = _used_manifests(training)
    return {
        "schema": SCHEMA,
        TAU_KEY: tau,
        "measured": dict(measured),
        "drafter": _drafter(training, training.vocabulary),
        "training": {
            "target": config.target.model,
            "command": command,
            "seed": config.run.seed,
            "steps": steps,
            "answers": len(train),
            "answer_tokens": train.num_answer_tokens,
            "left_out": {reason: rejects.count for reason, rejects in train.rejects.items()},
            "settings": config.as_table(),
        },
        "licenses": _licenses(used),
        "target_fingerprint": fingerprint_of(training.target),
        "tokenizer": tokenizer,
        "answers": [
            {"answers": manifest.get("answers"), "files": manifest.get("files")}
            for manifest in used
        ],
        "template": [manifest.get("template") for manifest in used],
        "machine": dict(machine),
    }


def measured_at(records: Sequence[Mapping[str, object]], step: int) -> dict[str, float]:
    """Acceptance lengths after `step`, by kind and category, from the records of `metrics.jsonl`:
    also those of an earlier process of the run."""
    measured: dict[str, float] = {}
    for record in records:
        kind = record["kind"]
        if record["step"] != step or kind not in ("simulated", "decoded"):
            continue
        for name, value in record.items():
            if name.startswith("tau") and isinstance(value, int | float):
                category = name.removeprefix("tau").removeprefix("_") or "all"
                measured[f"{kind}, {category}"] = round(value, 3)
    return measured


def _drafter(training: Training, vocabulary: DraftVocabulary | None) -> dict[str, object]:
    shape = training.drafter.config
    heldout = training.data.heldout
    coverage = vocabulary.coverage(heldout) if vocabulary is not None and len(heldout) else None
    return {
        "layers": shape.num_layers,
        "block_size": shape.block_size,
        "taps": list(shape.taps),
        "parameters": sum(p.numel() for p in training.drafter.parameters()),
        "draft_vocabulary": shape.vocab_size if vocabulary is None else len(vocabulary),
        "coverage_of_heldout_answers": None if coverage is None else round(coverage, 4),
    }


def _used_manifests(training: Training) -> list[Mapping[str, object]]:
    """The manifests of the folders that at least one answer was learned from."""
    answers, train = training.data.answers, training.data.train
    used = {answers.folder_of(train.row_of(index)) for index in range(len(train))}
    return [manifest for folder, manifest in enumerate(answers.manifests) if folder in used]


def _licenses(manifests: Sequence[Mapping[str, object]]) -> dict[str, int]:
    """Conversations under each license in whole folders: answers do not carry theirs, so those
    that were held out or left out count too."""
    counted: dict[str, int] = {}
    for manifest in manifests:
        found = manifest.get("licenses")
        if isinstance(found, Mapping):
            for name, count in cast("Mapping[str, int]", found).items():
                counted[name] = counted.get(name, 0) + count
    return dict(sorted(counted.items()))
