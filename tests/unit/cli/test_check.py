"""`blockdraft check`: exit codes, the report, the document, the engines asked for."""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import cast

import pytest
import torch

from blockdraft.check import ENGINES
from blockdraft.checkpoint import DrafterCheckpoint, save_checkpoint
from blockdraft.checkpoint.contents import expected_shapes
from blockdraft.cli import check
from blockdraft.cli.check_report import chosen_engines
from blockdraft.drafter import DrafterConfig
from blockdraft.errors import CheckpointError, ConfigError
from blockdraft.testing.tiny import TinySize, tiny_model


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random target without a tokenizer, and a drafter for it."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("pair")
    size = TinySize(vocab_size=64, hidden_size=128, num_layers=4, stop_ids=(2,))
    tiny_model("qwen3", dtype=torch.float32, size=size).save_pretrained(folder / "target")
    config = DrafterConfig(
        hidden_size=128,
        intermediate_size=32,
        num_layers=1,
        num_heads=2,
        num_kv_heads=1,
        head_dim=32,
        rms_norm_eps=1e-6,
        vocab_size=64,
        block_size=4,
        mask_token_id=63,
        taps=(0, 2),
        layer_types=("full_attention",),
        max_position_embeddings=512,
        num_target_layers=4,
    )
    state = {name: torch.randn(shape) / 10 for name, shape in expected_shapes(config).items()}
    save_checkpoint(
        folder / "drafter",
        DrafterCheckpoint(config=config, state=state, source="memory", recorded_tau=1.0),
    )
    return folder


def run(folder: Path, *argv: str) -> int:
    parser = ArgumentParser()
    check.add_arguments(parser)
    pair = ("--target", str(folder / "target"), "--drafter", str(folder / "drafter"))
    return check.run(parser.parse_args([*pair, *argv]))


def test_pair_without_errors_is_0(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folders, "--no-live", "--engine", "vllm", "--engine", "sglang") == 0
    out = capsys.readouterr().out
    assert "DFL006 warning: every engine" in out
    assert "num_speculative_tokens 3 (block_size - 1)" in out
    assert "llama.cpp" not in out.split("\n\n")[-1]


def test_error_of_an_engine_asked_for_is_1(folders: Path) -> None:
    assert run(folders, "--no-live", "--engine", "llamacpp") == 1
    assert run(folders, "--no-live") == 1


def test_document(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ("--json", "--engine", "blockdraft", "--max-new-tokens", "12", "--threads", "1")
    assert run(folders, *argv) == 0
    document = cast("dict[str, object]", json.loads(capsys.readouterr().out))
    assert document["engines"] == {"blockdraft": "Blockdraft"}
    assert document["usable"] == {"blockdraft": True}
    live = cast("dict[str, object]", document["live"])
    assert live["skipped"] is None
    assert isinstance(live["tau"], float)
    findings = cast("list[dict[str, str]]", document["findings"])
    assert [finding["code"] for finding in findings] == ["DFL006", "DFL904"]
    assert set(findings[0]) == {"code", "severity", "engine", "happens", "remedy"}


def test_missing_folders_are_mistakes(folders: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such folder"):
        run(folders, "--drafter", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="no checkpoint to check"):
        run(folders, "--drafter", "prompt-lookup")


def test_engines_keep_the_order_of_the_report() -> None:
    assert chosen_engines(None) == ENGINES
    assert chosen_engines(["openvino", "vllm", "vllm"]) == ("vllm", "openvino")


@pytest.mark.parametrize("drafter", [(), ("--drafter", "smollm2")])
def test_a_mistyped_target_is_blamed_itself(drafter: tuple[str, ...]) -> None:
    parser = ArgumentParser()
    check.add_arguments(parser)
    with pytest.raises(CheckpointError, match="--target nope: there is no such folder"):
        check.run(parser.parse_args(["--target", "nope", *drafter]))


def test_a_mistyped_drafter_is_blamed_itself(folders: Path) -> None:
    parser = ArgumentParser()
    check.add_arguments(parser)
    target = ("--target", str(folders / "target"))
    with pytest.raises(CheckpointError, match="--drafter nope: there is no such folder"):
        check.run(parser.parse_args([*target, "--drafter", "nope"]))
    with pytest.raises(ConfigError, match="no drafter is known for"):
        check.run(parser.parse_args(target))
