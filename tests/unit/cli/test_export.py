"""`blockdraft export`: arguments, the result for people and for programs."""

import json
import subprocess
import sys
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
    files = cast("list[dict[str, object]]", result["files"])
    names = ["README.md", "config.json", "model.safetensors", "provenance.json"]
    assert [file["name"] for file in files] == names
    path = builtin_drafter_path("smollm2")
    assert path is not None
    builtin = load_checkpoint(path)
    assert load_checkpoint(out).state.keys() == builtin.state.keys()
    assert builtin.recorded_tau is not None and result["recorded_tau"] == builtin.recorded_tau


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
    # OpenVINO reads neither folder as it is.
    lines = [line.split(maxsplit=1)[1] for line in text.splitlines() if line.startswith("next")]
    converted = [line for line in lines if line.startswith("optimum-cli export openvino")]
    assert [line.split("--model ")[1].split()[0] for line in converted] == [str(target), str(out)]
    pair = "--target out-target-ov --drafter out-ov"
    assert lines[-1].startswith(f"blockdraft launch openvino {pair}")
    assert "--trust-remote-code" in converted[1] and "--trust-remote-code" not in converted[0]


def test_types_are_those_of_the_formats() -> None:
    """They are named twice, so that `blockdraft --help` need not import torch."""
    assert (*OUTTYPES, "q8_0") == export.OUTTYPES


def test_an_empty_name_is_no_folder(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("", "  "):
        with pytest.raises(SystemExit):
            run("--format", "hf", "--out", name)
        assert "the name is empty" in capsys.readouterr().err


def start(target: Path, out: Path) -> "subprocess.Popen[str]":
    """An export that has made its scratch folder and then waits."""
    program = (
        "import sys, time\n"
        "from blockdraft.interop.output import Output\n"
        "def wait(self, folder):\n"
        "    print('scratch', folder, flush=True)\n"
        "    time.sleep(60)\n"
        "Output.verify = wait\n"
        "from blockdraft.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    given = ["export", "--format", "hf", "--target", str(target), "--drafter", "smollm2"]
    running = subprocess.Popen(
        [sys.executable, "-c", program, *given, "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert running.stdout is not None and running.stdout.readline().startswith("scratch")
    return running


@pytest.mark.slow
def test_a_sigterm_leaves_nothing_and_a_kill_what_the_next_export_removes(
    target: Path, tmp_path: Path
) -> None:
    before = sorted(tmp_path.iterdir())
    with start(target, tmp_path / "out") as running:
        running.terminate()
        assert running.wait(30) == 143
    assert sorted(tmp_path.iterdir()) == before

    with start(target, tmp_path / "out") as running:
        (left,) = set(tmp_path.iterdir()) - set(before)
        running.kill()
    assert left.is_dir()
    given = ("--target", str(target), "--drafter", "smollm2", "--out", str(tmp_path / "out"))
    assert run("--format", "hf", *given) == 0
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "out"])


@pytest.mark.parametrize("drafter", ["none", "prompt-lookup"])
def test_nothing_trained_is_nothing_to_export(drafter: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no weights"):
        run("--format", "hf", "--drafter", drafter, "--out", str(tmp_path / "out"))


def test_a_drafter_must_be_named_beside_another_target(target: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no drafter is known"):
        run("--format", "hf", "--target", str(target), "--out", str(tmp_path / "out"))
