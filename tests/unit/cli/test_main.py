"""Exit codes, error lines and quick help of the command itself."""

import logging
import re
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable

import pytest

from blockdraft import __version__, errors
from blockdraft.cli import models
from blockdraft.cli.main import COMMANDS, main

NEEDED = {
    "data": ["prepare", "a.jsonl", "--out", "b"],
    "eval": ["--prompts", "a.jsonl"],
    "export": ["--target", "a", "--drafter", "b", "--format", "hf", "--out", "c"],
    "inspect": ["a"],
    "launch": ["vllm", "--target", "a", "--drafter", "b"],
    "report": ["a"],
}
"""What a command can't go without."""

HEAVY = ("torch", "transformers", "rich", "huggingface_hub", "safetensors")


def raising(error: BaseException) -> Callable[[Namespace], int]:
    def run(args: Namespace) -> int:
        raise error

    return run


def test_help_and_argument_errors_import_nothing_heavy() -> None:
    """Stands for the 0.3 s of --help: what takes long is not imported. One process asks them all:
    what the first ones imported would still be there after the last."""
    asked = [["--help"], ["--version"], ["generate", "--top-k"]]
    asked += [[name, "--help"] for name in COMMANDS]
    code = (
        "import sys\nfrom blockdraft.cli.main import main\n"
        f"for argv in {asked!r}:\n"
        "    try:\n        main(argv)\n    except SystemExit:\n        pass\n"
        f"    heavy = sorted(set({HEAVY!r}) & set(sys.modules))\n"
        "    assert not heavy, (argv, heavy)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: blockdraft") == 1 + len(COMMANDS)


def test_version_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(["--version"])
    assert exit_info.value.code == 0
    assert capsys.readouterr().out == f"blockdraft {__version__}\n"


def test_help_states_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    stated = capsys.readouterr().out.partition("exit codes:")[2]
    assert re.findall(r"^  (\d+) ", stated, re.MULTILINE) == ["0", "1", "2", "130", "141"]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([name, "--help"])
    assert f"  blockdraft {name}" in capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_flag_points_to_the_commands_own_help(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main([name, *NEEDED.get(name, []), "--wrong", "--tracebak=1"])
    assert exit_info.value.code == 2
    whole = {"data": "data prepare", "launch": "launch vllm"}.get(name, name)
    assert capsys.readouterr().err == (
        f"blockdraft {whole}: error: unrecognized arguments: --wrong --tracebak=1; did you mean "
        f"--traceback? (see blockdraft {whole} --help)\n"
    )


@pytest.mark.parametrize(
    "argv", [[], ["nonsense"], ["models", "--jsn"], ["generate", "--seed", "x"]], ids=" ".join
)
def test_an_argument_error_is_one_line(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(argv)
    assert exit_info.value.code == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1 and "--help)" in output.err


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (errors.ConfigError("bad"), 2, "blockdraft: error: bad\n"),
        (errors.CheckpointError("bad\n  file"), 2, "blockdraft: error: bad file\n"),
        (errors.RequestError("bad"), 2, "blockdraft: error: bad\n"),
        (errors.UnsupportedTarget("bad"), 2, "blockdraft: error: bad\n"),
        (errors.NumericsError("bad"), 1, "blockdraft: error: bad\n"),
        (errors.DrafterError("bad"), 1, "blockdraft: error: bad\n"),
        (errors.FetchError("bad"), 1, "blockdraft: error: bad\n"),
        (errors.EngineFault("bad"), 1, "blockdraft: error: bad\n"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 141, ""),
        (KeyError("x"), 1, "blockdraft: unexpected KeyError: 'x' (--traceback shows where)\n"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_become_exit_codes(
    error: BaseException,
    code: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(models, "run", raising(error))
    assert main(["models"]) == code
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", line)


@pytest.mark.parametrize("argv", [["--traceback", "models"], ["models", "--traceback"]])
def test_a_traceback_is_shown_on_request(
    argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(models, "run", raising(KeyError("x")))
    assert main(argv) == 1
    assert "in run" in capsys.readouterr().err


def test_warnings_go_to_stderr_while_a_command_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(args: Namespace) -> int:
        logging.getLogger("blockdraft").warning("careful")
        return 0

    monkeypatch.setattr(models, "run", run)
    assert main(["models"]) == 0
    assert capsys.readouterr().err == "blockdraft: WARNING: careful\n"
    assert logging.getLogger("blockdraft").handlers == []


def fault(args: Namespace) -> int:
    try:
        raise KeyError("x")
    except KeyError as error:
        logging.getLogger("blockdraft").error("a step failed", exc_info=error)
    return 0


def test_a_logged_traceback_is_shown_on_request_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The engine logs where a step failed; people get one line."""
    monkeypatch.setattr(models, "run", fault)
    assert main(["models"]) == 0
    assert capsys.readouterr().err == "blockdraft: ERROR: a step failed\n"
    assert main(["models", "--traceback"]) == 0
    assert "in fault" in capsys.readouterr().err
