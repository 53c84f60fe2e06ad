"""`blockdraft train` as it is typed: a tiny target learns to be drafted for, in under a minute."""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, cast

import pytest
import torch

from blockdraft.api import load_drafter, load_target
from blockdraft.cli import training_run
from blockdraft.cli.main import main
from blockdraft.data.answers import AnswerTable
from blockdraft.decoding import NoDrafter, SamplingParams, collect, decode
from blockdraft.evaluation import measure_acceptance
from blockdraft.training.run.checkpoints import Checkpoints
from blockdraft.training.run.metrics import read_metrics


class TinyRuns(Protocol):
    """What is used of the module that the unit tests of training share."""

    @staticmethod
    def recipe_text(pair: tuple[Path, Path]) -> str: ...
    @staticmethod
    def save_pair(
        folder: Path, *, count: int, packed: bool = False, prefix: str = "c"
    ) -> tuple[Path, Path]: ...


sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "training"))
tiny_runs = cast(TinyRuns, importlib.import_module("tiny_runs"))

RUNNER = """
import sys
from blockdraft.cli import training_run
training_run.measured_peak = lambda **_: 1e11  # seconds of matrix products are no part of this
from blockdraft.cli.main import main
sys.exit(main(sys.argv[1:]))
"""

KERNELS = """
from blockdraft.native import target
from blockdraft.native.linear import only
def plan(linears, *rest, on_cpu):  # as if this kernel had been measured to be the fastest
    names = {name for linear in linears for name in linear.kernels}
    return only("KERNEL" if "KERNEL" in names else "plain")
target.measure_plan = plan
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """200 answers, packed as `data regenerate` leaves them."""
    return tiny_runs.save_pair(tmp_path_factory.mktemp("pair"), count=200, packed=True)


@pytest.fixture(autouse=True)
def no_measuring(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The matrix product that utilization is told against takes seconds and changes nothing."""

    def peak(**_: object) -> float:
        return 1e11

    monkeypatch.setattr(training_run, "measured_peak", peak)
    yield


def write_recipe(folder: Path, pair: tuple[Path, Path]) -> Path:
    path = folder / "tiny.toml"
    path.write_text("# a tiny one\n" + tiny_runs.recipe_text(pair))
    return path


LEARNS = (
    "run.steps=60",
    "run.save_every=20",
    "eval.simulate_every=20",
    "data.heldout_share=0.1",
    "packing.row_tokens=256",
    "packing.row_anchors=256",
    "packing.rows_per_step=1",
    "optimizer.name=muon",
    "optimizer.muon_lr=1e-2",
    "optimizer.lr=5e-3",
)


def overrides(*settings: str) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]


