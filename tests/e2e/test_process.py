"""The command as a process: pipes that close, interrupts, modules that list and describe."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from blockdraft.cli.main import main

COMMAND = [sys.executable, "-m", "blockdraft.cli.main"]


@pytest.mark.slow
def test_a_closed_pipe_is_no_error(ids_pair: list[str]) -> None:
    argv = ["generate", *ids_pair, "--prompt-ids", "12,7", "--max-new-tokens", "400", "--stream"]
    process = subprocess.Popen([*COMMAND, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.read(1)
    process.stdout.close()
    stderr = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 141
    assert stderr == b""


def test_an_interrupt_is_quiet(tmp_path: Path) -> None:
    """Ctrl-C while a prompt is being read."""
    code = "import sys; from blockdraft.cli.main import main; print('up', flush=True); "
    code += "sys.exit(main(['generate', '--drafter', 'none']))"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stderr == b""


@pytest.mark.slow
def test_an_answer_from_a_process(ids_pair: list[str]) -> None:
    argv = ["generate", *ids_pair, "--prompt-ids", "12,7", "--max-new-tokens", "4", "--json"]
    done = subprocess.run([*COMMAND, *argv], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(json.loads(done.stdout)["token_ids"]) == 4


def test_inspect_describes_the_built_in_drafter(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "smollm2"]) == 0
    assert "block size  8" in capsys.readouterr().out
    assert main(["inspect", "smollm2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["block_size"] == 8
    assert document["taps"] == [1, 8, 14, 20, 27]


def test_inspect_says_which_engine_runs_a_target(
    ids_pair: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", "--target", ids_pair[1]]) == 0
    told = capsys.readouterr().out
    assert "engine      native" in told
    assert main(["inspect", ids_pair[1]]) == 0
    assert capsys.readouterr().out == told
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "gpt2"}')  # the configuration alone is enough
    assert main(["inspect", "--target", str(tmp_path)]) == 0
    assert "hf (transformers): model type gpt2 is not one of llama" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["no/such/folder"], "no config.json"),
        (["smollm2"], "not on this machine yet"),
        ([".", "--taps", "1"], "drop --taps"),
        ([".", "--revision", "abc"], "belongs to a hub id"),
        (["owner/no-such-model"], "can't be read"),
    ],
)
def test_mistakes_in_inspecting_a_target(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", "--target", *argv]) == 2
    output = capsys.readouterr()
    assert output.out == "" and message in output.err and output.err.count("\n") == 1


def test_a_drafter_is_no_target(ids_pair: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--target", ids_pair[3]]) == 2
    assert "is a DFlash drafter" in capsys.readouterr().err
    assert main(["inspect", ids_pair[3]]) == 0
    assert "block size  8" in capsys.readouterr().out


def test_models_lists_the_built_in_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--json"]) == 0
    (model,) = json.loads(capsys.readouterr().out)["models"]
    assert model["name"] == "smollm2"
    assert model["license"] == "Apache-2.0"
    assert isinstance(model["cached"], bool) and model["download_bytes"] > 10**6
    assert model["drafter"] is not None
    assert main(["models"]) == 0
    assert "SmolLM2-135M-Instruct" in capsys.readouterr().out
