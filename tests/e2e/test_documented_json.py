"""docs/cli.md names the keys that `--json` prints, and the flags that exist."""

import json
import re
from argparse import ArgumentParser
from dataclasses import fields
from pathlib import Path
from typing import cast

import pytest

from blockdraft.cli.args import add_sampling_args
from blockdraft.cli.comparison import Difference
from blockdraft.cli.main import COMMANDS, main

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
SHORT = ["--max-new-tokens", "6"]
Capture = pytest.CaptureFixture[str]


def documented(heading: str) -> object:
    """The first JSON block under a heading, `STATS` in it spelled out."""
    section = PAGE.split(f"# {heading}\n", 1)[1]
    match = re.search(r"^```json\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert match is not None
    stats = "" if heading == "JSON: statistics" else json.dumps(documented("JSON: statistics"))
    return cast(object, json.loads(re.sub(r"\bSTATS\b", stats, match[1])))


def key_paths(value: object, path: str = "") -> list[str]:
    """Every key with the keys around it, in order; of a list, those of its first entry."""
    if isinstance(value, list):
        entries = cast("list[object]", value)
        return key_paths(entries[0], f"{path}[]") if entries else []
    if not isinstance(value, dict):
        return []
    found: list[str] = []
    for key, inner in cast("dict[str, object]", value).items():
        found += [f"{path}.{key}", *key_paths(inner, f"{path}.{key}")]
    return found


def assert_documented(heading: str, printed: str) -> None:
    assert key_paths(json.loads(printed)) == key_paths(documented(heading))


def test_generate(ids_pair: list[str], capsys: Capture) -> None:
    argv = ["generate", *ids_pair, *SHORT, "--prompt-ids", "12,7", "--json", "--logprobs", "1"]
    assert main(argv) == 0
    assert_documented("JSON: generate", capsys.readouterr().out)


def test_generate_without_an_answer(text_pair: list[str], tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(json.dumps({"id": "long", "turns": ["x" * 600]}))
    assert main(["generate", *text_pair, *SHORT, "--json", "--prompts", str(path)]) == 1
    assert_documented("A turn without an answer", capsys.readouterr().out)


def test_verify(ids_pair: list[str], capsys: Capture) -> None:
    assert main(["verify", *ids_pair, *SHORT, "--prompt-ids", "12,7", "--json"]) == 0
    assert_documented("JSON: verify", capsys.readouterr().out)
    difference = cast("dict[str, object]", documented("A difference"))
    names = [field.name for field in fields(Difference)]
    assert list(difference) == ["id", "turn", "width", *names]


def test_demo(text_pair: list[str], prompt_file: Path, capsys: Capture) -> None:
    argv = ["demo", *text_pair, *SHORT, "--prompts", str(prompt_file), "--json"]
    assert main([*argv, "--limit", "1", "--repeats", "1"]) == 0
    assert_documented("JSON: demo", capsys.readouterr().out)


def test_inspect(ids_pair: list[str], capsys: Capture) -> None:
    assert main(["inspect", ids_pair[3], "--json"]) == 0
    assert_documented("JSON: inspect", capsys.readouterr().out)


def test_inspect_of_a_target(ids_pair: list[str], capsys: Capture) -> None:
    assert main(["inspect", "--target", ids_pair[1], "--json"]) == 0
    assert_documented("JSON: inspect of a target", capsys.readouterr().out)


def test_models(capsys: Capture) -> None:
    assert main(["models", "--json"]) == 0
    assert_documented("JSON: models", capsys.readouterr().out)


def test_check(ids_pair: list[str], capsys: Capture) -> None:
    argv = ["check", *ids_pair, "--engine", "blockdraft", "--json"]
    assert main([*argv, "--max-new-tokens", "6"]) == 0
    assert_documented("JSON: check", capsys.readouterr().out)


def test_export(ids_pair: list[str], tmp_path: Path, capsys: Capture) -> None:
    argv = ["export", "--format", "hf", *ids_pair, "--out", str(tmp_path / "out"), "--json"]
    assert main(argv) == 0
    assert_documented("JSON: export", capsys.readouterr().out)


def test_launch(ids_pair: list[str], capsys: Capture) -> None:
    argv = ["launch", "vllm", *ids_pair, "--device", "cpu", "--print", "--json"]
    assert main(argv) == 0
    assert_documented("JSON: launch", capsys.readouterr().out)


def test_commands_and_sampling_flags_are_named() -> None:
    """S15: the page leaves no sampling flag out."""
    assert re.findall(r"^\| `blockdraft (\w+)` \|", PAGE, re.MULTILINE) == list(COMMANDS)
    parser = ArgumentParser(add_help=False)
    add_sampling_args(parser)
    flags = set(re.findall(r"--[a-z][a-z-]+", parser.format_help()))
    section = PAGE.split("## Sampling flags\n")[1].split("\n## ")[0]
    listed = "".join(line for line in section.splitlines() if line.startswith("* "))
    assert set(re.findall(r"--[a-z][a-z-]+", listed)) == flags
