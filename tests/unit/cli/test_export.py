"""`blockdraft export`: arguments, the result for people and for programs."""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import cast

import pytest

from blockdraft.builtin import builtin_drafter_path
from blockdraft.checkpoint import load_checkpoint
from blockdraft.cli import export
from blockdraft.errors import ConfigError
from blockdraft.interop.cast import OUTTYPES


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """All that an HF export reads of a target of SmolLM2's sizes."""
    folder = tmp_path / "target"
    folder.mkdir()
    sizes = {"hidden_size": 576, "num_hidden_layers": 30, "vocab_size": 49152}
    (folder / "config.json").write_text(json.dumps(sizes | {"model_type": "llama"}))
    return folder


def run(*argv: str) -> int:
    parser = ArgumentParser()
    export.add_arguments(parser)
    return export.run(parser.parse_args(argv))


def test_one_json_document(
    target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    given = ("--target", str(target), "--drafter", "smollm2", "--out", str(out))
    assert run("--format", "hf", *given, "--json") == 0
    result = cast("dict[str, object]", json.loads(capsys.readouterr().out))
    assert result["format"] == "hf" and result["outtype"] == "bf16"
    assert result["block_size"] == 8 and result["num_drafts"] == 7
    assert result["recorded_tau"] == 1.77
    files = cast("list[dict[str, object]]", result["files"])
    names = ["README.md", "config.json", "model.safetensors", "provenance.json"]
    assert [file["name"] for file in files] == names
    path = builtin_drafter_path("smollm2")
    assert path is not None
    assert load_checkpoint(out).state.keys() == load_checkpoint(path).state.keys()


def test_text_says_what_to_do_next(
    target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert (
        run("--format", "hf", "--target", str(target), "--drafter", "smollm2", "--out", str(out))
        == 0
    )
    text = capsys.readouterr().out
    assert "every tensor equal" in text
    assert "8,192 ids is left out" in text
    assert "blockdraft launch vllm" in text


def test_types_are_those_of_the_formats() -> None:
    """They are named twice, so that `blockdraft --help` need not import torch."""
    assert (*OUTTYPES, "q8_0") == export.OUTTYPES


@pytest.mark.parametrize("drafter", ["none", "prompt-lookup"])
def test_nothing_trained_is_nothing_to_export(drafter: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no weights"):
        run("--format", "hf", "--drafter", drafter, "--out", str(tmp_path / "out"))


def test_a_drafter_must_be_named_beside_another_target(target: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no drafter is known"):
        run("--format", "hf", "--target", str(target), "--out", str(tmp_path / "out"))
