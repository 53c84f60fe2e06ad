"""`LiveFeatures` against the target's own states: prefill, step by step, packed, and `final`."""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import count

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from blockdraft.decoding.interfaces import TargetModel
from blockdraft.errors import ConfigError, NumericsError, RequestError, UnsupportedTarget
from blockdraft.native import NativeOptions, NativeTarget
from blockdraft.native.reading import plan_passes
from blockdraft.target import HFTarget
from blockdraft.testing import ScriptedTarget, tiny_model, tiny_target
from blockdraft.testing.recurrent import ToyRecurrentTarget
from blockdraft.testing.tiny import Family
from blockdraft.training.batches.batch import Batch, Sample, TargetFeatures
from blockdraft.training.features.live import LiveFeatures, check_finite

TAPS = (0, 2)
LENGTHS = (5, 1 + 1, 30, 75, 9)


@cache
def packed_target() -> NativeTarget:
    """One for all tests that do not change it."""
    return native("llama")


def clock() -> Callable[[], float]:
    ticks = count()
    return lambda: float(next(ticks))


def native(family: Family, *, batch_invariant: int | None = None) -> NativeTarget:
    return NativeTarget(
        tiny_model(family, dtype=torch.float32),
        name=f"tiny-{family}",
        options=NativeOptions(batch_invariant=batch_invariant),
        clock=clock(),
    )


def sample(row: int, length: int, vocab_size: int = 90) -> Sample:
    ids = tuple((31 * i * i + 7 * i + 13 * row) % vocab_size for i in range(length))
    return Sample(row=row, ids=ids, answer_start=1)


def batch(samples: Sequence[Sample]) -> Batch:
    none = torch.empty(0, dtype=torch.long)
    return Batch(samples=tuple(samples), anchors=none, document_of=none, block_size=4)


def prefilled(target: TargetModel, one: Sample, taps: Sequence[int] = TAPS) -> Tensor:
    features = target.open(taps).prefill(torch.tensor(one.ids)).features
    assert features is not None
    return features


def assert_same(found: Tensor, expected: Tensor) -> None:
    """Equal to 1e-5 of the largest state: what a sum in another order rounds away in float32."""
    largest = float(expected.abs().max())
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * largest)


def stepped(target: TargetModel, one: Sample) -> Tensor:
    """Features as decoding collects them: a prefill of the prompt, then token by token."""
    state = target.open(TAPS)
    rows = [state.prefill(torch.tensor(one.ids[: one.answer_start])).features]
    for token in one.ids[one.answer_start :]:
        rows.append(state.verify(torch.tensor([token])).features)
        state.commit([0])
    return torch.cat([row for row in rows if row is not None])


@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral", "qwen2_sliding"])
@pytest.mark.parametrize("pass_rows", [16, 1024])
def test_native_rows_are_those_of_prefill_and_of_decoding(family: Family, pass_rows: int) -> None:
    target = native(family)
    samples = [sample(row, length) for row, length in enumerate(LENGTHS)]
    source = LiveFeatures(target, TAPS, pass_rows=pass_rows)
    found = source.features(batch(samples))
    assert found.final is None
    assert not found.taps.requires_grad
    expected = torch.cat([prefilled(target, one) for one in samples])
    assert_same(found.taps, expected)
    assert_same(found.taps, torch.cat([stepped(target, one) for one in samples]))


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_transformers_rows_are_those_of_decoding(family: Family) -> None:
    target = tiny_target(family, dtype=torch.float32)
    samples = [sample(row, length) for row, length in enumerate(LENGTHS)]
    found = LiveFeatures(target, TAPS).features(batch(samples))
    assert_same(found.taps, torch.cat([stepped(target, one) for one in samples]))


@settings(max_examples=20, deadline=None)
@given(lengths=st.lists(st.integers(2, 40), min_size=1, max_size=6), pass_rows=st.integers(8, 64))
def test_packed_equals_unpacked(lengths: list[int], pass_rows: int) -> None:
    samples = [sample(row, length) for row, length in enumerate(lengths)]
    source = LiveFeatures(packed_target(), TAPS, final=True, pass_rows=pass_rows)
    packed = source.features(batch(samples))
    alone = [source.features(batch([one])) for one in samples]
    assert packed.final is not None
    assert_same(packed.taps, torch.cat([one.taps for one in alone]))
    finals = torch.cat([one.final for one in alone if one.final is not None])
    assert_same(packed.final, finals)