@pytest.mark.slow
def test_a_drafter_is_trained_exported_and_decodes_losslessly(
    pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, out = write_recipe(tmp_path, pair), tmp_path / "run"
    arguments = ["train", str(recipe), "--out", str(out), "--device", "cpu", "--json"]
    assert main([*arguments, *overrides(*LEARNS)]) == 0
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert (document["step"], document["stopped_by"]) == (60, None)
    assert "supervised are" in said.err and "answers: answer shorter than 2 tokens" in said.err
    records = read_metrics(out / "metrics.jsonl")
    taus = [cast(float, r["tau"]) for r in records if r["kind"] == "simulated"]
    losses = [cast(float, r["loss"]) for r in records if r["kind"] == "train"]
    assert len(losses) == 60 and losses[-1] < losses[0] / 3
    # From 1.0x to at least 2.
    assert max(taus) >= 2.0 and document["tau"]["simulated, all"] == round(max(taus), 3)

    target = load_target(pair[0], engine="hf", dtype="float32")
    drafter = load_drafter(str(out / "drafter"), target)
    answers = AnswerTable.open(pair[1])
    chosen = [answers[row] for row in range(0, 200, 25)]
    params = SamplingParams(temperature=0.0, max_new_tokens=24)
    for one in chosen[:3]:
        plain = collect(one.prompt_ids, decode(target, NoDrafter(), one.prompt_ids, params))
        drafted = collect(one.prompt_ids, decode(target, drafter, one.prompt_ids, params))
        assert drafted.token_ids == plain.token_ids == one.answer_ids
    real = measure_acceptance(target, drafter, [one.prompt_ids for one in chosen], params)
    assert real.tau is not None and real.tau > 1.7
    provenance = json.loads((out / "drafter" / "provenance.json").read_text())
    assert provenance["acceptance_length"] == document["tau"]["simulated, all"]
    assert provenance["training"]["seed"] == 0 and provenance["licenses"] == {"mit": 1}
    assert provenance["training"]["settings"]["optimizer"]["name"] == "muon"

    # The finished command again: nothing is trained, nothing that was measured is lost.
    assert main([*arguments, *overrides(*LEARNS)]) == 0
    assert json.loads(capsys.readouterr().out)["tau"] == document["tau"]
    assert json.loads((out / "drafter" / "provenance.json").read_text()) == provenance
    assert len(read_metrics(out / "metrics.jsonl")) == len(records)
    assert main([*arguments, *overrides(*LEARNS, "run.seed=2")]) == 2
    assert "run.seed (was 0, now 2)" in capsys.readouterr().err


@pytest.mark.slow
def test_simulated_and_real_figures_of_the_reloaded_drafter_agree(
    pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """T04, gates 5 and 10: over the held-out prompts themselves, up to the rounding of weights."""
    recipe, out = write_recipe(tmp_path, pair), tmp_path / "run"
    heldout = tmp_path / "heldout"
    _, folder = tiny_runs.save_pair(heldout, count=16, prefix="h")
    more = (*LEARNS, f"data.heldout={folder}", "run.steps=20")
    arguments = ["train", str(recipe), "--out", str(out), "--device", "cpu", "--json"]
    assert main([*arguments, *overrides(*more)]) == 0
    simulated = json.loads(capsys.readouterr().out)["tau"]["simulated, all"]
    target = load_target(pair[0], engine="hf", dtype="float32")
    drafter = load_drafter(str(out / "drafter"), target)
    answers = [answer for answer in AnswerTable.open(folder) if len(answer.answer_ids) > 1]
    params = SamplingParams(temperature=0.0, max_new_tokens=24)
    real = measure_acceptance(target, drafter, [a.prompt_ids for a in answers], params)
    assert real.tau == pytest.approx(simulated, abs=0.1)


def start(
    recipe: Path, out: Path, *settings: str, fastest: str | None = None
) -> subprocess.Popen[str]:
    """A training in a process of its own, on which `fastest` is the fastest kernel."""
    arguments = ["train", str(recipe), "--out", str(out), "--device", "cpu", "--threads", "1"]
    before = "" if fastest is None else KERNELS.replace("KERNEL", fastest)
    return subprocess.Popen(
        [sys.executable, "-c", before + RUNNER, *arguments, *overrides(*settings)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def wait_for(out: Path, step: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while max(Checkpoints(out).steps(), default=0) < step and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.slow
def test_a_killed_run_and_a_stopped_run_go_on_to_the_same_weights(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    """SIGKILL loses at most one save interval, SIGTERM saves and exits 0."""
    recipe, out = write_recipe(tmp_path, pair), tmp_path / "run"
    settings = ("run.steps=40", "run.save_every=5", "run.keep_last=50")
    straight = ["train", str(recipe), "--out", str(tmp_path / "straight"), "--device", "cpu"]
    assert main([*straight, *overrides(*settings)]) == 0
    for number, code, step in ((signal.SIGKILL, -signal.SIGKILL, 5), (signal.SIGTERM, 0, 15)):
        process = start(recipe, out, *settings)
        wait_for(out, step, process)
        process.send_signal(number)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == code, errors
        steps = Checkpoints(out).steps()
        assert step <= steps[-1] < 40, "stopped before its end"
        trained = [r["step"] for r in read_metrics(out / "metrics.jsonl") if r["kind"] == "train"]
        if number == signal.SIGTERM:
            assert f"SIGTERM: saved after step {steps[-1]} of 40" in errors
            assert trained == list(range(1, steps[-1] + 1))
            assert not (out / "drafter").exists()
        else:
            assert max(cast("list[int]", trained)) - steps[-1] <= 5
    process = start(recipe, out, *settings)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    expected = Checkpoints(tmp_path / "straight").load(40)
    found = Checkpoints(out).load(40)
    for name, tensor in expected.model.items():
        assert torch.equal(found.model[name], tensor), name
    names = ("model.safetensors", "config.json")
    for name in names:
        first = (tmp_path / "straight" / "drafter" / name).read_bytes()
        assert (out / "drafter" / name).read_bytes() == first
    losses = [
        [(r["step"], r["loss"]) for r in read_metrics(folder / "metrics.jsonl")]
        for folder in (out, tmp_path / "straight")
    ]
    assert losses[0] == losses[1]


def losses_of(folder: Path) -> list[object]:
    return [r["loss"] for r in read_metrics(folder / "metrics.jsonl") if r["kind"] == "train"]


@pytest.mark.slow
def test_processes_agree_to_the_bit_whatever_kernels_are_faster_in_them(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    """Features on the fly from the native bfloat16 target: the same recipe gives the same losses in
    two processes, and a run that is stopped and goes on in a third one those of a straight one."""
    recipe = write_recipe(tmp_path, pair)
    settings = (
        *("target.engine=native", "target.dtype=auto", "run.precision=bfloat16"),
        *("run.steps=20", "run.save_every=3", "eval.simulate_every=4", "run.keep_last=30"),
    )
    folders = {"plain": tmp_path / "plain", "packed": tmp_path / "packed"}
    for fastest, out in folders.items():
        process = start(recipe, out, *settings, fastest=fastest)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    expected = losses_of(folders["plain"])
    assert len(expected) == 20 and losses_of(folders["packed"]) == expected
    resumed = tmp_path / "resumed"
    process = start(recipe, resumed, *settings, fastest="plain")
    wait_for(resumed, 6, process)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0 and Checkpoints(resumed).steps()[-1] < 20, errors
    process = start(recipe, resumed, *settings, fastest="packed")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert losses_of(resumed) == expected
    straight = folders["plain"]
    assert Checkpoints(resumed).scores() == Checkpoints(straight).scores()
    for name, tensor in Checkpoints(straight).load(20).model.items():
        assert torch.equal(Checkpoints(resumed).load(20).model[name], tensor), name


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ((), "which recipe"),
        (("nothing",), "no recipe 'nothing'"),
        (("RECIPE",), "give --out DIR"),
        (("RECIPE", "--out", "OUT", "--set", "run.sead=1"), "unknown key 'sead'"),
        (("RECIPE", "--out", "OUT", "--assume", "9,9,9"), "--assume belongs to --plan"),
        (("RECIPE", "--out", "OUT", "--set", "data.answers=['none']"), "none holds no answers"),
        (("RECIPE", "--out", "OUT", "--set", "target.model=none/none"), "none/none"),
    ],
)
def test_mistakes(
    pair: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    more: tuple[str, ...],
    words: str,
) -> None:
    recipe = write_recipe(tmp_path, pair)
    names = {"RECIPE": str(recipe), "OUT": str(tmp_path / "out")}
    assert main(["train", *(names.get(part, part) for part in more)]) in (1, 2)
    errors = capsys.readouterr().err
    assert words in errors and "Traceback" not in errors
    assert not (tmp_path / "out").exists(), "nothing is left behind"


def test_what_can_not_go_on_is_refused_before_anything_is_loaded(
    pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, out = write_recipe(tmp_path, pair), tmp_path / "run"
    command = ["train", str(recipe), "--out", str(out), "--device", "cpu"]
    assert main([*command, *overrides("run.steps=4")]) == 0
    before = sorted(out.rglob("*"))
    for settings, words in (
        (("run.steps=4", "run.seed=3"), "run.seed (was 0, now 3)"),
        (("run.steps=4", "target.model=gone"), "target.model (was"),
        (("run.steps=2",), "is at step 4 already, more than the 2 asked for"),
    ):
        capsys.readouterr()
        assert main([*command, *overrides(*settings)]) == 2
        errors = capsys.readouterr().err
        assert words in errors and "loading" not in errors
    # What is counted in epochs is known once the answers are.
    text = recipe.read_text().replace("steps = 6", "epochs = 1")
    recipe.write_text(text)
    assert main([*command, *overrides("data.limit=20")]) == 2
    assert "data.limit (was None, now 20)" in capsys.readouterr().err
    assert sorted(out.rglob("*")) == before


def test_answers_of_another_target_are_refused_unless_accepted(
    pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A drafter of what another model says drafts badly, and nothing else would tell."""
    answers = tmp_path / "answers"
    answers.mkdir()
    for path in pair[1].iterdir():
        (answers / path.name).write_bytes(path.read_bytes())
    manifest = json.loads((answers / "manifest.json").read_text())
    manifest["source"] = {"kind": "in_process", "target": "Other/Model"}
    (answers / "manifest.json").write_text(json.dumps(manifest))
    recipe = write_recipe(tmp_path, (pair[0], answers))
    command = ["train", str(recipe), "--out", str(tmp_path / "run"), "--device", "cpu"]
    assert main(command) == 2
    errors = capsys.readouterr().err
    assert "target Other/Model wrote them" in errors and "accept_other_target" in errors
    assert not (tmp_path / "run").exists()
    assert main([*command, *overrides("data.accept_other_target=true", "run.steps=1")]) == 0
    assert "is accepted as it is: target Other/Model wrote them" in capsys.readouterr().err


def test_list_and_show(
    pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split("  ")[0] for line in lines]
    assert {"smollm2-cpu", "smollm2-cpu-continued", "adapt-domain"} <= set(names)
    rests = [line[len(name) :] for line, name in zip(lines, names, strict=True)]
    starts = {len(line) - len(rest.lstrip()) for line, rest in zip(lines, rests, strict=True)}
    assert len(starts) == 1, "a column of names, a column of summaries"
    recipe = write_recipe(tmp_path, pair)
    assert main(["train", str(recipe), "--show", "--set", "run.seed=5"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["run"]["seed"] == 5 and shown["drafter"]["taps"] == [0, 1]


def test_what_is_supervised_is_shown(
    text_target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """T07, gate 7: the text that is learned is printed, what is left out is counted by row, and
    a mask token is found. Blocks of one drafted slot work too."""
    target = load_target(text_target, engine="hf", dtype="float32")
    codec = target.text
    assert codec is not None
    answers = tmp_path / "answers"
    answers.mkdir()
    lines = [
        {
            "id": f"c{i}",
            "category": None,
            "prompt_ids": codec.chat([{"role": "user", "content": f"say {i}"}]),
            "answer_ids": codec.encode("it is five" if i % 4 else "x"),
            "finish_reason": "length",
            "temperature": 0.0,
        }
        for i in range(8)
    ]
    (answers / "answers.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    recipe = write_recipe(tmp_path, (text_target, answers))
    text = recipe.read_text().replace("mask_token = 1\n", "")
    recipe.write_text(text)
    settings = ("run.steps=2", "drafter.block_size=2", "data.heldout_share=0.0")
    arguments = ["train", str(recipe), "--out", str(tmp_path / "out"), "--device", "cpu"]
    assert main([*arguments, *overrides(*settings)]) == 0
    errors = capsys.readouterr().err
    assert "supervised text of answer 1 begins: 'it is five'" in errors
    assert "2 answers: answer shorter than 2 tokens (rows 0, 4)" in errors
    config = json.loads((tmp_path / "out" / "drafter" / "config.json").read_text())
    assert config["dflash_config"]["mask_token_id"] == codec.vocab_size
    assert config["block_size"] == 2


def test_training_from_cached_features_of_two_folders(
    pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each sample finds its own features: losses are those of computed ones, up to bf16."""
    target, first = pair
    _, second = tiny_runs.save_pair(tmp_path / "second", count=30)
    recipe = write_recipe(tmp_path, pair)
    folders = f"data.answers=['{second}', '{first}']"
    caches: list[Path] = []
    for number, answers in enumerate((second, first)):
        caches.append(tmp_path / f"features{number}")
        arguments = ["data", "features", "--answers", str(answers), "--target", str(target)]
        more = ["--taps", "0,1", "--max-tokens", "64", "--target-dtype", "float32"]
        assert main([*arguments, *more, "--out", str(caches[-1])]) == 0, capsys.readouterr().err
    losses: list[list[float]] = []
    for name, more in (
        ("live", ()),
        ("cached", (f"data.features=['{caches[0]}', '{caches[1]}']",)),
    ):
        out = tmp_path / name
        command = ["train", str(recipe), "--out", str(out), "--device", "cpu"]
        settings = (folders, "eval.simulate_every=6", *more)
        assert main([*command, *overrides(*settings)]) == 0, capsys.readouterr().err
        records = read_metrics(out / "metrics.jsonl")
        losses.append([cast(float, r["loss"]) for r in records if r["kind"] == "train"])
    assert losses[0] != losses[1] and losses[1] == pytest.approx(losses[0], rel=5e-3)
    swapped = f"data.features=['{caches[1]}', '{caches[0]}']"
    command = ["train", str(recipe), "--out", str(tmp_path / "no"), "--device", "cpu"]
    assert main([*command, *overrides(folders, swapped)]) == 2
    assert "other answers" in capsys.readouterr().err
