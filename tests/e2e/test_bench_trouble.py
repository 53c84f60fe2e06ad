"""`blockdraft bench` in process when things go wrong: interrupts, files, odd orders."""

import json
from pathlib import Path
from typing import cast

import pytest

from blockdraft.bench import ResultsFolder
from blockdraft.bench.in_process import InProcessBench
from blockdraft.bench.report.reading import read_results
from blockdraft.cli import bench_session
from blockdraft.cli.main import main
from blockdraft.errors import ConfigError

pytestmark = pytest.mark.slow

SHORT = ["--max-tokens", "4", "--repeats", "1", "--width", "fixed:4", "--concurrency", "1"]
Capture = pytest.CaptureFixture[str]
Document = dict[str, object]


@pytest.fixture
def argv(ids_pair: list[str], tmp_path: Path) -> list[str]:
    """Two prompts on two lanes of baselines and one that drafts."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(
        '{"id": "a", "prompt_ids": [12, 7, 9]}\n{"id": "b", "prompt_ids": [8, 30]}\n'
    )
    return ["bench", *ids_pair, *SHORT, "--prompts", str(prompts)]


def interrupt(*args: object, **settings: object) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_while_the_end_is_made_loses_no_level(
    argv: list[str], tmp_path: Path, capsys: Capture
) -> None:
    out = ["--out", str(tmp_path / "out")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench_session, "stack_document", interrupt)
        assert main([*argv, *out]) == 130
    document = read_results(tmp_path / "out")
    assert [level.is_complete for level in document.levels] == [True, True, True]
    assert document.stack is None
    assert main(["report", str(tmp_path / "out")]) == 0
    capsys.readouterr()
    assert main([*argv, *out, "--resume"]) == 0
    assert "3 of 3 levels are there already" in capsys.readouterr().err
    assert read_results(tmp_path / "out").stack


def test_an_interrupt_before_the_first_level_leaves_nothing(
    argv: list[str], tmp_path: Path
) -> None:
    out = ["--out", str(tmp_path / "out")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InProcessBench, "open", interrupt)
        assert main([*argv, *out]) == 130
    assert not list((tmp_path / "out").iterdir())
    assert main([*argv, *out, "--resume"]) == 0


def test_a_full_disk_ends_nothing(
    argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def refuse(folder: ResultsFolder, document: object) -> None:
        raise ConfigError(f"can't write {folder.path}: No space left on device")

    monkeypatch.setattr(ResultsFolder, "write", refuse)
    assert main([*argv, "--out", str(tmp_path / "out")]) == 1
    printed = capsys.readouterr()
    assert "No space left" in printed.err and "dflash fixed:4" in printed.out


def test_a_file_in_the_folders_place(argv: list[str], tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "out").write_text("x")
    assert main([*argv, "--out", str(tmp_path / "out" / "deep")]) == 2
    printed = capsys.readouterr().err
    assert "can't make --out" in printed and printed.count("\n") == 1


@pytest.mark.parametrize(
    "more",
    [
        ["--max-tokens", "1"],
        ["--limit", "1", "--requests", "1"],
        ["--drafter", "none"],
        ["--temperature", "0.9"],
        ["--requests", "1", "--concurrency", "8"],
    ],
)
def test_odd_orders_have_five_answers(
    argv: list[str], more: list[str], tmp_path: Path, capsys: Capture
) -> None:
    if "none" in more:
        at = argv.index("--drafter")
        argv = argv[:at] + argv[at + 2 :]
    assert main([*argv, *more, "--out", str(tmp_path / "out"), "--json"]) == 0
    document = cast(Document, json.loads(capsys.readouterr().out))
    assert len(cast("list[object]", document["answers"])) == 5
    html = (tmp_path / "out" / "report.html").read_text()
    assert html.count('<li class="answer ') == 5


def test_what_is_odd_is_told(argv: list[str], tmp_path: Path, capsys: Capture) -> None:
    """Keys that ask for nothing, prompts that repeat, requests that fail."""
    prompts = Path(argv[-1])
    prompts.write_text('{"prompt_ids": [12, 7], "color": 1}\n{"id": "long", "prompt_ids": [8')
    with prompts.open("a") as file:
        file.write(", 8" * 3000 + "]}\n")
    assert main([*argv, "--requests", "3"]) == 1
    told = capsys.readouterr().err
    assert f"note: {prompts}: ignored keys: color" in told
    assert "prompt too long: long: " in told
    assert "3 requests of 2 prompts" in told
    assert "tau is n/a" not in told


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "holds no prompts"),
        (b'{"prompt_ids": [1]}\n\xff\xfe', "prompts.jsonl"),
        (b'{"prompt": 7}', "line 1"),
        (b'{"id": "a", "prompt_ids": [1]}\n{"id": "a", "prompt_ids": [2]}', "was used in"),
        (b'{"model": "m", "prompt": "x", "nonsense": 1}', "nonsense"),
    ],
)
def test_bad_prompts_are_one_line(
    argv: list[str], content: bytes, said: str, capsys: Capture
) -> None:
    Path(argv[-1]).write_bytes(content)
    assert main(argv) == 2
    printed = capsys.readouterr().err
    assert said in printed.splitlines()[-1]


def test_when_nothing_is_answered_the_answers_say_so(argv: list[str], capsys: Capture) -> None:
    Path(argv[-1]).write_text('{"prompt_ids": [999999999999]}')
    assert main(argv) == 1
    printed = capsys.readouterr()
    assert "token id 999999999999" in printed.err
    assert printed.out.count("No request was answered") == 4 and "--baseline" not in printed.out


def test_a_damaged_result_is_not_gone_on_with(
    argv: list[str], tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for text in ("{", "[]", "{}", '{"schema": "blockdraft.bench", "version": 1}'):
        (out / "results.json").write_text(text)
        assert main([*argv, "--out", str(out), "--resume"]) == 2
        assert str(out / "results.json") in capsys.readouterr().err
        assert (out / "results.json").read_text() == text
