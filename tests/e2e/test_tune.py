"""`blockdraft tune` on small models: what it prints and keeps, that it goes on, and bad input."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from blockdraft.cli.main import main
from blockdraft.engine import WidthMode
from blockdraft.engine.costs import CostModel
from blockdraft.tuning.measure import Bench
from blockdraft.tuning.observed import Observed
from blockdraft.tuning.replay import PairCosts

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs" / "tuning.md").read_text()
BY_HAND = ["--plain-step-ms", "20", "--verify-ms", "23", "--draft-ms", "3", "--overhead-ms", "1"]
WHAT_IF = ["tune", "--what-if", "--acceptance", "0.8,0.6,0.4"]
Capture = pytest.CaptureFixture[str]


def documented(heading: str) -> object:
    section = PAGE.split(f"# {heading}\n", 1)[1]
    match = re.search(r"^```json\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert match is not None
    return cast(object, json.loads(match[1]))


def key_paths(value: object, path: str = "") -> list[str]:
    """Every key with the keys around it; of a list, those of its first entry."""
    if isinstance(value, list):
        entries = cast("list[object]", value)
        return key_paths(entries[0], f"{path}[]") if entries else []
    if not isinstance(value, dict):
        return []
    found: list[str] = []
    for key, inner in cast("dict[str, object]", value).items():
        found += [f"{path}.{key}", *key_paths(inner, f"{path}.{key}")]
    return found


@pytest.fixture
def ids_file(tmp_path: Path) -> Path:
    path = tmp_path / "ids.jsonl"
    rows = [{"id": f"p{n}", "prompt_ids": [12, 7 + n, 9] * (n + 2)} for n in range(3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def argv(ids_pair: list[str], ids_file: Path) -> list[str]:
    short = ["--max-tokens", "8", "--dtype", "float32", "--threads", "1"]
    return ["tune", *ids_pair, "--prompts", str(ids_file), *short, "--concurrency", "1", "2"]


def test_everything_is_kept_and_documented(
    argv: list[str], tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small models gain nothing, so times and acceptance are made up."""
    run = Bench.run

    def made_up(self: Bench, mode: WidthMode, concurrency: int, name: str = "") -> Observed:
        found = run(self, mode, concurrency, name)
        is_off = mode.kind == "off"
        return replace(
            found,
            seconds=found.tokens * (0.001 if is_off else 0.0005),
            latency_seconds=0.008 if is_off else 0.004,
            accepted=found.drafted,
            samples=tuple(
                s._replace(seconds=0.001 + 0.0001 * s.num_drafting) for s in found.samples
            ),
        )

    def flat(self: Bench, slots: int) -> PairCosts:
        passes = CostModel.fit({1: 0.001, 64: 0.0011}, {(1, 8): 0.0001, (2, 8): 0.0002})
        return PairCosts(passes=passes)

    monkeypatch.setattr(Bench, "run", made_up)
    monkeypatch.setattr(Bench, "passes", flat)
    out = tmp_path / "tuned"
    assert main([*argv, "--repeats", "2", "--json", "--out", str(out)]) == 0
    printed = json.loads(capsys.readouterr().out)
    kept = json.loads((out / "tune.json").read_text())
    assert {**kept, "seconds": 0} == {**printed, "seconds": 0}
    assert key_paths(printed) == key_paths(documented("JSON: tune"))
    assert printed["complete"] is True
    assert printed["choice"]["verdict"] == "speculate"
    engines = ["blockdraft", "vllm", "sglang", "llamacpp", "trtllm"]
    assert [flags["engine"] for flags in printed["flags"]] == engines
    assert sorted(path.stem for path in (out / "flags").iterdir()) == sorted(engines)
    assert all(one["identical"] == one["compared"] for one in printed["verified"])


def test_nothing_pays_is_said(argv: list[str], capsys: Capture) -> None:
    assert main([*argv, "--quick"]) == 0
    printed = capsys.readouterr().out
    assert "Leave speculation off" in printed
    assert "--drafter none" in printed


