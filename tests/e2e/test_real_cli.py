"""The commands with the real built-in model."""

import json
from pathlib import Path

import pytest

from blockdraft.cli.main import main

pytestmark = pytest.mark.acceptance

Capture = pytest.CaptureFixture[str]


def test_demo_is_identical(capsys: Capture) -> None:
    """The default settings promise equal texts in bfloat16."""
    assert main(["demo", "--json", "--max-new-tokens", "32", "--repeats", "1"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["identical"] is True
    assert document["conditions"]["batch_invariant"] == 8
    assert document["conditions"]["engine"] == "native"
    assert document["totals"]["math"]["drafted"]["tau_drafted"] > 1.3


def test_generate_answers_with_text(capsys: Capture) -> None:
    argv = ["generate", "--json", "--max-new-tokens", "48", "What is 17 * 3?"]
    assert main(argv) == 0
    line = json.loads(capsys.readouterr().out)
    assert "51" in line["text"]
    assert main([*argv, "--drafter", "none"]) == 0
    assert json.loads(capsys.readouterr().out)["token_ids"] == line["token_ids"]


def test_verify_on_evaluation_prompts(data_dir: Path, capsys: Capture) -> None:
    """C03: a check that a user can run."""
    prompts = str(data_dir / "eval" / "gsm8k.jsonl")
    argv = ["verify", "--exact", "--prompts", prompts, "--limit", "2", "--json"]
    assert main([*argv, "--max-new-tokens", "24", "--widths", "off,3,8,auto"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["different"] for row in document["widths"]] == [0, 0, 0, 0]
