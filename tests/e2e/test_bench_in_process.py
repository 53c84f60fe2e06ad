"""`blockdraft bench` on models that are loaded here: document, page, resuming, mistakes."""

import json
import shlex
from pathlib import Path
from typing import cast

import pytest

from blockdraft.bench.in_process import InProcessBench
from blockdraft.bench.report.reading import read_results
from blockdraft.cli.main import main
from blockdraft.engine import Engine

pytestmark = pytest.mark.slow

SHORT = ["--max-tokens", "6", "--requests", "3", "--repeats", "1", "--width", "fixed:4"]
Capture = pytest.CaptureFixture[str]
Document = dict[str, object]


def rows(document: Document, name: str) -> list[Document]:
    return cast("list[Document]", document[name])


def test_the_document_and_the_page(
    text_pair: list[str], prompt_file: Path, tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "out"
    argv = ["bench", *text_pair, *SHORT, "--prompts", str(prompt_file), "--out", str(out)]
    assert main([*argv, "--concurrency", "1", "2", "--json"]) == 0
    printed = capsys.readouterr()
    assert (out / "results.json").read_text() == printed.out
    assert (out / "report.html").read_text().startswith("<!doctype html>")
    document = cast(Document, json.loads(printed.out))
    assert (document["version"], document["mode"]) == (2, "in-process")
    assert document["complete"] is True and document["preset"] == "quick"
    names = [lane["name"] for lane in rows(document, "lanes")]
    assert names == ["plain", "prompt-lookup", "dflash fixed:4"]
    assert len(rows(document, "levels")) == len(rows(document, "figures")) == 6
    for figures in rows(document, "figures"):
        tau = cast(float, figures["tau"])
        assert tau == 1 if figures["lane"] == "plain" else tau >= 1
        assert cast(float, figures["speedup"]) > 0
    assert all(entry["identical"] == entry["compared"] for entry in rows(document, "quality"))
    assert [answer["question"] for answer in rows(document, "answers")] == [1, 2, 3, 4, 5]
    assert {entry["engine"] for entry in rows(document, "stack")} >= {"vllm", "blockdraft"}
    assert read_results(out).is_complete


def test_tau_is_the_engines_own(text_pair: list[str], tmp_path: Path, capsys: Capture) -> None:
    """The same prompts through `generate`, whose counts are the engine's."""
    path = tmp_path / "prompts.jsonl"
    lines = [json.dumps({"id": str(n), "turns": [f"question {n}"]}) for n in range(5)]
    path.write_text("\n".join(lines))
    shared = [*text_pair, "--prompts", str(path), "--json"]
    settings = ["--max-tokens", "24", "--repeats", "1", "--requests", "5", "--concurrency", "1"]
    assert main(["bench", *shared, *settings, "--width", "fixed:4"]) == 0
    document = cast(Document, json.loads(capsys.readouterr().out))
    argv = ["generate", *shared, "--max-new-tokens", "24", "--concurrency", "1"]
    assert main([*argv, "--width", "fixed:4"]) == 0
    printed = capsys.readouterr().out.splitlines()
    counts = [cast("dict[str, int]", json.loads(line)["stats"]) for line in printed]
    steps = sum(one["steps"] for one in counts)
    tokens = sum(one["tokens"] for one in counts)
    figures = next(f for f in rows(document, "figures") if f["lane"] == "dflash fixed:4")
    assert figures["tau"] == pytest.approx((tokens - 5) / steps)
    assert sum(cast("list[int]", figures["histogram"])) == steps


def test_going_on_and_refusing(
    text_pair: list[str], prompt_file: Path, tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "out"
    argv = ["bench", *text_pair, *SHORT, "--prompts", str(prompt_file), "--out", str(out)]
    assert main([*argv, "--json"]) == 0
    whole = cast(Document, json.loads(capsys.readouterr().out))
    assert main(argv) == 2
    assert "is of an earlier run" in capsys.readouterr().err
    levels = rows(whole, "levels")
    whole["levels"], whole["complete"] = levels[:2], False
    (out / "results.json").write_text(json.dumps(whole))
    assert main([*argv, "--resume", "--json"]) == 0
    printed = capsys.readouterr()
    assert f"2 of {len(levels)} levels are there already" in printed.err
    again = cast(Document, json.loads(printed.out))
    assert again["complete"] is True and rows(again, "levels")[:2] == levels[:2]
    assert main([*argv, "--resume", "--seed", "4"]) == 2
    assert "settings: seed was 0 and is 4" in capsys.readouterr().err


def test_an_interrupt_leaves_a_part(
    text_pair: list[str],
    prompt_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    step, measured = Engine.step, InProcessBench.measure
    levels: list[object] = []

    def interrupted(engine: Engine) -> list[object]:
        if len(levels) == 2:
            raise KeyboardInterrupt
        return list(step(engine))

    def counting(bench: InProcessBench, *args: object) -> object:
        level = measured(bench, *args)  # pyright: ignore[reportArgumentType]  handed on as they are
        levels.append(level)
        return level

    monkeypatch.setattr(Engine, "step", interrupted)
    monkeypatch.setattr(InProcessBench, "measure", counting)
    out = tmp_path / "out"
    argv = ["bench", *text_pair, *SHORT, "--prompts", str(prompt_file), "--out", str(out)]
    monkeypatch.setattr("sys.argv", ["blockdraft", *argv])
    assert main(argv) == 130
    told = capsys.readouterr().err.splitlines()
    assert told[-2] == (
        "blockdraft: stopped: 2 of 12 levels were measured, one in part, to be measured again; "
        f"they are kept in {out / 'results.json'}"
    )
    assert told[-1] == f"go on with: {shlex.join(['blockdraft', *argv, '--resume'])}"
    document = read_results(out)
    assert not document.is_complete
    assert [level.is_complete for level in document.levels] == [True, True, False]


def test_an_interrupt_without_a_folder_keeps_nothing_and_says_so(
    ids_pair: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def interrupt(bench: InProcessBench, *args: object) -> None:
        raise KeyboardInterrupt

    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt_ids": [12, 7, 9]}')
    monkeypatch.setattr(InProcessBench, "open", interrupt)
    assert main(["bench", *ids_pair, *SHORT, "--prompts", str(prompts)]) == 130
    assert "0 of 12 levels were measured, and nothing is kept: no --out" in capsys.readouterr().err


def test_drafters_side_by_side(ids_pair: list[str], tmp_path: Path, capsys: Capture) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt_ids": [12, 7, 9]}\n{"prompt_ids": [8, 30]}\n')
    copy = tmp_path / "copy"
    copy.symlink_to(Path(ids_pair[3]), target_is_directory=True)
    argv = ["bench", *ids_pair, "--drafter", str(copy), *SHORT, "--prompts", str(prompts)]
    assert main([*argv, "--concurrency", "1", "--json"]) == 0
    document = cast(Document, json.loads(capsys.readouterr().out))
    names = [str(lane["name"]) for lane in rows(document, "lanes")]
    assert names[2:] == [f"{ids_pair[3]} fixed:4", f"{copy} fixed:4"]
    engines = [(entry["drafter"], entry["engine"]) for entry in rows(document, "stack")]
    assert [one for one, engine in engines if engine == "vllm"] == [ids_pair[3], str(copy)]
    assert f"{copy}: " in str(rows(document, "answers")[4]["sentence"])
    one, other = rows(document, "figures")[2:]
    assert one["tau"] == other["tau"]
    assert main([*argv, "--drafter", str(copy)]) == 2
    assert "each drafter can be measured once" in capsys.readouterr().err


def test_bad_workloads(text_pair: list[str], tmp_path: Path, capsys: Capture) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("")
    argv = ["bench", *text_pair, *SHORT, "--concurrency", "1", "--prompts", str(prompts)]
    assert main(argv) == 2
    assert "holds no prompts" in capsys.readouterr().err
    prompts.write_text('{"prompt": "a"}\n{"prompt": ')
    assert main(argv) == 2
    assert "line 2" in capsys.readouterr().err
    long = json.dumps({"prompt": "x" * 5000})
    prompts.write_text(f'{{"prompt": "a"}}\n{long}\n{{"prompt": "b"}}\n')
    assert main([*argv, "--json"]) == 1
    document = cast(Document, json.loads(capsys.readouterr().out))
    for level in rows(document, "levels"):
        requests = cast(Document, level["requests"])
        assert (requests["answered"], requests["failed"]) == (2, 1)
        assert level["complete"] is True
        (failure,) = rows(requests, "failures")
        assert failure["kind"] == "prompt too long"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--width", "off"], "--width off is plain decoding"),
        (["--width", "fixed:1"], "drafts nothing"),
        (["--resume"], "give its --out"),
        (["--model", "x"], "give its --endpoint"),
        (["--endpoint", "http://127.0.0.1:9", "--width", "auto"], "drop --endpoint"),
        (["--endpoint", "http://127.0.0.1:9", "--max-context", "9"], "--max-context: an endpoint"),
        (["--endpoint", "http://127.0.0.1:9", "--resume"], "can't be gone on with"),
        (["--baseline-model", "x", "--timeout", "3"], "--baseline-model, --timeout: only for a"),
        (["--width", "fixed:9", "fixed:12"], "fixed:9 is wider than what"),
        (["--seed", "-1"], "--seed is -1; give 0"),
        (["--warmup", "-1"], "give 0 or more"),
    ],
)
def test_mistakes(text_pair: list[str], argv: list[str], said: str, capsys: Capture) -> None:
    given = [] if "--endpoint" in argv else text_pair
    assert main(["bench", *given, *argv]) == 2
    assert said in capsys.readouterr().err


def test_temperature_has_no_quality_guard(
    ids_pair: list[str], tmp_path: Path, capsys: Capture
) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt_ids": [12, 7, 9]}\n{"prompt_ids": [8, 30]}\n')
    argv = ["bench", *ids_pair, *SHORT, "--prompts", str(prompts), "--temperature", "1"]
    assert main([*argv, "--rate", "100", "--json"]) == 0
    document = cast(Document, json.loads(capsys.readouterr().out))
    for entry in rows(document, "quality"):
        assert entry["compared"] == 0 and "no greedy answer" in str(entry["reason"])


OPEN = ("categories", "template_args")
"""Objects whose keys are the workload's."""


def key_tree(value: object, name: str = "") -> object:
    """The keys of objects; of a list those of its first entry."""
    if isinstance(value, list):
        entries = cast("list[object]", value)
        return [key_tree(entries[0], name)] if entries else []
    if not isinstance(value, dict) or name in OPEN:
        return None
    return {key: key_tree(inner, key) for key, inner in cast(Document, value).items()}


def test_the_document_is_documented(
    text_pair: list[str], prompt_file: Path, capsys: Capture
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "measuring.md").read_text()
    block = page.split("## JSON: results\n", 1)[1].split("```json\n", 1)[1].split("```", 1)[0]
    argv = ["bench", *text_pair, *SHORT, "--prompts", str(prompt_file), "--concurrency", "1"]
    assert main([*argv, "--json"]) == 0
    printed = cast(Document, json.loads(capsys.readouterr().out))
    documented = cast(Document, json.loads(block))
    # Figures of the drafted lane, since the plain one has no drafts to tell of.
    for name in ("levels", "figures", "lanes"):
        printed[name] = rows(printed, name)[-1:]
    for document in (printed, documented):
        for answer in rows(document, "answers"):
            answer["figures"] = {}
    assert key_tree(printed) == key_tree(documented)
