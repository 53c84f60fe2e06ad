"""Tests of the commands that serve each arm with vLLM, and of what it finds in its environment."""

import json
from pathlib import Path

import pytest

from engine_vllm import num_drafts, serve_command, variables


@pytest.fixture
def drafter(tmp_path: Path) -> Path:
    folder = tmp_path / "drafter"
    folder.mkdir()
    (folder / "config.json").write_text('{"block_size": 8}', encoding="ascii")
    return folder


def test_hf_folder_stands_beside_the_target(tmp_path: Path, drafter: Path) -> None:
    command = serve_command(Path("py"), "hf", tmp_path / "t", drafter, "bfloat16", 9)
    assert command[4] == str(tmp_path / "t")
    told = json.loads(command[command.index("--speculative-config") + 1])
    assert told == {"method": "dflash", "model": str(drafter), "num_speculative_tokens": 7}
    for flag in ("--enforce-eager", "--no-enable-prefix-caching"):
        assert flag in command


def test_speculators_folder_is_served_alone(tmp_path: Path, drafter: Path) -> None:
    alone = serve_command(Path("py"), "speculators", tmp_path, drafter, "bfloat16", 9)
    assert alone[4] == str(drafter)
    assert "--speculative-config" not in alone
    # Its verifier is a bfloat16 folder: in float32 the target has to be named.
    beside = serve_command(Path("py"), "speculators", tmp_path, drafter, "float32", 9)
    assert beside[4] == str(tmp_path)
    assert "--speculative-config" in beside


def test_plain_drafts_nothing(tmp_path: Path) -> None:
    command = serve_command(Path("py"), "plain", tmp_path, None, "float32", 9)
    assert not [part for part in command if "spec" in part]
    assert command[command.index("--dtype") + 1] == "float32"


def test_vllm_counts_drafts_not_the_block(drafter: Path) -> None:
    assert num_drafts(drafter) == 7


def test_metadata_says_cpu(tmp_path: Path) -> None:
    made = variables(tmp_path / "envs", tmp_path / "out", 1)
    folders = list(Path(made["PYTHONPATH"]).glob("vllm-*.dist-info/METADATA"))
    assert len(folders) == 1
    assert "+cpu" in folders[0].read_text(encoding="ascii")
    assert made["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert made["VLLM_CPU_OMP_THREADS_BIND"].count(",") == 0
