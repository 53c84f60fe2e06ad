"""The native decoder and the engine on a CUDA device: `-m gpu`, or scripts/gpu_check.py."""

from collections.abc import Sequence

import pytest
import torch

from blockdraft.decoding import Commit, NoDrafter, SamplingParams, collect, decode
from blockdraft.drafter import BlockDrafter, DFlashDrafter, DrafterConfig
from blockdraft.engine import EngineConfig, Failed, build_engine, parse_width
from blockdraft.native import NativeTarget
from blockdraft.native.segments import Segment
from blockdraft.native.static import StaticPasses
from blockdraft.target.load import move_to
from blockdraft.testing.tiny import tiny_model, tiny_target

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.fixture
def target() -> NativeTarget:
    model = tiny_model("qwen3", dtype=torch.float32)
    move_to(model, "cuda")
    return NativeTarget(model)


def small_drafter(target: NativeTarget) -> DFlashDrafter:
    spec = target.spec
    config = DrafterConfig(
        hidden_size=spec.hidden_size,
        intermediate_size=64,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        rms_norm_eps=1e-6,
        vocab_size=spec.vocab_size,
        block_size=6,
        mask_token_id=5,
        taps=(0, 1),
        layer_types=("full_attention", "sliding_attention"),
        sliding_window=9,
        max_position_embeddings=512,
        num_target_layers=spec.num_layers,
    )
    return DFlashDrafter(BlockDrafter(config).to(device="cuda").eval(), target)


def test_logits_equal_those_on_the_cpu(target: NativeTarget) -> None:
    on_cpu = NativeTarget(tiny_model("qwen3", dtype=torch.float32))
    ids = torch.arange(5, 45)
    here = target.open().prefill(ids).logits.cpu()
    assert torch.allclose(here, on_cpu.open().prefill(ids).logits, atol=1e-3)


def test_recorded_passes_equal_plain_ones(target: NativeTarget) -> None:
    """Three replays of one CUDA graph, each over other contexts."""
    model = target.model
    pool = model.new_pool(400)
    pool.tensor.zero_()
    prompts = [Segment(0, 0, 20), Segment(100, 0, 31), Segment(200, 0, 7)]
    model.forward(torch.arange(58) % 90, prompts, pool)
    static = StaticPasses(model, pool, (0, 2), compiled=False)
    for shift in (0, 1, 2):
        segments = [
            Segment(0, 20 - shift, 4),
            Segment(100, 31 - shift, 2),
            Segment(200, 7 - shift, 1),
        ]
        ids = torch.arange(7) + 11 + shift
        found = static.run(ids, segments)
        expected = model.forward(ids, segments, pool, taps=(0, 2))
        assert found is not None and found.features is not None
        assert expected.features is not None
        assert torch.allclose(found.logits, expected.logits, atol=1e-4)
        assert torch.allclose(found.features, expected.features, atol=1e-4)


@pytest.mark.parametrize("width", ["off", "auto", "fixed:6"])
def test_engine_answers_equal_the_reference_decoder_s(target: NativeTarget, width: str) -> None:
    reference = tiny_target("qwen3", dtype=torch.float32)
    config = EngineConfig(slots=3, max_context=200, kv_memory=10**6, width=parse_width(width))
    engine = build_engine(target, small_drafter(target), config).engine
    prompts = [tuple((7 * k + j) % 90 for j in range(3 + 9 * k)) for k in range(6)]
    params = [
        SamplingParams(max_new_tokens=30, temperature=0.7 * (k % 2), seed=k) for k in range(6)
    ]
    keys = {engine.submit(p, q): (p, q) for p, q in zip(prompts, params, strict=True)}
    commits: dict[int, list[Commit]] = {key: [] for key in keys}
    while engine.has_work:
        for event in engine.step():
            assert not isinstance(event.outcome, Failed)
            commits[event.key].append(event.outcome)
    for key, (prompt, settings) in keys.items():
        expected = collect(prompt, decode(reference, NoDrafter(), prompt, settings))
        assert ids_of(commits[key]) == expected.token_ids


def ids_of(commits: Sequence[Commit]) -> tuple[int, ...]:
    return tuple(token_id for commit in commits for token_id in commit.ids)
