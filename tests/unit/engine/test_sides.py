"""Pooled and stateful sides tell one story: the same feeds give the same logits and drafts."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from blockdraft.drafter import BlockDrafter, DFlash2Config, DFlashDrafter, DrafterConfig
from blockdraft.engine.extents import Move
from blockdraft.engine.pooled import PooledDrafts, PooledTarget, asked_rows
from blockdraft.engine.sides import (
    DraftRequest,
    DraftRows,
    Extension,
    Feed,
    PassResult,
    TargetSide,
)
from blockdraft.engine.stateful import StatefulDrafts, StatefulTarget
from blockdraft.native import NativeTarget, PackedDrafter
from blockdraft.testing import TinySize, logits_of, tiny_model

VOCAB = 24
TAPS = (0, 1)
CONFIG = DrafterConfig(
    hidden_size=16,
    intermediate_size=16,
    num_layers=2,
    num_heads=2,
    num_kv_heads=1,
    head_dim=8,
    rms_norm_eps=1e-6,
    vocab_size=VOCAB,
    block_size=5,
    mask_token_id=3,
    taps=TAPS,
    layer_types=("full_attention", "sliding_attention"),
    sliding_window=4,
    max_position_embeddings=20,
)


@pytest.fixture(scope="module")
def target() -> NativeTarget:
    size = TinySize(vocab_size=VOCAB, hidden_size=16)
    return NativeTarget(tiny_model("qwen3", size=size))


@pytest.fixture(scope="module")
def drafter(target: NativeTarget) -> DFlashDrafter:
    torch.manual_seed(2)
    return DFlashDrafter(BlockDrafter(CONFIG).requires_grad_(False).double(), target)


def prompt(key: int, base: int, start: int, ids: Sequence[int], *, wants: bool) -> Feed:
    return Feed(key, base, start, tuple(ids), is_prompt=True, wants_logits=wants)


def block(
    key: int, base: int, start: int, ids: Sequence[int], parents: tuple[int, ...] | None = None
) -> Feed:
    return Feed(key, base, start, tuple(ids), is_prompt=False, wants_logits=True, parents=parents)


def assert_same(one: PassResult, other: PassResult) -> None:
    torch.testing.assert_close(one.logits, other.logits, atol=1e-9, rtol=0)
    assert one.features is not None and other.features is not None
    torch.testing.assert_close(one.features, other.features, atol=1e-9, rtol=0)


def test_the_same_feeds_give_the_same_pass(target: NativeTarget) -> None:
    """Prompts in chunks beside chains and trees, kept in part, over three requests."""
    sides: list[TargetSide] = [
        PooledTarget(target.model, 120, TAPS),
        StatefulTarget(target, TAPS, 1),
    ]
    script: list[tuple[list[Feed], dict[int, list[int]]]] = [
        ([prompt(0, 40, 0, (5, 6, 7), wants=True), prompt(1, 0, 0, (8, 9), wants=False)], {}),
        ([prompt(1, 0, 2, (4,), wants=True), block(0, 40, 3, (1, 2, 3, 4))], {0: [0, 1]}),
        (
            [block(0, 40, 5, (9,)), block(1, 0, 3, (5, 6, 7, 8, 9), (-1, 0, 0, 2, 2))],
            {1: [0, 2, 4]},
        ),
        ([prompt(2, 80, 0, range(20), wants=True), block(1, 0, 6, (1, 2))], {1: []}),
        ([block(1, 0, 6, (3, 4)), block(0, 40, 6, (2, 2)), block(2, 80, 20, (7, 7))], {}),
    ]
    for feeds, kept in script:
        results = [side.run(feeds) for side in sides]
        assert_same(results[0], results[1])
        assert results[0].logits.shape[0] == len(asked_rows(feeds))
        for side in sides:
            for feed in feeds:
                if not feed.is_prompt:
                    side.commit(feed, kept.get(feed.key, [0]))


def test_only_wanted_rows_are_asked_for() -> None:
    feeds = [
        prompt(0, 0, 0, (1, 2, 3), wants=False),
        block(1, 0, 0, (1, 2)),
        prompt(2, 0, 0, (1, 2, 3), wants=True),
        block(3, 0, 0, (1,)),
    ]
    assert asked_rows(feeds) == [3, 4, 7, 8]


def test_rows_that_are_moved_are_the_request_s_context(target: NativeTarget) -> None:
    """A copy of a prefix for another request, then a move that overlaps itself."""
    side = PooledTarget(target.model, 100, ())
    first = side.run([prompt(0, 0, 0, (5, 6, 7, 8), wants=True)])
    side.move([Move(0, 50, 3), Move(0, 2, 4)])
    again = side.run([prompt(1, 50, 3, (8,), wants=True)])
    torch.testing.assert_close(again.logits, first.logits, atol=1e-9, rtol=0)
    both = side.run([block(0, 2, 4, (9,)), block(1, 50, 4, (9,))])
    torch.testing.assert_close(both.logits[0], both.logits[1], atol=1e-9, rtol=0)
    assert both.features is None


def features_of(count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 2 * 16, generator=generator, dtype=torch.float64)


def test_pooled_drafts_equal_stateful_ones(drafter: DFlashDrafter) -> None:
    """Requests of several lengths at once, up to and past the drafter's positions (L13)."""
    pooled = PooledDrafts(PackedDrafter(drafter, clock=lambda: 0.0), 200)
    stateful = StatefulDrafts(drafter)
    assert (pooled.block_size, pooled.taps) == (stateful.block_size, stateful.taps) == (5, TAPS)
    lens = {0: 3, 1: 14, 2: 17, 3: 18, 4: 19, 5: 30}
    for side in (pooled, stateful):
        for part in (slice(0, 2), slice(2, None)):
            side.extend(
                [
                    Extension(key, 32 * key, start, (1,) * len(rows), rows)
                    for key, count in lens.items()
                    for start, rows in ((part.start, features_of(count, key)[part]),)
                ]
            )
    for keys in ((0,), (0, 1), (1, 2, 3, 4, 5), (4, 5), tuple(lens)):
        requests = [DraftRequest(key, 32 * key, lens[key], 7 + key, 5) for key in keys]
        rows = pooled.draft(requests)
        assert isinstance(rows, DraftRows)
        assert sum(rows.num_slots) == len(rows.logits)
        start = 0
        for count, draft in zip(rows.num_slots, stateful.draft(requests), strict=True):
            own = rows.logits[start : start + count]
            torch.testing.assert_close(own, logits_of(draft).to(own), atol=1e-9, rtol=0)
            start += count
    last = pooled.draft([DraftRequest(2, 64, 17, 1, 5)])
    assert isinstance(last, DraftRows) and last.num_slots == (2,)


