"""`blockdraft data features` on a tiny target folder: sizes, cache, going on, damage."""

import json
from argparse import ArgumentParser
from pathlib import Path

import pytest
import torch

from blockdraft.cli import data_features
from blockdraft.cli.feature_run import token_bar
from blockdraft.data.answer_row import Answer, render_answer
from blockdraft.errors import ConfigError
from blockdraft.native import TargetOptions, load_engine_target
from blockdraft.testing import tiny_model
from blockdraft.training.batches.batch import Sample
from blockdraft.training.features.cache import CachedFeatures, plain_batch
from blockdraft.training.features.live import LiveFeatures

TAPS = (0, 2)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "target"
    tiny_model("llama", dtype=torch.float32).save_pretrained(folder)
    return folder


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    """Two good answers, one of a single token, one that is too long."""
    path = tmp_path / "answers.jsonl"
    lengths = (6, 9, 1, 40)
    path.write_bytes(
        b"".join(
            render_answer(
                Answer(
                    id=f"a{row}",
                    turn=0,
                    category=None,
                    prompt_ids=(5, 6, 7 + row),
                    answer_ids=tuple((row + 3 * i) % 90 for i in range(length)),
                    finish_reason="stop",
                    temperature=0.0,
                )
            )
            for row, length in enumerate(lengths)
        )
    )
    return path


def run(*argv: str | Path) -> int:
    parser = ArgumentParser()
    data_features.add_arguments(parser)
    return data_features.run(parser.parse_args([str(word) for word in argv]))


def test_a_cache_from_answers(
    target: Path, answers: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "features"
    command = ("--answers", answers, "--target", target, "--taps", "0,2", "--out", out)
    command = (*command, "--target-dtype", "float32", "--max-tokens", "30", "--final")
    assert run(*command, "--dry-run") == 0
    dry = capsys.readouterr()
    num_tokens = 9 + 12 + 30
    assert int(dry.out) == pytest.approx(num_tokens * 2 * 3 * 32, rel=0.03)
    assert "1 answers: answer shorter than 2 tokens (rows 2)" in dry.err
    assert not out.exists()

    assert run(*command, "--json") == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert (document["samples"], document["tokens"]) == (3, num_tokens)
    assert "GB are free" in captured.err

    cache = CachedFeatures(out, dtype=torch.float32)
    model = load_engine_target(target, TargetOptions(dtype="float32"))
    sample = Sample(row=1, ids=(5, 6, 8, *((1 + 3 * i) % 90 for i in range(9))), answer_start=3)
    cache.check_against(LiveFeatures(model, TAPS), sample)
    assert cache.features(plain_batch([sample])).final is not None

    assert run(*command, "--json") == 0  # nothing is left to do
    assert "takes 0.00 GB more" in capsys.readouterr().err
    assert run("--out", out, "--verify") == 0
    shard = out / "features-00000.safetensors"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    with pytest.raises(ConfigError, match="is damaged"):
        run("--out", out, "--verify")


@pytest.mark.parametrize("taps", ["3", "0,99", "2,3"])
@pytest.mark.parametrize("dry", [("--dry-run",), ()])
def test_a_layer_that_does_not_exist_is_refused(
    target: Path, answers: Path, tmp_path: Path, taps: str, dry: tuple[str, ...]
) -> None:
    """A size for a cache that can't be made would be believed."""
    out = tmp_path / "features"
    with pytest.raises(ConfigError, match=r"tap \d+ is no layer of .*, which has layers 0 to 2"):
        run("--answers", answers, "--target", target, "--taps", taps, "--out", out, *dry)
    assert not out.exists()


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--answers DIR and --taps LAYERS"):
        run("--out", tmp_path)


def test_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 10.0, 70.0, 70.0, 100.0, 100.0])
    with token_bar(1000, clock=lambda: next(times)) as progress:
        progress(100)
        progress(250)
    assert capsys.readouterr().err == "350 of 1000 tokens, 4 tok/s\n"
