"""`PackedDrafter` against `DFlashDrafter` and against recorded outputs of the public reference."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file  # pyright: ignore[reportUnknownVariableType]: bare PathLike
from torch import Tensor

from blockdraft.checkpoint import load_checkpoint, load_drafter_model
from blockdraft.decoding import Draft, DraftLattice, LMHead, TargetSpec, TargetState
from blockdraft.drafter import (
    BlockDrafter,
    DFlash2Config,
    DFlashDrafter,
    DrafterConfig,
    RopeConfig,
)
from blockdraft.native.drafting import PackedDrafter
from blockdraft.native.linear import PLAIN, KernelPlan
from blockdraft.native.segments import Segment
from blockdraft.testing import logits_of

PADDING = KernelPlan((PLAIN, PLAIN), tuple(-(-n // 8) * 8 for n in range(65)))

CONFIG = DrafterConfig(
    hidden_size=16,
    intermediate_size=24,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    rms_norm_eps=1e-6,
    vocab_size=40,
    block_size=6,
    mask_token_id=3,
    taps=(1, 3),
    num_target_layers=6,
    layer_types=("full_attention", "full_attention"),
    max_position_embeddings=256,
)
MIXED = replace(CONFIG, layer_types=("sliding_attention", "full_attention"), sliding_window=4)
YARN = RopeConfig(rope_type="yarn", factor=4.0, original_max_position_embeddings=64)

CONFIGS: dict[str, DrafterConfig] = {
    "full": CONFIG,
    "sliding beside full": MIXED,
    "sliding, both ways": replace(MIXED, is_causal=False),
    "all causal": replace(CONFIG, is_causal=True),
    "window 1": replace(MIXED, sliding_window=1),
    "window wider than a block": replace(MIXED, sliding_window=11),
    "yarn": replace(CONFIG, rope=YARN, max_position_embeddings=64),
    "soft cap and scales": replace(
        CONFIG, final_logit_softcapping=2.0, input_embedding_scale=3.0, output_multiplier=0.5
    ),
    "biases": replace(CONFIG, attention_bias=True),
    "one key head": replace(MIXED, num_kv_heads=1),
    "as many key heads": replace(MIXED, num_kv_heads=4),
    "one tap, one layer": replace(
        CONFIG, taps=(2,), num_layers=1, layer_types=("full_attention",), block_size=2
    ),
}


class TableTarget:
    """An embedding table and a head; it can't decode, which a drafter never asks for."""

    def __init__(self, table: Tensor, weight: Tensor) -> None:
        self.table, self.weight = table, weight
        self.spec = TargetSpec(
            name="table", vocab_size=len(table), hidden_size=table.shape[1], num_layers=6
        )

    def embed(self, ids: Tensor) -> Tensor:
        return self.table[ids]

    def head(self, vocab_ids: Tensor | None = None) -> LMHead:
        weight = self.weight if vocab_ids is None else self.weight[vocab_ids]
        return lambda hidden: hidden @ weight.T

    def open(self, taps: Sequence[int] = ()) -> TargetState:
        raise NotImplementedError


