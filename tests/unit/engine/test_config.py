"""What a user may choose about an engine, and how many tokens fit."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.engine.config import (
    DEFAULT_CONTEXT,
    MEMORY_SHARE,
    PAGE_ROWS,
    Capacity,
    EngineConfig,
    plan_capacity,
    scheduler_config,
)
from blockdraft.errors import ConfigError


def plan(config: EngineConfig, **changes: int | None) -> Capacity:
    facts: dict[str, int | None] = {"context_limit": None, "block": 8, "free": 1 << 40, **changes}
    block, free = facts["block"], facts["free"]
    assert block is not None and free is not None
    return plan_capacity(
        config,
        context_limit=facts["context_limit"],
        block_size=block,
        target_bytes_per_token=100,
        drafter_bytes_per_token=20,
        free_bytes=free,
    )


def test_settings_out_of_range() -> None:
    with pytest.raises(ConfigError, match="--slots is 0"):
        EngineConfig(slots=0)
    with pytest.raises(ConfigError, match="--max-context is 1"):
        EngineConfig(max_context=1)
    with pytest.raises(ConfigError, match="--kv-memory is 0"):
        EngineConfig(kv_memory=0)


def test_defaults_come_from_the_machine_and_the_target() -> None:
    config = EngineConfig()
    assert plan(config).max_context == DEFAULT_CONTEXT
    assert plan(config, context_limit=2048).max_context == 2048
    assert plan(replace(config, max_context=100)).max_context == 100
    # All slots full is the most that can be used; the rest of the memory stays free.
    full = plan(replace(config, slots=2, max_context=100))
    assert full.num_rows == 2 * (100 + 8 + PAGE_ROWS) // PAGE_ROWS * PAGE_ROWS
    small = plan(config, free=240_000)
    assert small.num_rows == int(240_000 * MEMORY_SHARE) // 120 // PAGE_ROWS * PAGE_ROWS
    assert small.bytes_per_token == 120 and small.num_bytes == 120 * small.num_rows


def test_no_request_may_be_longer_than_the_memory() -> None:
    capacity = plan(EngineConfig(kv_memory=120 * 160))
    assert capacity.num_rows == 160 and capacity.max_context == 160 - 8


def test_too_little_memory_and_too_long_a_context() -> None:
    with pytest.raises(ConfigError, match=r"0\.\d+ MB .* hold 48 tokens \(120 bytes each\).*raise"):
        plan(EngineConfig(kv_memory=120 * 60))
    with pytest.raises(ConfigError, match=r"--max-context 300 is more than the 200 tokens"):
        plan(EngineConfig(max_context=300), context_limit=200)


@given(
    slots=st.integers(1, 64),
    max_context=st.one_of(st.none(), st.integers(2, 5000)),
    kv_memory=st.one_of(st.none(), st.integers(1, 10**7)),
    limit=st.one_of(st.none(), st.integers(2, 5000)),
    block=st.integers(1, 64),
    free=st.integers(0, 10**8),
)
def test_every_capacity_makes_a_scheduler_that_can_serve(
    slots: int,
    max_context: int | None,
    kv_memory: int | None,
    limit: int | None,
    block: int,
    free: int,
) -> None:
    config = EngineConfig(slots=slots, max_context=max_context, kv_memory=kv_memory)
    try:
        capacity = plan(config, context_limit=limit, block=block, free=free)
    except ConfigError:
        return
    assert capacity.num_rows % PAGE_ROWS == 0
    assert capacity.num_bytes <= (free * MEMORY_SHARE if kv_memory is None else kv_memory)
    assert 2 <= capacity.max_context <= min(max_context or 10**9, limit or 10**9)
    assert capacity.max_context + block <= capacity.num_rows
    made = scheduler_config(config, capacity, block_size=block, can_copy=True)
    assert made.num_slots == slots and made.rows_ahead == block and made.reuse_prefixes
    assert not scheduler_config(config, capacity, block_size=block, can_copy=False).reuse_prefixes
