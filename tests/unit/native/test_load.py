"""Which engine a target gets, in which dtype, and what is said about it."""

import json
from pathlib import Path

import pytest
import torch

from blockdraft.errors import ConfigError, UnsupportedTarget
from blockdraft.native import NativeTarget, TargetOptions, load_engine_target
from blockdraft.target import load_target
from blockdraft.target.hf import HFTarget
from blockdraft.target.quiet import quiet
from blockdraft.testing import tiny_model
from blockdraft.testing.tiny import Family

IDS = torch.arange(1, 12)


def folder_of(tmp_path: Path, family: Family) -> Path:
    folder = tmp_path / family
    with quiet():
        tiny_model(family, dtype=torch.float32).save_pretrained(folder)
    return folder


def test_a_fitting_model_runs_natively_with_the_same_logits(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "qwen3")
    said: list[str] = []
    ours = load_engine_target(folder, report=said.append)
    assert isinstance(ours, NativeTarget) and ours.dtype == torch.float32
    assert not any("transformers" in line for line in said)
    theirs = load_target(folder, dtype="float32")
    assert ours.spec == theirs.spec
    torch.testing.assert_close(
        ours.open().prefill(IDS).logits, theirs.open().prefill(IDS).logits, atol=1e-3, rtol=0
    )


def test_another_model_runs_on_transformers_and_it_is_said(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "gemma3")
    said: list[str] = []
    target = load_engine_target(folder, report=said.append)
    assert isinstance(target, HFTarget)
    assert any("runs on transformers: model type gemma3_text" in line for line in said)
    for options in (TargetOptions(engine="native"), TargetOptions(quantize="int8")):
        with pytest.raises(UnsupportedTarget, match="does not fit the native engine: model type"):
            load_engine_target(folder, options)


@pytest.mark.parametrize("kind", ["sliding_attention", "linear_attention"])
def test_a_configuration_that_computes_nothing_is_one_line(tmp_path: Path, kind: str) -> None:
    """Layers that the family does not have: transformers fails in its first pass."""
    folder = folder_of(tmp_path, "llama")
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"layer_types": [kind] * 3}))
    with pytest.raises(UnsupportedTarget, match=r"first pass .* check its config\.json") as raised:
        load_engine_target(folder)
    assert "\n" not in str(raised.value)


def test_the_engine_can_be_chosen(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "llama")
    hf = load_engine_target(folder, TargetOptions(engine="hf", dtype="float64"))
    assert isinstance(hf, HFTarget) and hf.dtype == torch.float64
    native = load_engine_target(
        folder, TargetOptions(engine="native", dtype="bfloat16", batch_invariant=8)
    )
    assert isinstance(native, NativeTarget) and native.dtype == torch.bfloat16
    assert native.batch_invariant == 8
    quantized = load_engine_target(folder, TargetOptions(quantize="int4"))
    assert isinstance(quantized, NativeTarget) and quantized.quantize == "int4"


def test_auto_takes_the_faster_dtype_and_says_which(tmp_path: Path) -> None:
    said: list[str] = []
    target = load_engine_target(
        folder_of(tmp_path, "llama"), TargetOptions(dtype="auto"), report=said.append
    )
    assert target.dtype in (torch.float32, torch.bfloat16)
    name = str(target.dtype).removeprefix("torch.")
    assert f"{name} is the faster dtype here" in said


def test_settings_that_make_no_sense(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="drop --engine hf, or --quantize"):
        TargetOptions(engine="hf", quantize="int8")
    with pytest.raises(ConfigError):
        load_engine_target(folder_of(tmp_path, "llama"), TargetOptions(batch_invariant=0))