def random_table(config: DrafterConfig, dtype: torch.dtype, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(config.vocab_size, config.hidden_size, generator=generator).to(dtype)


def make_drafter(
    config: DrafterConfig,
    dtype: torch.dtype = torch.float64,
    *,
    d2t: Tensor | None = None,
    lm_head: Tensor | None = None,
    mask_embedding: Tensor | None = None,
) -> DFlashDrafter:
    """Random weights, norms and biases away from their defaults."""
    generator = torch.Generator().manual_seed(11)
    model = BlockDrafter(config).requires_grad_(False)
    for name, parameter in model.named_parameters():
        noise = 0.3 * torch.randn(parameter.shape, generator=generator)
        parameter.copy_(noise + 1 if "norm" in name else noise)
    target = TableTarget(random_table(config, dtype, 7), random_table(config, dtype, 8))
    return DFlashDrafter(
        model.to(dtype), target, d2t=d2t, lm_head=lm_head, mask_embedding=mask_embedding
    )


def steady_clock() -> Callable[[], float]:
    ticks = count()
    return lambda: float(next(ticks))


def pack(drafter: DFlashDrafter, plan: KernelPlan | None = None) -> PackedDrafter:
    return PackedDrafter(drafter, clock=steady_clock(), plan=plan)


@cache
def kept_pair(
    config: DrafterConfig, plan: KernelPlan | None
) -> tuple[DFlashDrafter, PackedDrafter]:
    """A drafter and its fast form, made once for all examples, which only read them."""
    drafter = make_drafter(config)
    return drafter, pack(drafter, plan)


def features_of(config: DrafterConfig, rows: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    size = len(config.taps) * config.hidden_size
    return torch.randn(rows, size, generator=generator).to(dtype)


def proposals(
    drafter: DFlashDrafter | PackedDrafter, features: Tensor, cuts: Sequence[int], width: int
) -> list[Tensor]:
    """Drafts after each of `cuts` committed tokens, the context taken in piece by piece."""
    state = drafter.open()
    drafts: list[Tensor] = []
    for cut in cuts:
        new = features[state.context_len : cut]
        state.extend((1,) * len(new), new)
        assert state.context_len == cut
        draft = state.propose(5 + cut % 30, width)
        drafts.append(logits_of(draft))
    return drafts


def assert_same_drafts(
    slow: DFlashDrafter, fast: PackedDrafter, cuts: Sequence[int], widths: Sequence[int]
) -> None:
    dtype = fast.dtype
    features = features_of(fast.config, max(cuts), dtype)
    tolerance = 1e-9 if dtype == torch.float64 else 1e-4
    for width in widths:
        want = proposals(slow, features, cuts, width)
        got = proposals(fast, features, cuts, width)
        for ours, theirs in zip(got, want, strict=True):
            torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize(
    ("dtype", "plan"),
    [(torch.float64, None), (torch.float64, PADDING), (torch.float32, None)],
    ids=["float64", "padded", "float32"],
)
@pytest.mark.parametrize("name", CONFIGS)
def test_drafts_equal_the_readable_drafter_s(
    name: str, dtype: torch.dtype, plan: KernelPlan | None
) -> None:
    """L01 to L09 on the fast path: every mask, scale, rotation and width of a block."""
    drafter = make_drafter(CONFIGS[name], dtype)
    fast = pack(drafter, plan)
    assert (fast.block_size, fast.taps) == (drafter.block_size, drafter.taps)
    assert_same_drafts(drafter, fast, (1, 2, 7, 8, 13, 40), (2, 3, drafter.block_size))


def test_reduced_vocabulary_own_head_and_mask_embedding() -> None:
    d2t = torch.tensor([0, 3, 3, 10, 20])
    kinds: list[dict[str, Tensor]] = [
        {"d2t": d2t},
        {"d2t": d2t, "lm_head": random_table(CONFIG, torch.float64, 3)[:5]},
        {"lm_head": random_table(CONFIG, torch.float64, 4)},
        {"mask_embedding": random_table(CONFIG, torch.float64, 5)[0]},
    ]
    for extra in kinds:
        drafter = make_drafter(
            CONFIG,
            d2t=extra.get("d2t"),
            lm_head=extra.get("lm_head"),
            mask_embedding=extra.get("mask_embedding"),
        )
        assert_same_drafts(drafter, pack(drafter), (3, 9), (2, 6))
        draft = pack(drafter).open().propose(4, 6)
        assert logits_of(draft).shape == (5, CONFIG.vocab_size)
        assert bool(logits_of(draft).isneginf().any()) == ("d2t" in extra)


@pytest.mark.parametrize("name", ["full", "sliding beside full", "all causal", "yarn"])
@pytest.mark.parametrize("plan", [None, PADDING], ids=["measured", "padded"])
@settings(max_examples=12)
@given(
    lens=st.lists(st.integers(1, 20), min_size=1, max_size=6),
    width=st.integers(2, 6),
    gap=st.integers(0, 3),
)
def test_requests_together_equal_requests_alone(
    name: str, plan: KernelPlan | None, lens: list[int], width: int, gap: int
) -> None:
    """B27: rows nobody wrote hold NaN, so that reading one would show."""
    drafter, fast = kept_pair(CONFIGS[name], plan)
    bases = [gap + sum(lens[:i]) + i * (6 + gap) for i in range(len(lens))]
    pool = fast.new_pool(bases[-1] + lens[-1] + 6)
    pool.tensor.fill_(torch.nan)
    features = [features_of(fast.config, n, torch.float64, seed=i) for i, n in enumerate(lens)]
    positions = [p for n in lens for p in range(n)]
    rows = [base + p for base, n in zip(bases, lens, strict=True) for p in range(n)]
    fast.project(torch.cat(features), positions, rows, pool)
    anchors = [5 + i for i in range(len(lens))]
    contexts = [Segment(base, n, width) for base, n in zip(bases, lens, strict=True)]
    logits = fast.draft(anchors, contexts, pool).view(len(lens), width - 1, -1)
    for i, own in enumerate(features):
        state = drafter.open()
        state.extend((1,) * len(own), own)
        want = state.propose(anchors[i], width)
        torch.testing.assert_close(logits[i], logits_of(want), atol=1e-9, rtol=0)
    unwritten = set(range(pool.num_rows)) - set(rows)
    unwritten -= {c.base + c.context_len + i for c in contexts for i in range(width)}
    assert bool(pool.tensor[:, :, :, sorted(unwritten)].isnan().all())


SECOND = DFlash2Config(conv_kernel_size=2, conv_group_size=4, selector_rank=3, selector_top_k=6)


def assert_same_lattices(got: Draft, want: Draft, tolerance: float) -> None:
    assert isinstance(got, DraftLattice) and isinstance(want, DraftLattice)
    for ours, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize(
    ("dtype", "plan"),
    [(torch.float64, None), (torch.float64, PADDING), (torch.float32, None)],
    ids=["float64", "padded", "float32"],
)
@pytest.mark.parametrize(
    "name", ["full", "sliding beside full", "all causal", "yarn", "soft cap and scales"]
)
def test_lattices_equal_the_readable_drafter_s(
    name: str, dtype: torch.dtype, plan: KernelPlan | None
) -> None:
    """DFlash 2 on the fast path: convolutions along each block, scores of all pairs, every width
    and kernels of three taps on blocks that are shorter."""
    for taps in (2, 3):
        second = replace(SECOND, conv_kernel_size=taps)
        drafter = make_drafter(replace(CONFIGS[name], dflash2=second), dtype)
        fast = pack(drafter, plan)
        features = features_of(fast.config, 13, dtype)
        for width in (2, 3, 6):
            slow_state, fast_state = drafter.open(), fast.open()
            for start, end in ((0, 1), (1, 8), (8, 13)):
                for state in (slow_state, fast_state):
                    state.extend((1,) * (end - start), features[start:end])
                want = slow_state.propose(5 + end, width)
                tolerance = 1e-9 if dtype == torch.float64 else 1e-4
                assert_same_lattices(fast_state.propose(5 + end, width), want, tolerance)


@settings(max_examples=25)
@given(lens=st.lists(st.integers(1, 20), min_size=1, max_size=5), width=st.integers(2, 6))
def test_lattices_together_equal_lattices_alone(lens: list[int], width: int) -> None:
    """Neighbors in a pass: neither attention nor a convolution reaches into another's block."""
    drafter, fast = kept_pair(replace(MIXED, dflash2=SECOND), None)
    bases = [sum(lens[:i]) + i * 8 for i in range(len(lens))]
    pool = fast.new_pool(bases[-1] + lens[-1] + 8)
    pool.tensor.fill_(torch.nan)
    features = [features_of(fast.config, n, torch.float64, seed=i) for i, n in enumerate(lens)]
    positions = [p for n in lens for p in range(n)]
    rows = [base + p for base, n in zip(bases, lens, strict=True) for p in range(n)]
    fast.project(torch.cat(features), positions, rows, pool)
    anchors = [5 + i for i in range(len(lens))]
    contexts = [Segment(base, n, width) for base, n in zip(bases, lens, strict=True)]
    lattices = fast.draft_lattices(anchors, contexts, pool)
    for own, anchor, lattice in zip(features, anchors, lattices, strict=True):
        state = drafter.open()
        state.extend((1,) * len(own), own)
        assert_same_lattices(lattice, state.propose(anchor, width), 1e-9)


def test_a_selector_outlives_the_readable_model_s_weights() -> None:
    drafter = make_drafter(replace(CONFIG, dflash2=SECOND))
    fast = pack(drafter)
    state = fast.open()
    state.extend((1,) * 9, features_of(CONFIG, 9, torch.float64))
    before = state.propose(5, 6)
    drafter.release_weights()
    assert_same_lattices(state.propose(5, 6), before, 0.0)


def test_a_draft_leaves_the_context_as_it_was() -> None:
    drafter = pack(make_drafter(MIXED))
    features = features_of(MIXED, 9, torch.float64)
    state = drafter.open()
    state.extend((1,) * 9, features)
    first = logits_of(state.propose(5, 6))
    state.propose(7, 4)
    assert torch.equal(logits_of(state.propose(5, 6)), first)


def test_nothing_is_drafted_past_the_position_limit(caplog: pytest.LogCaptureFixture) -> None:
    """L13, R11: narrower blocks up to the limit, then none, and no growing context."""
    config = replace(CONFIG, max_position_embeddings=16)
    drafter = make_drafter(config)
    fast = pack(drafter)
    features = features_of(config, 40, torch.float64)
    cuts = (8, 11, 12, 13, 14, 15, 16, 17, 40)
    want = proposals(drafter, features, cuts, 6)
    got = proposals(fast, features, cuts, 6)
    assert [len(logits) for logits in got] == [5, 4, 3, 2, 1, 0, 0, 0, 0]
    for ours, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=0)
    assert sum("position limit" in record.message for record in caplog.records) == 1


def test_long_contexts_are_projected_in_pieces() -> None:
    config = replace(MIXED, max_position_embeddings=4096)
    drafter = make_drafter(config)
    assert_same_drafts(drafter, pack(drafter), (1300, 1301), (6,))


@pytest.mark.parametrize(
    "case",
    [
        "v1_full",
        "v1_one_layer_b4",
        "v1_sliding_mixed",
        "v1_sliding_noncausal",
        "v1_softcap_scale",
        "v1_yarn",
    ],
)
def test_recorded_outputs_of_the_public_reference(case: str, data_dir: Path) -> None:
    """Slot logits of two blocks on one growing context, within 1e-4 in fp32."""
    folder = data_dir / "golden" / case
    recorded = load_file(folder / "expected.safetensors")
    model = load_drafter_model(load_checkpoint(folder, dtype=torch.float32))
    target = TableTarget(recorded["embed_tokens.weight"], recorded["lm_head.weight"])
    fast = pack(DFlashDrafter(model, target))
    state = fast.open()
    for step in ("step1", "step2"):
        features = recorded[f"{step}.features"][0]
        state.extend((1,) * len(features), features)
        block = recorded[f"{step}.block_ids"][0]
        assert bool((block[1:] == model.config.mask_token_id).all())
        logits = logits_of(state.propose(int(block[0]), len(block)))
        torch.testing.assert_close(logits, recorded[f"{step}.logits"][0], rtol=0, atol=1e-4)
