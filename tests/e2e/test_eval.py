"""`blockdraft eval` with small models: the document, the tables, the errors, the interrupt."""

import hashlib
import json
import re
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import cast

import pytest

from blockdraft.cli import eval as command
from blockdraft.cli import eval_progress
from blockdraft.cli import main as command_line
from blockdraft.cli.eval_progress import watch_prompts
from blockdraft.cli.main import main
from blockdraft.decoding import NoDrafter, SamplingParams
from blockdraft.evaluation import measure_acceptance
from blockdraft.testing import ScriptedTarget, script_logits

pytestmark = pytest.mark.slow

Capture = pytest.CaptureFixture[str]
PAGE = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text()
SHORT = ["--max-new-tokens", "12"]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(command_line.COMMANDS, "eval", command)


@pytest.fixture
def id_file(tmp_path: Path) -> Path:
    path = tmp_path / "ids.jsonl"
    rows = [{"prompt_ids": [12, 7, 99], "category": "x"}, {"prompt_ids": [1, 2, 3]}]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_the_document(text_pair: list[str], prompt_file: Path, capsys: Capture) -> None:
    argv = ["eval", *text_pair, *SHORT, "--prompts", str(prompt_file), "--json", "--details"]
    assert main([*argv, "--limit", "2", "--template-arg", "shout=true"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document)[:4] == ["tau", "tau_ended", "acceptance_by_position", "speedup"]
    assert document["tau"] >= 1.0
    assert document["speedup"] > 0
    histogram = document["committed_histogram"]
    steps = document["answers"]["steps"]
    assert sum(histogram) == steps
    assert sum(n * c for n, c in enumerate(histogram)) / steps == pytest.approx(document["tau"])
    assert document["tau_interval"][0] <= document["tau"] <= document["tau_interval"][1]
    assert [row["category"] for row in document["categories"]] == ["math", "chat"]
    systems = {row["name"]: row for row in document["systems"]}
    assert list(systems) == ["plain", "dflash", "prompt-lookup"]
    assert systems["plain"]["tau"] == 1.0
    assert systems["plain"]["speedup"] == 1.0
    assert systems["dflash"]["speedup"] == document["speedup"]
    assert all((row["identical"], row["different"]) == (2, 0) for row in systems.values())
    settings = document["settings"]
    assert settings["prompts_sha256"] == hashlib.sha256(prompt_file.read_bytes()).hexdigest()
    assert (settings["block_size"], settings["limit"], settings["repeats"]) == (8, 2, 1)
    assert settings["template_args"] == [["shout", True]]
    assert settings["sampling"]["max_new_tokens"] == 12
    assert [row["id"] for row in document["prompts"]] == ["a", "b"]
    assert sum(row["tokens"] for row in document["prompts"]) == document["answers"]["tokens"]


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


def test_the_documented_shape(ids_pair: list[str], id_file: Path, capsys: Capture) -> None:
    match = re.search(r"^## JSON: eval\n.*?^```json\n(.*?)^```$", PAGE, re.M | re.S)
    assert match is not None
    argv = ["eval", *ids_pair, *SHORT, "--prompts", str(id_file), "--json", "--details"]
    assert main(argv) == 0
    document = json.loads(capsys.readouterr().out)
    assert key_paths(document) == key_paths(json.loads(match[1]))


def test_tau_is_what_the_engine_reports(
    text_pair: list[str], prompt_file: Path, capsys: Capture
) -> None:
    """T04: offline and serving count the same steps on the same prompt."""
    common = [*text_pair, "--max-new-tokens", "40", "--prompts", str(prompt_file), "--limit", "1"]
    assert main(["eval", *common, "--no-speed", "--json"]) == 0
    offline = json.loads(capsys.readouterr().out)
    assert main(["generate", *common, "--width", "fixed:8", "--json"]) == 0
    served = json.loads(capsys.readouterr().out)["stats"]
    assert offline["tau"] == served["tau"]
    assert offline["acceptance_by_position"] == served["acceptance_by_position"]
    assert offline["answers"]["steps"] == served["steps"]


def test_no_speed_leaves_all_times_out(ids_pair: list[str], id_file: Path, capsys: Capture) -> None:
    argv = ["eval", *ids_pair, *SHORT, "--prompts", str(id_file), "--json"]
    assert main(argv) == 0
    timed = json.loads(capsys.readouterr().out)
    assert main([*argv, "--no-speed"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["speedup"], document["systems"]) == (None, [])
    assert document["settings"]["repeats"] is None
    for key in ("tau", "tau_ended", "acceptance_by_position", "committed_histogram", "answers"):
        assert document[key] == timed[key]


def test_sampled_answers_have_a_seed(ids_pair: list[str], id_file: Path, capsys: Capture) -> None:
    argv = ["eval", *ids_pair, *SHORT, "--prompts", str(id_file), "--json", "--temperature", "1"]
    documents: list[dict[str, object]] = []
    for seed in ([], ["--seed", "0"], ["--seed", "3"]):
        assert main([*argv, *seed, "--no-speed"]) == 0
        documents.append(json.loads(capsys.readouterr().out))
    unset, zero, three = documents
    assert unset == zero
    assert three["settings"] != zero["settings"]


def test_tables_for_people(ids_pair: list[str], id_file: Path, capsys: Capture) -> None:
    argv = ["eval", *ids_pair, *SHORT, "--prompts", str(id_file), "--block-size", "4"]
    assert main([*argv, "--repeats", "2"]) == 0
    output = capsys.readouterr().out
    assert "blocks of 4, float32" in output
    assert "greedy, at most 12 new tokens" in output
    rows = [line.split() for line in output.splitlines()]
    assert ["all", "2"] in [row[:2] for row in rows]
    assert [row[0] for row in rows if row[:1] in (["plain"], ["dflash"], ["prompt-lookup"])]
    assert "accepted at slot 1, 2, ..:" in output


def test_batch_invariant_passes_keep_bfloat16_texts_equal(
    ids_pair: list[str], id_file: Path, capsys: Capture
) -> None:
    argv = ["eval", *ids_pair, "--prompts", str(id_file), "--max-new-tokens", "40", "--json"]
    assert main([*argv, "--dtype", "bfloat16", "--batch-invariant"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["settings"]["batch_invariant"] == 8
    assert [row["different"] for row in document["systems"]] == [0, 0, 0]


def test_first_turns_are_told_of(text_pair: list[str], prompt_file: Path, capsys: Capture) -> None:
    argv = ["eval", *text_pair, *SHORT, "--prompts", str(prompt_file), "--no-speed"]
    assert main(argv) == 0
    assert "first user turns only" in capsys.readouterr().out


def test_a_row_s_own_system_text_is_used(
    text_pair: list[str], tmp_path: Path, capsys: Capture
) -> None:
    def prompt_tokens(row: dict[str, str], *flags: str) -> int:
        path = tmp_path / "one.jsonl"
        path.write_text(json.dumps({"prompt": "hello"} | row))
        argv = ["eval", *text_pair, *SHORT, "--prompts", str(path), "--json", "--no-speed"]
        assert main([*argv, "--details", *flags]) == 0
        return int(json.loads(capsys.readouterr().out)["prompts"][0]["prompt_tokens"])

    of_row = prompt_tokens({"system": "Be brief."})
    assert of_row == prompt_tokens({}, "--system", "Be brief.") > prompt_tokens({})
    assert of_row == prompt_tokens({"system": "Be brief."}, "--system", "Write a lot, please.")


def test_prompt_lookup_can_be_evaluated(
    ids_pair: list[str], id_file: Path, capsys: Capture
) -> None:
    argv = ["eval", *ids_pair[:2], "--drafter", "prompt-lookup", *SHORT, "--json"]
    assert main([*argv, "--prompts", str(id_file)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in document["systems"]] == ["plain", "prompt-lookup"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--drafter", "none"], "drafts nothing"),
        (["--block-size", "1"], "holds the anchor and no draft"),
        (["--details"], "add it"),
        (["--raw", "--system", "x"], "no chat template"),
        (["--stop", "x"], "needs a tokenizer"),
        (["--temperature", "-1"], "temperature"),
    ],
    ids=" ".join,
)
def test_mistakes_in_flags(
    flags: list[str], message: str, ids_pair: list[str], id_file: Path, capsys: Capture
) -> None:
    assert main(["eval", *ids_pair, "--prompts", str(id_file), *SHORT, *flags]) == 2
    output = capsys.readouterr()
    assert message in output.err
    assert output.out == ""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt": "cut', "not JSON"),
        ('{"prompt": "text for a target without a tokenizer"}', "no tokenizer"),
        ('{"prompt_ids": [99999]}', "outside the target's vocabulary"),
        (json.dumps({"prompt_ids": [1] * 600}), "context holds 512"),
    ],
    ids=["broken", "no tokenizer", "bad id", "too long"],
)
def test_a_prompt_that_cannot_be_used_ends_the_run_with_its_line(
    line: str, message: str, ids_pair: list[str], tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt_ids": [1, 2]}\n' + line)
    assert main(["eval", *ids_pair, "--prompts", str(path), *SHORT, "--json"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    lines = [text for text in output.err.splitlines() if "busy" not in text]
    assert len(lines) == 1
    assert f"{path}, line 2: " in lines[0]
    assert message in lines[0]


def test_lines_now_and_then_where_no_terminal_is(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(eval_progress, "SECONDS_BETWEEN_LINES", 2.0)
    clock = count()
    target = ScriptedTarget(script_logits(4, (0, 1, 2)), 4)
    with watch_prompts(5, lambda: float(next(clock))) as progress:
        measure_acceptance(
            target, NoDrafter(), [(0,)] * 5, SamplingParams(max_new_tokens=2), progress=progress
        )
    said = capsys.readouterr().err.splitlines()
    assert said == ["2 of 5 prompts, tau 1.00 so far", "4 of 5 prompts, tau 1.00 so far"]


def test_an_interrupt_leaves_no_result(ids_pair: list[str], tmp_path: Path) -> None:
    """Ctrl-C in the middle: what is half-measured is not printed as if it were whole."""
    path = tmp_path / "many.jsonl"
    path.write_text("\n".join(json.dumps({"prompt_ids": [i % 300, 5]}) for i in range(500)))
    argv = ["eval", *ids_pair, "--prompts", str(path), "--json", "--max-new-tokens", "40"]
    code = (
        "import sys; from blockdraft.cli import eval as command, eval_progress, main; "
        "main.COMMANDS['eval'] = command; eval_progress.SECONDS_BETWEEN_LINES = 0.0; "
        "sys.exit(main.main(sys.argv[1:]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    while "so far" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert "nothing is reported of them" in err.splitlines()[-1]