def test_pooled_lattices_equal_stateful_ones(target: NativeTarget) -> None:
    """DFlash 2: widths cut by the position limit among them, and requests past it (L13)."""
    second = DFlash2Config(conv_kernel_size=2, conv_group_size=4, selector_rank=3, selector_top_k=6)
    model = BlockDrafter(replace(CONFIG, dflash2=second)).requires_grad_(False).double()
    for parameter in model.parameters():
        parameter.normal_(std=0.5)
    drafter = DFlashDrafter(model, target)
    sides = (PooledDrafts(PackedDrafter(drafter, clock=lambda: 0.0), 200), StatefulDrafts(drafter))
    lens = {0: 3, 1: 14, 2: 17, 3: 19, 4: 30}
    for side in sides:
        side.extend(
            [
                Extension(key, 32 * key, 0, (1,) * count, features_of(count, key))
                for key, count in lens.items()
            ]
        )
    for keys in ((0,), (0, 1), (1, 2, 3, 4), (3, 4), tuple(lens)):
        requests = [DraftRequest(key, 32 * key, lens[key], 7 + key, 5) for key in keys]
        pooled, stateful = (side.draft(requests) for side in sides)
        assert isinstance(pooled, list) and isinstance(stateful, list)
        for ours, theirs in zip(pooled, stateful, strict=True):
            assert type(ours) is type(theirs)
            for part, other in zip(ours, theirs, strict=True):
                if isinstance(part, Tensor) and isinstance(other, Tensor):
                    torch.testing.assert_close(part, other, atol=1e-9, rtol=0)


def test_forgotten_requests_leave_no_state(target: NativeTarget, drafter: DFlashDrafter) -> None:
    side, drafts = StatefulTarget(target, (), 1), StatefulDrafts(drafter)
    side.run([prompt(0, 0, 0, (5,), wants=False)])
    drafts.extend([Extension(0, 0, 0, (1,), features_of(1, 0))])
    for both in (side, drafts):
        both.forget(0)
        both.forget(7)
    with pytest.raises(KeyError):
        side.run([block(0, 0, 1, (5,))])
    with pytest.raises(KeyError):
        drafts.draft([DraftRequest(0, 0, 1, 5, 3)])
