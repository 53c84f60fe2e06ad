"""Tests of the conversion for OpenVINO, and of how many drafts its pipeline is told."""

from pathlib import Path

import pytest

from engine_export import ExportFailed, export_command, export_drafter
from engine_openvino import Setup, convert, convert_command
from engine_server import EngineFailed
from workers.openvino_pipeline import load, own_draft_len
from workers.protocol import Settings


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(
        envs=tmp_path, out=tmp_path, drafter=tmp_path, num_prompts=1, num_tokens=1, threads=1
    )


def cli(setup: Setup, text: str) -> None:
    path = setup.envs / "openvino" / "bin" / "optimum-cli"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="ascii")
    path.chmod(0o755)


def test_drafter_has_no_tokenizer_and_code_of_the_exporter() -> None:
    cli = Path("optimum-cli")
    drafter = convert_command(cli, Path("d"), Path("o"), "bfloat16", drafter=True)
    assert {"--trust-remote-code", "--disable-convert-tokenizer"} < set(drafter)
    assert "--weight-format" not in drafter
    target = convert_command(cli, Path("t"), Path("o"), "float32", drafter=False)
    assert target[-3:] == ["--weight-format", "fp32", "o"]
    assert "--trust-remote-code" not in target


def test_conversion_is_kept_and_a_refusal_told(setup: Setup, tmp_path: Path) -> None:
    cli(setup, "echo 'ValueError: DFlash export supports only Qwen3' >&2; exit 1")
    with pytest.raises(EngineFailed, match=r"^ValueError: DFlash export supports only Qwen3$"):
        convert(setup, tmp_path, tmp_path / "ir", "float32", drafter=True)
    (tmp_path / "ir").mkdir()
    (tmp_path / "ir" / "openvino_model.xml").write_text("", encoding="ascii")
    assert convert(setup, tmp_path, tmp_path / "ir", "float32", drafter=True) == tmp_path / "ir"


def test_openvino_counts_drafts_not_the_block(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"block_size": 8}', encoding="ascii")
    assert own_draft_len(tmp_path) == 7


def test_modes_that_are_not_there() -> None:
    settings = Settings(mode="dflash", model="m", dtype="float32", threads=1)
    with pytest.raises(ValueError, match="dflash with a drafter"):
        load(settings)


@pytest.mark.slow
def test_export_names_the_pair_and_tells_a_refusal(tmp_path: Path) -> None:
    command = export_command("hf", tmp_path / "t", tmp_path / "o")
    assert command[command.index("--format") + 1] == "hf"
    assert export_drafter("hf", tmp_path, tmp_path) == tmp_path
    with pytest.raises(ExportFailed, match="export"):
        export_drafter("hf", tmp_path / "missing", tmp_path / "o")
