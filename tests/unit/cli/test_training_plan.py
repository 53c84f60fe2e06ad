"""`blockdraft train --plan` counts what the recipe will use: limited, cut, nothing held out."""

import json
from pathlib import Path

import pytest
import torch

from blockdraft.cli import training_plan
from blockdraft.cli.main import main
from blockdraft.cli.training_plan import assumed_size, data_size
from blockdraft.data.answer_row import Answer, render_answer
from blockdraft.errors import ConfigError
from blockdraft.testing import tiny_model
from blockdraft.training.batches.anchors import num_anchors
from blockdraft.training.batches.row_stream import count_rows
from blockdraft.training.config import RunConfig, parse_recipe
from blockdraft.training.run.setup import read_data

RECIPE = """
[target]
model = "{folder}/target"
[data]
answers = ["{folder}/answers.jsonl"]
heldout_share = 0.2
[drafter]
num_layers = 1
block_size = 4
taps = [0, 1]
[anchors]
stride = 2
[packing]
row_tokens = 64
row_anchors = 32
[data.samples]
max_tokens = 64
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny target; forty answers of 2 to 41 tokens to prompts of three."""
    tiny_model("llama", dtype=torch.float32).save_pretrained(tmp_path / "target")
    lines = [
        render_answer(
            Answer(
                id=f"a{row}",
                turn=0,
                category=None,
                prompt_ids=(5, 6, 7),
                answer_ids=tuple((row + 3 * i) % 90 + 3 for i in range(row + 2)),
                finish_reason="stop",
                temperature=0.0,
            )
        )
        for row in range(40)
    ]
    (tmp_path / "answers.jsonl").write_bytes(b"".join(lines))
    return tmp_path


def recipe(folder: Path, *overrides: str) -> RunConfig:
    return parse_recipe(RECIPE.format(folder=folder), "recipe", overrides)


SETTINGS = [
    (),
    ("data.limit=10",),
    ("data.samples.max_tokens=12",),
    ("data.samples.max_tokens=12", "data.samples.on_long=skip"),
    ("data.heldout_share=0.0",),
    ("data.limit=25", "data.samples.max_tokens=20", "anchors.per_sample=3"),
]


@pytest.mark.parametrize("overrides", SETTINGS)
def test_sizes_are_those_of_the_training(folder: Path, overrides: tuple[str, ...]) -> None:
    config = recipe(folder, *overrides)
    size, data = data_size(config, 96), read_data(config, 96)
    assert (size.num_answers, size.num_tokens) == (len(data.train), data.train.num_tokens)
    assert (size.num_heldout, size.num_heldout_tokens) == (
        len(data.heldout),
        data.heldout.num_tokens,
    )
    assert size.num_anchors == sum(num_anchors(s, config.anchors) for s in data.train)
    assert size.num_rows == count_rows(
        data.train, config.packing, config.anchors, seed=0, num_epochs=1
    )


def plan(
    folder: Path, capsys: pytest.CaptureFixture[str], *overrides: str, assume: str | None = None
) -> dict[str, float]:
    path = folder / "recipe.toml"
    path.write_text(RECIPE.format(folder=folder))
    more = [part for one in overrides for part in ("--set", one)]
    more += [] if assume is None else ["--assume", assume]
    assert main(["train", str(path), "--plan", "--json", "--device", "cpu", *more]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    return {row["name"].strip(): row["value"] for row in rows}


@pytest.fixture(autouse=True)
def no_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    def peak(**_: object) -> float:
        return 1e11

    monkeypatch.setattr(training_plan, "measured_peak", peak)


def test_every_figure_follows_the_data(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    features = f"data.features=['{folder}/features']"
    whole = plan(folder, capsys, features)
    for override in ("data.limit=10", "data.samples.max_tokens=8"):
        less = plan(folder, capsys, features, override)
        names = ("anchors an epoch", "packed rows an epoch", "feature cache", "arithmetic", "time")
        for name in names:
            assert less[name] < 0.8 * whole[name], (override, name)
    kept = plan(folder, capsys, features, "data.heldout_share=0.0")
    assert kept["anchors an epoch"] > whole["anchors an epoch"]
    # Held-out answers are in the cache too.
    assert kept["feature cache"] == pytest.approx(whole["feature cache"])


def test_assumed_answers_are_limited_cut_and_held_out_too(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = assumed_size(recipe(folder, "data.limit=50"), (100, 10, 200))
    assert (size.num_answers, size.num_heldout) == (40, 10)
    assert size.num_answer_tokens == 40 * 54, "cut at 64 tokens, prompt included"
    assert plan(folder, capsys, assume="100,10,200")["anchors an epoch"] == 80 * 27
    with pytest.raises(ConfigError, match="70 tokens of prompt leave 0 of"):
        assumed_size(recipe(folder), (100, 70, 200))
    with pytest.raises(ConfigError, match="three numbers"):
        assumed_size(recipe(folder), (100, 70))
    # Raising max_tokens, which the message about prompts names, would not help here.
    with pytest.raises(ConfigError, match=r"answers of 1 tokens; shorter ones than 2 .* give more"):
        assumed_size(recipe(folder), (100, 10, 1))


def test_answers_that_are_not_there_are_named(folder: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere is not there yet: make answers, or give --assu"):
        data_size(recipe(folder, "data.answers=['nowhere']"), 96)
