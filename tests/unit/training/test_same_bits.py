"""What a training computes of its target does not depend on how fast this machine was meanwhile.

Kernels round differently, so a choice by timing would give each process its own features, losses
and resumed run.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from tiny_runs import config_of, prepared, run, save_pair
from torch import Tensor

from blockdraft.errors import ConfigError
from blockdraft.native import NativeOptions, NativeTarget, TargetOptions, load_engine_target
from blockdraft.native import load as native_load
from blockdraft.native import target as native_target
from blockdraft.native.linear import PACKED, PLAIN, KernelPlan, Linear, can_pack, only
from blockdraft.native.reading import PackedReader
from blockdraft.testing import TinySize, tiny_model
from blockdraft.training.batches.batch import Sample
from blockdraft.training.features.cache import plain_batch
from blockdraft.training.features.live import LiveFeatures

Pair = tuple[Path, Path]
SIZE = TinySize(hidden_size=64, vocab_size=96)
NATIVE = ("target.engine=native", "target.dtype=auto")
PACKS = can_pack(torch.zeros(1, 1, dtype=torch.bfloat16))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return save_pair(tmp_path_factory.mktemp("pair"), count=24)


def plan_that_chose(kernel: str) -> Callable[..., KernelPlan]:
    """A measurement that found `kernel` the fastest."""

    def plan(linears: Sequence[Linear], *rest: object, on_cpu: bool) -> KernelPlan:
        del rest, on_cpu
        return only(kernel if all(kernel in linear.kernels for linear in linears) else PLAIN)

    return plan


def features_of(target: NativeTarget) -> Tensor:
    ids = tuple((7 * i + 3) % 96 for i in range(50))
    sample = Sample(row=0, ids=ids, answer_start=10)
    return LiveFeatures(target, (0, 2)).features(plain_batch([sample])).taps


@pytest.mark.skipif(not PACKS, reason="this CPU has one kernel only")
@pytest.mark.parametrize("tuned", [True, False])
def test_a_training_target_computes_the_same_whatever_would_have_been_faster(
    monkeypatch: pytest.MonkeyPatch, tuned: bool
) -> None:
    """The kernels do differ in their last bits; only the tuned load is touched by the choice."""
    found: list[Tensor] = []
    for kernel in (PLAIN, PACKED):
        monkeypatch.setattr(native_target, "measure_plan", plan_that_chose(kernel))
        model = tiny_model("llama", dtype=torch.bfloat16, size=SIZE)
        found.append(features_of(NativeTarget(model, options=NativeOptions(tuned=tuned))))
    assert torch.equal(*found) is not tuned


def test_nothing_is_timed_in_training(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither kernels nor the dtype: auto is bfloat16."""

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("timed")

    monkeypatch.setattr(native_target, "measure_plan", fail)
    monkeypatch.setattr(native_load, "faster_dtype", fail)
    target = prepared(config_of(pair, *NATIVE)).target
    assert isinstance(target, NativeTarget) and target.dtype == torch.bfloat16
    with pytest.raises(AssertionError, match="timed"):
        load_engine_target(pair[0], TargetOptions(dtype="auto"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_features_do_not_depend_on_what_was_read_before(dtype: torch.dtype) -> None:
    """A resumed run has read nothing yet; one that went on has a larger pool and longer tables."""
    target = NativeTarget(
        tiny_model("llama", dtype=dtype, size=SIZE), options=NativeOptions(tuned=False)
    )
    documents = [torch.arange(length) % 90 + 3 for length in (40, 9, 23)]
    fresh = PackedReader(target.model, (0, 2), final=True, pass_rows=64)
    expected = fresh.read(documents)
    used = PackedReader(target.model, (0, 2), final=True, pass_rows=64)
    used.read([torch.arange(400) % 90 + 2, torch.arange(31) + 5])
    found = used.read(documents)
    assert torch.equal(found.taps, expected.taps)
    assert found.final is not None and expected.final is not None
    assert torch.equal(found.final, expected.final)


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_resumed_run_on_the_fly_equals_a_straight_one(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """T11: with the native bfloat16 target loaded anew, where another kernel would be chosen."""
    settings = (*NATIVE, f"optimizer.name={name}", "run.precision=bfloat16")
    steady = ("schedule.kind=constant", "schedule.warmup_steps=1")
    half = config_of(pair, *settings, *steady, "run.steps=2")
    whole = config_of(pair, *settings, *steady)
    monkeypatch.setattr(native_target, "measure_plan", plan_that_chose(PLAIN))
    straight = run(whole, tmp_path / "straight")
    first = run(half, tmp_path / "run")
    monkeypatch.setattr(native_target, "measure_plan", plan_that_chose(PACKED))
    second = run(whole, tmp_path / "run")
    assert first.watch.losses + second.watch.losses == straight.watch.losses
    for part, tensor in straight.weights.items():
        assert torch.equal(second.weights[part], tensor), part


def test_unknown_dtypes_are_still_refused(pair: Pair) -> None:
    with pytest.raises(ConfigError, match="dtype"):
        load_engine_target(pair[0], TargetOptions(dtype="float13", tuned=False))