def test_an_interrupted_run_goes_on(
    argv: list[str], tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "tuned"
    run = Bench.run
    left = 2

    def interrupted(self: Bench, mode: WidthMode, concurrency: int, name: str = "") -> Observed:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        return run(self, mode, concurrency, name)

    with monkeypatch.context() as patched:
        patched.setattr(Bench, "run", interrupted)
        assert main([*argv, "--quick", "--out", str(out)]) == 130
    assert "stopped: 3 runs are kept in" in capsys.readouterr().err
    lines = (out / "runs.jsonl").read_text().splitlines()
    assert main([*argv, "--quick", "--out", str(out)]) == 0
    assert "3 runs are there already" in capsys.readouterr().err
    now = (out / "runs.jsonl").read_text().splitlines()
    assert now[: len(lines)] == lines
    assert json.loads((out / "tune.json").read_text())["complete"] is True


def test_a_folder_of_other_conditions_is_refused(
    argv: list[str], tmp_path: Path, capsys: Capture
) -> None:
    out = ["--out", str(tmp_path / "tuned")]
    assert main([*argv, "--quick", *out]) == 0
    capsys.readouterr()
    # A target that is missing shows that it is not looked for before.
    assert main([*argv, "--target", "nowhere", "--quick", "--ignore-eos", *out]) == 2
    assert "workload ignore_eos changed" in capsys.readouterr().err
    assert main([*argv, "--quick", "--dtype", "bfloat16", *out]) == 2
    assert "(dtype changed)" in capsys.readouterr().err


def test_out_is_checked_before_models_are_loaded(
    argv: list[str], tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "file").write_text("x")
    assert main([*argv, "--out", str(tmp_path / "file")]) == 2
    told = capsys.readouterr().err
    assert "file is no folder; give another --out" in told and told.count("\n") == 1


def test_what_if_document(capsys: Capture) -> None:
    assert main([*WHAT_IF, *BY_HAND, "--widths", "4", "--concurrency", "1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert key_paths(document) == key_paths(documented("JSON: what-if"))


def test_the_worked_example_of_the_page(capsys: Capture) -> None:
    command = re.search(r"^blockdraft (tune --what-if --acceptance[^`]*)^```", PAGE, re.M)
    assert command is not None
    argv = command[1].replace("\\\n", " ").split()
    assert main([*argv, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["predictions"][1]
    speedup, break_even = found["speedup"], found["break_even_tau"]
    assert f"= {speedup:.3f}; break-even tau = 27 / 21 = {break_even:.3f}" in PAGE
    extra = re.search(r"^With `(--answer-tokens[^`]*)`", PAGE, re.M)
    assert extra is not None
    assert main([*argv, *extra[1].split(), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["predictions"][1]
    milliseconds, speedup = found["seconds"] * 1000, found["speedup"]
    assert f"40 + 6 + 36.04 = {milliseconds:.2f} ms: {speedup:.3f}" in PAGE


def test_what_if_table(capsys: Capture) -> None:
    assert main(["tune", "--what-if", "--tau", "3", "--block-size", "8", *BY_HAND]) == 0
    printed = capsys.readouterr().out
    assert "predicted speed-up" in printed
    assert "1 at once: width" in printed


def test_what_if_measures_the_pair(ids_pair: list[str], capsys: Capture) -> None:
    argv = ["tune", "--what-if", "--tau", "3", "--block-size", "8", *ids_pair, "--json"]
    assert main([*argv, "--dtype", "float32", "--concurrency", "1", "2"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["costs"]["source"] == "measured here, on the pair"
    assert {row["requests"] for row in document["costs"]["draft"]} == {1, 2}


def bench_document() -> dict[str, object]:
    """As little of a results.json as the model needs."""
    load = {"concurrency": 1, "rate": None}
    return {
        "schema": "blockdraft.bench",
        "version": 2,
        "complete": True,
        "mode": "in-process",
        "preset": None,
        "started": "2026-11-30T12:00:00Z",
        "seconds": 1.0,
        "conditions": {},
        "workload": {},
        "settings": {},
        "lanes": [
            {
                "name": "dflash fixed:4",
                "kind": "block",
                "drafter": "d",
                "width": "fixed:4",
                "block_size": 4,
                "note": None,
            }
        ],
        "levels": [],
        "figures": [
            {
                "lane": "dflash fixed:4",
                "arrival": load,
                "repeats": 1,
                "answers": 2,
                "tau": 2.0,
                "by_position": [0.6, 0.3, 0.1],
                "conditional": [0.6, 0.5, None],
            }
        ],
        "costs": {
            "context_len": 128,
            "verify": [{"rows": 1, "seconds": 0.02}, {"rows": 8, "seconds": 0.025}],
            "draft": [
                {
                    "name": "d",
                    "kind": "block",
                    "weights": "trained",
                    "tokens": 3,
                    "seconds": 0.004,
                }
            ],
            "draft_by_requests": [
                {"name": "d", "requests": n, "tokens": 3, "seconds": 0.004 + 0.001 * n}
                for n in (1, 4)
            ],
            "step_overhead_seconds": 0.001,
        },
        "quality": [],
        "energy": {"source": None, "reason": "no meter"},
        "stack": None,
        "answers": [],
    }


def test_what_if_from_a_bench(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(bench_document()))
    assert main(["tune", "--what-if", "--costs", str(path), "--json", "--concurrency", "1"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["acceptance"]["by_position"][:2] == pytest.approx([0.6, 0.3])
    assert document["costs"]["draft"] == [
        {"requests": 1, "width": 4, "seconds": 0.005},
        {"requests": 4, "width": 4, "seconds": 0.008},
    ]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["tune", "--tau", "3"], "--tau is for --what-if"),
        (["tune", "--what-if", *BY_HAND], "give --tau with --block-size, or --acceptance"),
        (["tune", "--what-if", "--tau", "3", *BY_HAND], "give it as --block-size"),
        (["tune", "--what-if", "--tau", "9", "--block-size", "8", *BY_HAND], "--tau 9 can't be"),
        ([*WHAT_IF, "--block-size", "4", *BY_HAND], "--block-size goes with --tau"),
        ([*WHAT_IF, "--plain-step-ms", "20"], "need --plain-step-ms and --draft-ms"),
        ([*WHAT_IF, *BY_HAND, "--prefill-ms", "4"], "give --answer-tokens too"),
        ([*WHAT_IF, *BY_HAND, "--widths", "5"], "widths are 2 to 4"),
        ([*WHAT_IF, *BY_HAND, "--verify-ms", "1:3"], "give it as --plain-step-ms"),
        (["tune", "--what-if", "--acceptance", "0.5,0.6", *BY_HAND], "more than the one before"),
        ([*WHAT_IF, "--costs", "none.json"], "none.json"),
        ([*WHAT_IF, "--plain-step-ms", "0", "--draft-ms", "1"], "takes more than 0 ms"),
        ([*WHAT_IF, *BY_HAND, "--out", "x", "--workload", "math"], "--workload, --out: --what-if"),
        (["tune", "--drafter", "none"], "nothing to tune"),
        (["tune", "--concurrency", "0"], "whole number of at least 1"),
        ([*WHAT_IF, "--verify-ms", "a:3"], "whole number"),
        (["tune", "--what-if", "--acceptance", "x"], "separated by commas"),
    ],
)
def test_mistakes(argv: list[str], message: str, capsys: Capture) -> None:
    try:
        code = main(argv)
    except SystemExit as exit:
        code = exit.code
    assert code == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1


def test_costs_of_an_endpoint_or_another_version(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps({**bench_document(), "costs": None}))
    assert main([*WHAT_IF, "--costs", str(path)]) == 2
    assert "no costs of passes" in capsys.readouterr().err
    path.write_text(json.dumps({**bench_document(), "version": 1}))
    assert main([*WHAT_IF, "--costs", str(path)]) == 2
    assert "version" in capsys.readouterr().err
