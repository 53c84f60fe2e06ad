"""`blockdraft models`: what is listed, in words and as JSON."""

import json
from argparse import ArgumentParser
from typing import cast

import pytest

from blockdraft.builtin.published import published_drafters
from blockdraft.cli import models
from blockdraft.errors import ConfigError

Json = dict[str, object]


def run(*argv: str) -> int:
    parser = ArgumentParser()
    models.add_arguments(parser)
    return models.run(parser.parse_args(argv))


def test_the_built_in_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    text = capsys.readouterr().out
    assert text.startswith("smollm2 ") and "drafter: " in text
    assert run("--json") == 0
    (model,) = cast("list[Json]", json.loads(capsys.readouterr().out)["models"])
    assert model["name"] == "smollm2" and model["download_bytes"] == 92_871_040


def test_every_published_drafter_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--published") == 0
    lines = capsys.readouterr().out.splitlines()
    heads = [line for line in lines if line and not line.startswith(" ")]
    names = [line for line in lines if line.startswith("  ") and not line.startswith("    ")]
    assert len(heads) == len(set(heads)) == len({one.target for one in published_drafters()})
    assert len(names) == len(published_drafters())
    start = lines.index("Qwen/Qwen3-8B")
    assert lines[start + 1 : start + 3] == [
        "  z-lab/Qwen3-8B-DFlash-b16 (default)",
        "    v1, blocks of 16, layers 5 full, taps 1,9,17,25,33, 1.05 B parameters, 1.95 GiB, "
        "thinking off",
    ]
    assert "GLM-5.3 (hub id not known)" in heads
    assert any(
        "122B" in name and "(replaced on the hub, revision 6c7242c)" in name for name in names
    )


def test_one_target_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--published", "--target", "qwen/Qwen3.8-27B@main") == 0
    text = capsys.readouterr().out
    assert "also as: incoai/Qwen3.8-27B-DFlash2" in text
    assert "not known: rope_theta, max_positions, rms_norm_eps" in text
    assert "source: research notes" in text


def test_json_has_null_for_what_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--published", "--target", "MiniMaxAI/MiniMax-M2.7", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    (one,) = cast("list[Json]", document["published"])
    assert one["num_layers"] == 5 and one["hidden_size"] == 3072 and one["gated"] is True
    for key in ("taps", "num_heads", "block_size", "thinking", "num_parameters"):
        assert key in one and one[key] is None
    assert document["default"] == {"MiniMaxAI/MiniMax-M2.7": "z-lab/MiniMax-M2.7-DFlash"}


def test_mistakes() -> None:
    with pytest.raises(ConfigError, match="add --published"):
        run("--target", "Qwen/Qwen3-8B")
    with pytest.raises(ConfigError, match=r"unsloth/Qwen3-8B; there are some for Qwen/Qwen3-8B"):
        run("--published", "--target", "unsloth/Qwen3-8B")
    with pytest.raises(ConfigError, match="is known for owner/other: "):
        run("--published", "--target", "owner/other")
