"""An exported drafter is the trained one: in every file, after every reload, or not at all."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from packed import CONFIG

from blockdraft.checkpoint import load_checkpoint
from blockdraft.checkpoint.card import CARD_FILE
from blockdraft.checkpoint.provenance import PROVENANCE_FILE
from blockdraft.training.initialize import new_drafter
from blockdraft.training.run import export
from blockdraft.training.run.export import (
    TrainedDrafter,
    export_drafter,
    render_card,
)
from blockdraft.training.run.record import measured_at
from blockdraft.training.vocabulary import DraftVocabulary

PROVENANCE: dict[str, object] = {
    "schema": 1,
    "acceptance_length": 2.5,
    "measured": {"simulated, all": 2.5},
    "drafter": {"layers": 2, "block_size": 5, "parameters": 12345, "draft_vocabulary": 8},
    "training": {"target": "tiny", "command": "blockdraft train x", "seed": 3, "answers": 4000},
    "licenses": {"mit": 3},
}


def trained(seed: int = 0, *, reduced: bool = False) -> TrainedDrafter:
    vocabulary = DraftVocabulary(torch.arange(0, 40, 5), 40) if reduced else None
    config = replace(CONFIG, draft_vocab_size=8) if reduced else CONFIG
    tensors = {n: p.detach() for n, p in new_drafter(config, seed).named_parameters()}
    return TrainedDrafter(
        config=config, tensors=tensors, vocabulary=vocabulary, provenance=PROVENANCE
    )


@pytest.mark.parametrize("reduced", [False, True])
def test_what_is_loaded_is_what_was_trained(tmp_path: Path, reduced: bool) -> None:
    made = trained(reduced=reduced)
    export_drafter(made, tmp_path / "run" / "drafter")
    found = load_checkpoint(str(tmp_path / "run" / "drafter"), dtype=torch.float32)
    assert found.config == made.config
    assert found.state.keys() == made.tensors.keys()
    for name, tensor in made.tensors.items():
        assert torch.equal(found.state[name], tensor.to(torch.bfloat16).float()), name
    if made.vocabulary is None:
        assert found.d2t is None
    else:
        assert found.d2t is not None
        assert (torch.arange(8) + found.d2t).tolist() == list(range(0, 40, 5))
    provenance = json.loads((tmp_path / "run" / "drafter" / PROVENANCE_FILE).read_text())
    assert provenance == PROVENANCE
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["drafter"], "no leftovers"


def test_an_earlier_export_is_replaced_whole(tmp_path: Path) -> None:
    folder = tmp_path / "drafter"
    export_drafter(trained(0, reduced=True), folder)
    (folder / "stray").write_text("x")
    export_drafter(trained(1), folder)
    assert not (folder / "stray").exists()
    assert load_checkpoint(str(folder), dtype=torch.float32).d2t is None
    assert [path.name for path in tmp_path.iterdir()] == ["drafter"]


def test_a_failure_leaves_the_earlier_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "drafter"
    export_drafter(trained(0), folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def broken(provenance: object) -> str:
        raise OSError("disk full")

    monkeypatch.setattr(export, "render_card", broken)
    with pytest.raises(OSError, match="disk full"):
        export_drafter(trained(1), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["drafter"]


def test_the_same_export_has_the_same_bytes(tmp_path: Path) -> None:
    for name in "ab":
        export_drafter(trained(), tmp_path / name / "drafter")
    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / name / "drafter").iterdir()}
        for name in "ab"
    )
    assert first == second and first.keys() >= {"config.json", "model.safetensors", CARD_FILE}


def test_the_card_says_what_matters() -> None:
    card = render_card(PROVENANCE)
    for part in ("tiny", "12,345", "simulated, all | 2.5", "blockdraft train x", "mit | 3"):
        assert part in card
    header = "| license of the data | conversations in the answer folders |"
    assert f"{header}\n|---|---:|\n| mit | 3 |" in card
    assert "license" not in render_card({}), "a card of nothing is still a card"


def test_figures_of_a_step_come_from_the_metrics_of_the_whole_run() -> None:
    records: list[dict[str, object]] = [
        {"step": 4, "kind": "simulated", "tau": 9.0},
        {"step": 8, "kind": "train", "loss": 1.0},
        {"step": 8, "kind": "simulated", "tau": 2.34567, "tau_math": 3, "seconds": 1.0},
        {"step": 8, "kind": "decoded", "tau": 2.2, "acceptance_by_position": [0.5]},
    ]
    assert measured_at(records, 8) == {
        "simulated, all": 2.346,
        "simulated, math": 3,
        "decoded, all": 2.2,
    }
