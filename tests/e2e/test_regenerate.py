"""`blockdraft data regenerate` and `self-prompt` as they are typed, with a small random model."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from blockdraft.cli.main import main
from blockdraft.data import self_prompt
from blockdraft.data.answers import AnswerTable


@pytest.fixture
def chat_file(tmp_path: Path) -> Path:
    """Twelve conversations, every third one with two turns, and a broken line."""
    path = tmp_path / "chat.jsonl"
    lines = [
        json.dumps({"id": f"c{i}", "turns": [f"word {i}", "and more"][: 1 + (i % 3 == 0)]})
        for i in range(12)
    ]
    path.write_text("\n".join([*lines, "{broken"]) + "\n")
    return path


def command(text_target: Path, chat_file: Path, out: Path, *more: str) -> list[str]:
    return [
        *("data", "regenerate", str(chat_file), "--target", str(text_target), "--out", str(out)),
        *("--dtype", "float32", "--threads", "1", "--slots", "4", "--kv-memory", "20MB"),
        *("--max-context", "200", "--max-new-tokens", "40", "--sampled-share", "0.5"),
        *more,
    ]


def test_regenerate(
    text_target: Path, chat_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = command(text_target, chat_file, out, "--template-arg", "shout=true", "--json")
    assert main(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["finished"] and document["turns"] == 16
    assert document["problems"] == {"bad_line": 1}
    assert "line 13" in document["shown"][0]["where"]
    table = AnswerTable.open(out)
    template = table.manifest["template"]
    assert "LOUD<assistant>" in json.dumps(template)
    assert '"template_args": {"shout": true}' in json.dumps(template)
    assert {answer.temperature for answer in table} == {0.0, 0.7}
    assert main(arguments) == 0  # nothing is left to do
    assert main([*arguments, "--seed", "3"]) == 2
    assert "answers.seed was 0, is 3 now" in capsys.readouterr().err


@pytest.mark.slow
def test_a_killed_run_goes_on(text_target: Path, chat_file: Path, tmp_path: Path) -> None:
    """SIGKILL loses what was running; SIGTERM says how to go on. The result is the same."""
    straight, out = tmp_path / "straight", tmp_path / "out"
    assert main(command(text_target, chat_file, straight)) == 0
    script = [sys.executable, "-m", "blockdraft.cli.main"]
    arguments = command(text_target, chat_file, out, "--slots", "1")
    for number, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 130)):
        lines_before = count_lines(out)
        process = subprocess.Popen(
            [*script, *arguments],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        deadline = time.monotonic() + 120
        while count_lines(out) <= lines_before + 1 and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        process.send_signal(number)
        _, errors = process.communicate()
        assert process.returncode == code, errors
        assert lines_before < count_lines(out) < 16
        if number == signal.SIGTERM:
            assert "the same command goes on from there" in errors
    assert main(arguments) == 0
    assert list(AnswerTable.open(out)) == list(AnswerTable.open(straight))


def count_lines(out: Path) -> int:
    log = out / "answers.jsonl"
    return log.read_bytes().count(b"\n") if log.exists() else 0


def test_self_prompt(
    text_target: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A random model writes no user turns worth keeping, and that is said."""
    monkeypatch.setattr(self_prompt, "MIN_TRIED", 40)
    arguments = [
        *("data", "self-prompt", "--target", str(text_target), "--out", str(tmp_path / "s.jsonl")),
        *("--count", "5", "--max-new-tokens", "4", "--dtype", "float32", "--slots", "32"),
        *("--max-context", "64", "--kv-memory", "20MB"),
    ]
    assert main(arguments) == 2
    assert "sampled turns 0 were any good" in capsys.readouterr().err
    assert main([*arguments, "--temperature", "0"]) == 2
    assert "greedy turns would all be the same" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--model", "x"), "need an --endpoint"),
        (("--endpoint", "http://127.0.0.1:9/v1", "--model", "x"), "does not answer"),
        (("--endpoint", "http://x/v1", "--model", "x", "--api-key-env", "NO_KEY"), "is not set"),
        (("--max-new-tokens", "200"), "--max-new-tokens 200"),
        (("--strict",), "line 13"),
    ],
)
def test_mistakes(
    text_target: Path,
    chat_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    more: tuple[str, ...],
    words: str,
) -> None:
    assert main(command(text_target, chat_file, tmp_path / "out", *more)) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out" / "answers.jsonl").exists()


def test_a_target_without_a_template_or_tokenizer(
    ids_pair: list[str],
    text_target: Path,
    chat_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(command(Path(ids_pair[1]), chat_file, tmp_path / "out")) == 2
    assert "has no tokenizer" in capsys.readouterr().err