@given(lengths=st.lists(st.integers(1, 50), min_size=1, max_size=9), rows=st.integers(1, 30))
def test_passes_cover_every_token_once_in_order(lengths: list[int], rows: int) -> None:
    passes = plan_passes(lengths, rows)
    covered = [(p.document, i) for pieces in passes for p in pieces for i in range(p.start, p.end)]
    assert covered == [(d, i) for d, length in enumerate(lengths) for i in range(length)]
    for pieces in passes:
        assert sum(piece.end - piece.start for piece in pieces) <= rows
        assert len(pieces) == 1 or all(piece.start == 0 for piece in pieces)


def make_target(kind: str) -> NativeTarget | HFTarget:
    if kind == "native":
        return native("qwen3")
    return tiny_target("gemma3" if kind == "gemma3" else "llama", dtype=torch.float32)


@pytest.mark.parametrize("kind", ["native", "llama", "gemma3"])
def test_final_is_what_the_head_is_given(kind: str) -> None:
    target = make_target(kind)
    samples = [sample(3, 12), sample(4, 7)]
    found = LiveFeatures(target, TAPS, final=True).features(batch(samples))
    assert found.final is not None
    start = 0
    for one in samples:
        logits = target.head()(found.final[start : start + len(one.ids)])
        expected = target.open().verify(torch.tensor(one.ids)).logits
        assert_same(logits, expected)
        start += len(one.ids)
    plain = LiveFeatures(target, TAPS).features(batch(samples))
    torch.testing.assert_close(plain.taps, found.taps)


def test_final_of_a_batch_invariant_target() -> None:
    target = native("llama", batch_invariant=4)
    samples = [sample(0, 20), sample(1, 6)]
    found = LiveFeatures(target, TAPS, final=True, pass_rows=8).features(batch(samples))
    expected = torch.cat([prefilled(target, one) for one in samples])
    torch.testing.assert_close(found.taps, expected)


def test_states_that_no_head_explains_are_refused_at_the_start() -> None:
    with pytest.raises(UnsupportedTarget, match="soft-cap"):
        LiveFeatures(tiny_target("gemma2"), TAPS, final=True)
    LiveFeatures(tiny_target("gemma2"), TAPS)
    with pytest.raises(UnsupportedTarget, match="hard labels"):
        LiveFeatures(ToyRecurrentTarget(), (0, 1), final=True)


def test_any_target_gives_features() -> None:
    recurrent = ToyRecurrentTarget()
    scripted = ScriptedTarget(lambda prefix: torch.zeros(32, dtype=torch.float64), 32)
    for target in (recurrent, scripted):
        samples = [sample(0, 9, 32), sample(1, 4, 32)]
        found = LiveFeatures(target, (0, 1), dtype=torch.float32).features(batch(samples))
        expected = torch.cat([prefilled(target, one, (0, 1)) for one in samples])
        assert found.taps.dtype == torch.float32
        torch.testing.assert_close(found.taps, expected.float())


def test_taps_are_checked_at_the_start() -> None:
    with pytest.raises(ConfigError, match="tap 9 is no layer"):
        LiveFeatures(packed_target(), (0, 9))
    with pytest.raises(ConfigError, match="no layer is tapped"):
        LiveFeatures(packed_target(), ())


def test_samples_that_cannot_be_fed_are_named() -> None:
    source = LiveFeatures(packed_target(), TAPS)
    wrong = Sample(row=41, ids=(1, 2, 4000), answer_start=1)
    with pytest.raises(RequestError, match="sample row 41: token id 4000"):
        source.features(batch([sample(1, 5), wrong]))
    with pytest.raises(RequestError, match="sample row 42: 513 tokens exceed the context"):
        source.features(batch([sample(42, 513)]))


def test_states_that_are_not_finite_name_the_sample() -> None:
    """Gate 9: features are checked, and the message says which row to look at."""
    target = native("llama")
    target.model.weights.embedding[77] = torch.nan
    good, bad = (
        Sample(row=5, ids=(1, 2, 3), answer_start=1),
        Sample(row=6, ids=(1, 77), answer_start=1),
    )
    source = LiveFeatures(target, TAPS)
    source.features(batch([good]))
    with pytest.raises(NumericsError, match="of sample row 6 are not finite"):
        source.features(batch([good, bad, good]))


def test_final_states_that_are_not_finite_name_the_sample() -> None:
    samples = [sample(8, 3), sample(9, 4)]
    final = torch.zeros(7, 2)
    final[5] = torch.inf
    with pytest.raises(NumericsError, match="sample row 9 "):
        check_finite(TargetFeatures(torch.zeros(7, 4), final), samples)
