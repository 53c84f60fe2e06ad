"""The cost of drafting against its length: known costs come out, and each line says what it is."""

from dataclasses import dataclass
from typing import cast

import pytest
import torch
from tiny_bench import plan, run_all

from blockdraft.bench.in_process.draft_costs import (
    LENGTHS,
    RANDOM_NAME,
    ROUNDS,
    Contender,
    measure_lengths,
    time_lengths,
)
from blockdraft.bench.in_process.pass_costs import costs_document
from blockdraft.drafter import BlockDrafter, DFlashDrafter, DrafterConfig
from blockdraft.drafter.eagle3_random import random_eagle3
from blockdraft.target import HFTarget
from blockdraft.testing.drafters import OracleDrafter
from blockdraft.testing.tiny import TinySize, tiny_target


@pytest.fixture(scope="module")
def target() -> HFTarget:
    return tiny_target(size=TinySize(num_layers=8), dtype=torch.float32)


def block_drafter(target: HFTarget, block_size: int) -> DFlashDrafter:
    config = DrafterConfig(
        hidden_size=target.spec.hidden_size,
        intermediate_size=16,
        num_layers=1,
        num_heads=2,
        num_kv_heads=1,
        head_dim=8,
        rms_norm_eps=1e-6,
        vocab_size=target.spec.vocab_size,
        block_size=block_size,
        mask_token_id=4,
        taps=(1, 3),
        layer_types=("full_attention",),
        max_position_embeddings=256,
    )
    return DFlashDrafter(BlockDrafter(config).requires_grad_(False), target)


@dataclass
class Watch:
    """A clock that only moves when something is drafted."""

    now: float = 0.0

    def clock(self) -> float:
        return self.now

    def contender(self, name: str, base: float, per_token: float, **more: object) -> Contender:
        def draft(tokens: int) -> int:
            self.now += base + per_token * tokens
            return tokens

        longer = f"{name}, longer" if more.get("is_block") else None
        return Contender(
            name=name, kind="block", weights="trained", most=7, longer_name=longer, draft=draft
        )


def test_known_costs_come_out() -> None:
    watch = Watch()
    block = watch.contender("block", 0.01, 0.0, is_block=True)
    chain = watch.contender("chain", 0.0, 0.005)
    found = {
        (one.name, one.tokens): one.seconds for one in time_lengths([block, chain], watch.clock)
    }
    within = [tokens for tokens in LENGTHS if tokens <= 7]
    assert found == pytest.approx(
        {("block", tokens): 0.01 for tokens in within}
        | {("block, longer", tokens): 0.01 for tokens in LENGTHS if tokens > 7}
        | {("chain", tokens): 0.005 * tokens for tokens in within}
    )


def test_a_slow_machine_ends_after_the_least_rounds() -> None:
    for base, rounds in ((0.001, 1 + ROUNDS), (10.0, 1 + 3)):
        watch = Watch()
        time_lengths([watch.contender("one", base, 0.0)], watch.clock)
        assert watch.now == pytest.approx(base * rounds * sum(tokens <= 7 for tokens in LENGTHS))


def test_a_draft_that_was_cut_is_not_counted() -> None:
    short = Contender(
        name="short", kind="block", weights="trained", most=15, longer_name=None, draft=min_of_4
    )
    assert {one.tokens for one in time_lengths([short], Watch().clock)} == {1, 2, 3, 4}


def min_of_4(tokens: int) -> int:
    return min(tokens, 4)


def test_a_block_drafter_meets_a_random_chain(target: HFTarget) -> None:
    found = measure_lengths(target, [("mine", block_drafter(target, 8))], 20)
    lines = {(one.name, one.kind, one.weights) for one in found}
    assert lines == {
        ("mine", "block", "trained"),
        ("mine, beyond its block of 8", "block", "trained"),
        (RANDOM_NAME, "autoregressive", "random"),
    }
    chain = [one.tokens for one in found if one.name == RANDOM_NAME]
    assert tuple(chain) == LENGTHS
    assert found[0].name == "mine"
    assert all(one.requests == 1 and one.seconds > 0 for one in found)


def test_a_chain_of_a_checkpoint_takes_the_place_of_the_random_one(target: HFTarget) -> None:
    drafters = [("mine", block_drafter(target, 4)), ("chain", random_eagle3(target, 1))]
    found = measure_lengths(target, drafters, 20)
    assert {one.weights for one in found} == {"trained"}
    assert max(one.tokens for one in found if one.name == "chain") == 7


def test_other_drafters_have_no_lengths(target: HFTarget) -> None:
    assert measure_lengths(target, [("oracle", OracleDrafter(target, 4))], 20) == ()


def test_costs_of_a_bench_hold_both_lines(target: HFTarget) -> None:
    bench = run_all(target, plan(block_drafter(target, 4)))
    assert bench.costs is not None
    document = costs_document(bench.costs, None)
    draft = cast("list[dict[str, object]]", document["draft"])
    assert {(one["name"], one["kind"], one["weights"]) for one in draft} == {
        ("made", "block", "trained"),
        ("made, beyond its block of 4", "block", "trained"),
        (RANDOM_NAME, "autoregressive", "random"),
    }
    by_requests = cast("list[dict[str, object]]", document["draft_by_requests"])
    assert {one["name"] for one in by_requests} == {"made"}


def test_an_eagle_3_lane_answers_as_plain_decoding_does(target: HFTarget) -> None:
    bench = run_all(target, plan(random_eagle3(target, 3)))
    names = [(lane.info.name, lane.info.kind) for lane in bench.plan.lanes]
    assert names[2] == ("eagle-3 fixed:4", "autoregressive")
    answers = {tuple(record.token_ids for record in level.records) for level in bench.levels}
    assert len(answers) == 1
