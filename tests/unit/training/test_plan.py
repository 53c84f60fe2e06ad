"""Cost formulas against torch's own count, a brute-force mask and the published figures."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from blockdraft.drafter.attention import block_mask
from blockdraft.drafter.config import DrafterConfig, LayerType, MaskRule
from blockdraft.drafter.model import BlockDrafter
from blockdraft.errors import ConfigError
from blockdraft.native import NativeTarget
from blockdraft.testing import TinySize, tiny_config, tiny_model
from blockdraft.training.attention import dense
from blockdraft.training.batches.batch import Batch, Sample
from blockdraft.training.batches.layout import lay_out
from blockdraft.training.cost.flops import (
    TargetShape,
    Work,
    fusion_weights,
    layer_weights,
    num_pairs,
    num_parameters,
    read_shape,
    step_flops,
    target_flops,
    work_of,
)
from blockdraft.training.cost.machine import measured_peak, utilization
from blockdraft.training.cost.plan import DataSize, TrainingSetup, expected_work, plan_training
from blockdraft.training.cost.report import CostRow, cost_rows, value_text
from blockdraft.training.forward import BlockForward

SMOLLM2 = TargetShape(
    hidden_size=576,
    intermediate_size=1536,
    num_layers=30,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    vocab_size=49152,
)


def drafter(
    num_layers: int = 4, *, draft_vocab_size: int | None = None, block_size: int = 8
) -> DrafterConfig:
    """A drafter for SmolLM2."""
    return DrafterConfig(
        hidden_size=576,
        intermediate_size=1536,
        num_layers=num_layers,
        num_heads=9,
        num_kv_heads=3,
        head_dim=64,
        rms_norm_eps=1e-5,
        vocab_size=49152,
        block_size=block_size,
        mask_token_id=0,
        taps=(1, 8, 14, 20, 27),
        layer_types=("full_attention",) * num_layers,
        max_position_embeddings=8192,
        draft_vocab_size=draft_vocab_size,
    )


def tiny_drafter(kinds: tuple[LayerType, ...], *, bias: bool = False) -> DrafterConfig:
    return DrafterConfig(
        hidden_size=32,
        intermediate_size=48,
        num_layers=len(kinds),
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        rms_norm_eps=1e-5,
        vocab_size=64,
        block_size=4,
        mask_token_id=0,
        taps=(0, 1, 2),
        layer_types=kinds,
        max_position_embeddings=128,
        sliding_window=5,
        attention_bias=bias,
    )


def packed(block_size: int) -> Batch:
    samples = (
        Sample(row=0, ids=tuple(range(11)), answer_start=3),
        Sample(row=1, ids=tuple(range(7)), answer_start=2),
    )
    return Batch(
        samples=samples,
        anchors=torch.tensor([3, 5, 9, 13, 16]),
        document_of=torch.tensor([0, 0, 0, 1, 1]),
        block_size=block_size,
    )


def counted(config: DrafterConfig, batch: Batch, *, recompute: bool) -> float:
    """What torch counts in the training forward and backward of one batch, head included."""
    torch.manual_seed(0)
    model = BlockForward(BlockDrafter(config), make_attend=dense, recompute=recompute)
    layout = lay_out(batch)
    features = torch.randn(batch.num_tokens, len(config.taps) * config.hidden_size)
    embeddings = torch.randn(batch.num_anchors, batch.block_size, config.hidden_size)
    head = torch.randn(config.vocab_size, config.hidden_size)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        slots = model(features, embeddings, layout)
        labelled = slots[layout.labels.ids >= 0]
        torch.nn.functional.linear(labelled, head).sum().backward()
    return float(counter.get_total_flops())


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("num_layers", [1, 3])
def test_formulas_are_what_torch_counts(num_layers: int, recompute: bool) -> None:
    config = tiny_drafter(("full_attention",) * num_layers)
    batch = packed(4)
    work = work_of(config, batch)
    # The dense reference computes every pair and masks most of them.
    rows = batch.num_anchors * batch.block_size
    every_pair = (float(rows * (batch.num_tokens + rows)),) * num_layers
    cost = step_flops(config, work._replace(pairs=every_pair), recompute=recompute)
    assert counted(config, batch, recompute=recompute) == cost.total


@pytest.mark.parametrize("bias", [False, True])
def test_parameters_are_those_of_the_model(bias: bool) -> None:
    config = tiny_drafter(("full_attention", "sliding_attention"), bias=bias)
    model = BlockDrafter(config)
    assert num_parameters(config) == sum(weight.numel() for weight in model.parameters())


@given(
    positions=st.lists(st.integers(0, 20), min_size=1, max_size=5),
    width=st.integers(1, 6),
    causal=st.booleans(),
    window=st.none() | st.integers(1, 24),
)
def test_pairs_are_those_of_the_mask(
    positions: list[int], width: int, causal: bool, window: int | None
) -> None:
    rule = MaskRule(causal=causal, window=window)
    places = torch.tensor(positions)
    mask = block_mask(places, max(positions), width, rule)
    assert num_pairs(places, width, rule) == int(mask.sum())


def test_work_of_a_batch_by_hand() -> None:
    """Anchors 3, 5, 9 of 11 tokens and 2, 5 of 7, blocks of four."""
    config = tiny_drafter(("full_attention", "sliding_attention"))
    work = work_of(config, packed(4))
    assert work[:3] == (18, 5, 3 + 3 + 1 + 3 + 1)
    assert work.pairs[0] == 4 * (3 + 5 + 9 + 2 + 5) + 5 * 16
    # Causal, window 5: slot j sees the last min(anchor, 4 - j) tokens, and j + 1 of the block.
    seen = sum(min(anchor, 4 - j) for anchor in (3, 5, 9, 2, 5) for j in range(4))
    assert work.pairs[1] == seen + 5 * 10
    assert int((lay_out(packed(4)).labels.ids >= 0).sum()) == work.slots


def test_published_figures_of_smollm2() -> None:
    config = drafter()
    assert layer_weights(config) == pytest.approx(3.539e6, rel=1e-3)
    assert fusion_weights(config) == pytest.approx(1.659e6, rel=1e-3)
    assert num_parameters(config) == pytest.approx(15.8e6, rel=1e-2)
    one = Work(tokens=0, blocks=1, slots=7, pairs=(0.0,) * 4)
    assert step_flops(config, one).layers == pytest.approx(680e6, rel=2e-3)
    assert step_flops(config, one).head == pytest.approx(793e6, rel=2e-3)
    assert step_flops(drafter(draft_vocab_size=8192), one).head == pytest.approx(132e6, rel=2e-3)
    assert target_flops(SMOLLM2, 1, 0) == pytest.approx(212e6, rel=2e-3)
    assert SMOLLM2.num_parameters == pytest.approx(134.5e6, rel=1e-3)


def test_target_flops_are_what_torch_counts() -> None:
    size = TinySize(num_layers=2)
    target = NativeTarget(tiny_model("llama", dtype=torch.float32, size=size), clock=ticking())
    config = target.model.config
    shape = read_shape(tiny_config("llama", size), "tiny")
    assert shape.layer_weights * 2 + 96 * 32 == shape.num_parameters
    model = tiny_model("llama", dtype=torch.float32, size=size, attn="eager")
    ids = torch.arange(4, 16)[None]
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.get_decoder()(input_ids=ids)
    rotary = 2 * (config.head_dim // 2) * 12  # the product that makes the angles
    # Eager attention computes all pairs, also the masked ones.
    expected = target_flops(shape, 12, 12) + rotary
    assert counter.get_total_flops() == pytest.approx(expected, rel=1e-3)


DATA = DataSize(num_answers=5000, num_prompt_tokens=500_000, num_answer_tokens=1_500_000)


def test_a_plan_by_hand() -> None:
    config = drafter(draft_vocab_size=8192)
    setup = TrainingSetup(epochs=2, anchor_stride=4, cache="bf16", optimizer="adamw")
    cost = plan_training(config, SMOLLM2, DATA, setup, peak=300e9, utilization=0.5)
    parameters = num_parameters(config)
    assert cost.anchors_per_epoch == 375_000
    assert cost.rows_per_epoch == 733  # by anchors: 375000 / 512
    assert cost.disk.features == pytest.approx(2e6 * 5760, rel=1e-3)
    assert cost.disk.checkpoints == 4 * 12 * parameters
    assert cost.memory.weights == 6 * parameters
    assert cost.memory.optimizer == 8 * parameters
    assert cost.memory.target == 2 * 49152 * 576
    assert cost.flops.layers == pytest.approx(2 * 375_000 * 680e6, rel=2e-3)
    attention = 4 * 576 * 30 * 200.5  # every token sees half of its 400 on average
    assert cost.target_flops == pytest.approx(2e6 * (212.3e6 + attention), rel=1e-3)
    assert cost.seconds == cost.total_flops / 150e9
    live = plan_training(config, SMOLLM2, DATA, replace(setup, cache=None))
    assert live.target_flops == pytest.approx(2 * cost.target_flops)
    assert live.disk.features == 0
    assert live.seconds is None


def test_settings_move_the_costs_that_they_should() -> None:
    config = drafter()
    base = plan_training(config, SMOLLM2, DATA, TrainingSetup())
    ema = plan_training(config, SMOLLM2, DATA, TrainingSetup(ema=True))
    assert ema.memory.ema == 4 * base.parameters
    assert ema.disk.checkpoints > base.disk.checkpoints
    again = plan_training(config, SMOLLM2, DATA, TrainingSetup(recompute=True))
    assert again.memory.activations < base.memory.activations / 2
    assert 1.2 < again.flops.layers / base.flops.layers < 4 / 3
    soft = plan_training(config, SMOLLM2, DATA, TrainingSetup(soft=True, cache="fp8"))
    hard = plan_training(config, SMOLLM2, DATA, TrainingSetup(cache="fp8"))
    assert soft.target_flops > hard.target_flops
    assert soft.disk.features > hard.disk.features
    adamw = plan_training(config, SMOLLM2, DATA, TrainingSetup(optimizer="adamw"))
    assert adamw.memory.optimizer > 1.9 * base.memory.optimizer
    with pytest.raises(ConfigError, match="at least one answer"):
        replace(DATA, num_answers=0)


def test_expected_work_is_the_mean_of_drawn_work() -> None:
    """All anchors of equal answers: the expectation is the count itself."""
    config = tiny_drafter(("full_attention",))
    samples = tuple(Sample(row=i, ids=tuple(range(13)), answer_start=4) for i in range(3))
    anchors = torch.tensor([13 * d + i for d in range(3) for i in range(4, 12)])
    documents = torch.tensor([d for d in range(3) for _ in range(4, 12)])
    batch = Batch(samples=samples, anchors=anchors, document_of=documents, block_size=4)
    data = DataSize(num_answers=3, num_prompt_tokens=12, num_answer_tokens=27)
    expected, found = expected_work(config, data, TrainingSetup()), work_of(config, batch)
    assert expected[:3] == pytest.approx(found[:3])
    assert expected.pairs[0] == pytest.approx(found.pairs[0], rel=0.05)


def test_rows_of_a_report() -> None:
    cost = plan_training(drafter(), SMOLLM2, DATA, TrainingSetup(), peak=3e11)
    rows = {row.name.strip(): row for row in cost_rows(cost)}
    assert rows["memory"].value == sum(cost.memory)
    assert rows["arithmetic"].value == cost.total_flops
    assert rows["time"].unit == "s"
    no_peak = plan_training(drafter(), SMOLLM2, DATA, TrainingSetup())
    assert "time" not in [row.name for row in cost_rows(no_peak)]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (15_800_000, "", "15.8 M"),
        (3.16e7, "B", "31.6 MB"),
        (12, "", "12"),
        (0, "B", "0 B"),
        (1.2e15, "FLOP", "1.2 PFLOP"),
        (45.4, "s", "45 s"),
        (1500, "s", "25 min"),
        (4800, "s", "1 h 20 min"),
        (200_000, "s", "2.3 days"),
    ],
)
def test_values_for_people(value: float, unit: str, text: str) -> None:
    assert value_text(CostRow("x", value, unit, "")) == text


def test_sizes_of_a_configuration() -> None:
    named = SimpleNamespace(
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        head_dim=None,
        vocab_size=49152,
    )
    assert read_shape(named, "smollm2") == SMOLLM2
    named.num_key_value_heads = None
    assert read_shape(named, "old").num_kv_heads == 9
    with pytest.raises(ConfigError, match="of other has no hidden_size"):
        read_shape(SimpleNamespace(), "other")


def ticking(step: float = 1.0) -> Callable[[], float]:
    ticks = count()
    return lambda: step * next(ticks)


def test_peak_is_the_best_of_three_after_a_first_one() -> None:
    times: Iterator[float] = iter([0, 1, 2, 6, 10, 12, 20, 23])
    assert measured_peak(8, torch.float32, clock=lambda: next(times)) == 2 * 8**3 / 2
    assert utilization(flops=30, seconds=2, peak=60) == 0.25
