"""`blockdraft verify` and `blockdraft demo` with small models."""

import json
from pathlib import Path

import pytest

from blockdraft.cli.main import main

pytestmark = pytest.mark.slow

Capture = pytest.CaptureFixture[str]


def test_verify_prints_a_row_a_width(ids_pair: list[str], capsys: Capture) -> None:
    argv = ["verify", *ids_pair, "--prompt-ids", "12,7,99", "--max-new-tokens", "20"]
    assert main(argv) == 0
    output = capsys.readouterr()
    assert output.err == ""
    rows = [line.split()[:4] for line in output.out.splitlines()]
    for width in ("off", "2", "4", "8", "auto"):
        assert [width, "1", "1", "0"] in rows


@pytest.mark.parametrize("flags", [["--engine", "hf"], ["--dtype", "bfloat16"]], ids=" ".join)
def test_verify_on_other_engines_and_dtypes(
    flags: list[str], ids_pair: list[str], capsys: Capture
) -> None:
    argv = ["verify", *ids_pair, "--prompt-ids", "12,7,99", "--max-new-tokens", "20", "--json"]
    assert main([*argv, *flags, "--batch-invariant"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["width"] for row in document["widths"]] == ["off", 2, 4, 8, "auto"]
    assert all(row["identical"] == 1 for row in document["widths"])


@pytest.mark.parametrize("sampling", [[], ["--temperature", "1", "--top-p", "0.9", "--seed", "7"]])
def test_verify_json(
    sampling: list[str], text_pair: list[str], prompt_file: Path, capsys: Capture
) -> None:
    argv = ["verify", *text_pair, "--prompts", str(prompt_file), "--max-new-tokens", "16"]
    assert main([*argv, "--exact", "--widths", "3,8,auto", "--json", *sampling]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["width"] for row in document["widths"]] == [3, 8, "auto"]
    assert all(row["answers"] == row["identical"] == 4 for row in document["widths"])
    assert document["differences"] == []
    assert document["failed_prompts"] == 0
    assert document["conditions"]["dtype"] == "float32"


@pytest.mark.parametrize(
    ("dtype", "ran_in", "epsilon"),
    [([], "float32", 1e-3), (["--dtype", "float64"], "float64", 1e-9)],
    ids=["default", "float64"],
)
def test_exact_keeps_float64(
    dtype: list[str], ran_in: str, epsilon: float, ids_pair: list[str], capsys: Capture
) -> None:
    argv = ["verify", *ids_pair, "--prompt-ids", "12,7", "--max-new-tokens", "6", "--json"]
    assert main([*argv, "--exact", *dtype]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["conditions"]["dtype"], document["epsilon"]) == (ran_in, epsilon)


def test_a_failed_prompt_makes_verify_fail(
    text_pair: list[str], tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "prompts.jsonl"
    records = [{"id": "long", "turns": ["x" * 600]}, {"id": "ok", "turns": ["hello"]}]
    path.write_text("\n".join(json.dumps(record) for record in records))
    assert main(["verify", *text_pair, "--prompts", str(path), "--max-new-tokens", "4"]) == 1
    output = capsys.readouterr()
    assert "prompt 'long'" in output.err
    assert "identical" in output.out


def test_demo_is_identical_and_separates_result_from_show(
    text_pair: list[str], prompt_file: Path, capsys: Capture
) -> None:
    argv = ["demo", *text_pair, "--prompts", str(prompt_file), "--max-new-tokens", "16"]
    assert main(argv) == 0
    output = capsys.readouterr()
    assert "math (2)" in output.out and "all (4)" in output.out
    assert "padded to 8 rows" in output.out and "without padding" in output.out
    assert output.err.count("identical: yes") == 4
    assert "drafted and accepted" in output.err


def test_demo_json(text_pair: list[str], prompt_file: Path, capsys: Capture) -> None:
    argv = ["demo", *text_pair, "--prompts", str(prompt_file), "--max-new-tokens", "16"]
    assert main([*argv, "--repeats", "2", "--limit", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["identical"] is True
    assert [(entry["id"], entry["turn"]) for entry in document["prompts"]] == [
        ("a", 0),
        ("b", 0),
        ("b", 1),
    ]
    conditions = document["conditions"]
    assert (conditions["dtype"], conditions["batch_invariant"]) == ("bfloat16", 8)
    for entry in document["prompts"]:
        assert entry["identical"] and entry["difference"] is None
        assert entry["plain"]["tau"] == 1.0
        assert entry["plain"]["tokens"] == entry["drafted"]["tokens"] == len(entry["token_ids"])
    total = document["totals"]["all"]
    assert total["prompts"] == total["identical"] == 3
    assert total["plain_unpadded"]["tau"] == 1.0
    assert total["speedup_over_unpadded"] > 0


def test_demo_without_padding(text_pair: list[str], prompt_file: Path, capsys: Capture) -> None:
    argv = ["demo", *text_pair, "--prompts", str(prompt_file), "--limit", "1", "--json"]
    argv += ["--dtype", "float32", "--batch-invariant", "off", "--max-new-tokens", "8"]
    assert main(argv) == 0
    total = json.loads(capsys.readouterr().out)["totals"]["all"]
    assert total["plain_unpadded"] is None and total["speedup_over_unpadded"] is None
