"""`blockdraft data prepare`: the command from its arguments to its files and words."""

import json
from pathlib import Path

import pytest

from blockdraft.cli.main import main

Capture = pytest.CaptureFixture[str]
EVAL = Path(__file__).parents[1] / "data" / "eval"


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    """Prompts of several shapes; one repeats an evaluation prompt without its instruction."""
    question = json.loads((EVAL / "math500.jsonl").read_text().split("\n")[0])["turns"][0]
    rows: list[object] = [
        {"id": "leaked", "prompt": question.partition("\nPlease")[0]},
        {"id": "u2028", "turns": ["Translate\u2028this.", "And that."]},
        {"messages": [{"role": "user", "content": "Say hello."}], "model": "m"},
        {"conversations": [{"from": "human", "value": "Count to ten."}]},
        {"instruction": "Sort these.", "input": "3 1 2", "output": "1 2 3"},
    ]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    path = tmp_path / "chats.jsonl"
    path.write_text("\n".join([*lines, '{"prompt": ']), encoding="utf-8")
    return path


def test_the_folder_and_the_report(chats: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "prompts"
    evals = [str(path) for path in sorted(EVAL.glob("*.jsonl"))]
    argv = ["data", "prepare", f"{chats},license=MIT", "--eval", *evals, "--holdout", "1"]
    assert main([*argv, "--out", str(out), "--json"]) == 0
    output = capsys.readouterr()
    document = json.loads(output.out)
    assert document == json.loads((out / "manifest.json").read_text())
    assert document["rows_read"] == 6
    assert document["licenses"] == {"MIT": 4}
    assert document["inputs"][0]["shapes"] == {
        "prompt": 1,
        "turns": 1,
        "messages": 1,
        "conversations": 1,
        "instruction": 1,
    }
    assert document["leaks"][0]["id"] == "leaked"
    assert {name: entry["rows"] for name, entry in document["outputs"].items()} == {
        "train.jsonl": 3,
        "heldout.jsonl": 1,
    }
    assert "licenses: MIT 4" in output.err
    assert f"{chats}, line 6: broken_line: not JSON" in output.err
    assert any("leak" in line and f"{chats}:1" in line for line in output.err.split("\n"))
    text = (out / "train.jsonl").read_text() + (out / "heldout.jsonl").read_text()
    records = [json.loads(line) for line in text.removesuffix("\n").split("\n")]
    assert {record["source"] for record in records} == {"chats.jsonl"}
    assert {record["turns"][0] for record in records} == {
        "Translate\u2028this.",
        "Say hello.",
        "Count to ten.",
        "Sort these.\n3 1 2",
    }


def test_a_stop_writes_nothing(chats: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "prompts"
    argv = ["data", "prepare", str(chats), "--out", str(out), "--on-bad", "stop"]
    assert main(argv) == 2
    output = capsys.readouterr()
    assert f"{chats}, line 6" in output.err and output.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == [chats.name]


def test_no_overwriting_unless_asked(chats: Path, tmp_path: Path, capsys: Capture) -> None:
    argv = ["data", "prepare", str(chats), "--out", str(tmp_path / "prompts")]
    assert main(argv) == 0
    assert "none were kept out" in capsys.readouterr().err
    assert main(argv) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert main([*argv, "--overwrite", "--limit", "2"]) == 0
    assert len((tmp_path / "prompts" / "train.jsonl").read_text().split("\n")) == 3


def test_lengths_in_tokens_of_a_target(
    chats: Path, text_target: Path, tmp_path: Path, capsys: Capture
) -> None:
    """A byte tokenizer, a template of four special tokens: 14 fit "Say hello." and no other."""
    argv = ["data", "prepare", str(chats), "--target", str(text_target), "--json"]
    argv += ["--out", str(tmp_path / "prompts"), "--max-prompt-tokens", "14"]
    assert main(argv) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["dropped"]["too_many_tokens"]["rows"] == 4
    assert document["rows_kept"] == 1
    assert document["target"] == str(text_target)


def test_a_target_without_a_tokenizer(
    chats: Path, ids_pair: list[str], tmp_path: Path, capsys: Capture
) -> None:
    argv = ["data", "prepare", str(chats), *ids_pair[:2], "--max-prompt-tokens", "14"]
    assert main([*argv, "--out", str(tmp_path / "prompts")]) == 2
    assert "use --max-chars" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--max-prompt-tokens", "5"], "need each other"),
        (["--target", "smollm2"], "need each other"),
        (["--revision", "main"], "--revision belongs"),
        (["--eval", "nowhere.jsonl"], "nowhere.jsonl does not exist"),
        (["--holdout", "9"], "leave some to train on"),
    ],
)
def test_mistakes(
    argv: list[str], message: str, chats: Path, tmp_path: Path, capsys: Capture
) -> None:
    assert main(["data", "prepare", str(chats), "--out", str(tmp_path / "prompts"), *argv]) == 2
    output = capsys.readouterr()
    assert message in output.err and output.err.count("\n") == 1
    assert not (tmp_path / "prompts").exists()


@pytest.mark.parametrize("value", ["0", "1.5", "-1", "some", "nan"])
def test_holdout_values(value: str, chats: Path, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["data", "prepare", str(chats), "--out", "x", f"--holdout={value}"])
    assert caught.value.code == 2
    assert "neither a number of rows nor a fraction" in capsys.readouterr().err
