"""`EngineConfig`: what a user may choose about an engine, with defaults from free memory.

Values and arithmetic; reading the machine's memory is in `memory.py`.
"""

from dataclasses import dataclass, field

from blockdraft.engine.plan import SchedulerConfig
from blockdraft.engine.width_mode import WidthMode
from blockdraft.errors import ConfigError

DEFAULT_SLOTS = 16
DEFAULT_CONTEXT = 8192
"""Tokens of one request, unless the target's own limit is lower or the user asks for more."""

MEMORY_SHARE = 0.5
"""Of the memory that is free after the models are loaded."""

PAGE_ROWS = 16
PREFILL_ROWS = 64
"""Prompt rows beside decoding rows: about what a pass takes in without getting much slower."""

PREFILL_ROWS_ALONE = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Limits and policies; None = chosen from the models and the machine.

    `compiled` runs verification through torch.compile (native engine only). `kv_memory` is bytes
    for keys and values of target and drafter together. `recorded_tau` is the acceptance length
    that the drafter was measured at, for the alarm. `prefill_rows` bounds how much of a prompt a
    step takes in while others decode: few keep their pauses short, many bring the first token
    sooner.
    """

    slots: int = DEFAULT_SLOTS
    max_context: int | None = None
    kv_memory: int | None = None
    width: WidthMode = field(default_factory=WidthMode)
    reuse_prefixes: bool = True
    compiled: bool = False
    recorded_tau: float | None = None
    prefill_rows: int = PREFILL_ROWS

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise ConfigError(f"--slots is {self.slots}; give at least 1 request at a time")
        if self.max_context is not None and self.max_context < 2:
            raise ConfigError(
                f"--max-context is {self.max_context}; give at least 2 (a prompt and an answer)"
            )
        if self.prefill_rows < 1:
            raise ConfigError(
                f"--prefill-chunk is {self.prefill_rows}; give at least 1 prompt token a step"
            )
        if self.kv_memory is not None and self.kv_memory < 1:
            raise ConfigError(f"--kv-memory is {self.kv_memory} bytes; give some, like 2GB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What fits, in numbers that the banner prints."""

    slots: int
    max_context: int
    num_rows: int
    target_bytes_per_token: int
    drafter_bytes_per_token: int

    @property
    def bytes_per_token(self) -> int:
        return self.target_bytes_per_token + self.drafter_bytes_per_token

    @property
    def num_bytes(self) -> int:
        return self.num_rows * self.bytes_per_token


def plan_capacity(
    config: EngineConfig,
    *,
    context_limit: int | None,
    block_size: int,
    target_bytes_per_token: int,
    drafter_bytes_per_token: int,
    free_bytes: int,
) -> Capacity:
    """Rows and context for `free_bytes` of memory. Raises ConfigError when too little fits.

    All slots together never get more rows than they can use.
    """
    per_token = max(1, target_bytes_per_token + drafter_bytes_per_token)
    max_context = config.max_context or DEFAULT_CONTEXT
    if context_limit is not None:
        if config.max_context is not None and config.max_context > context_limit:
            raise ConfigError(
                f"--max-context {config.max_context} is more than the {context_limit} tokens that "
                "the target was made for; lower it"
            )
        max_context = min(max_context, context_limit)
    budget = int(free_bytes * MEMORY_SHARE) if config.kv_memory is None else config.kv_memory
    least = max(4 * PAGE_ROWS, 2 * block_size + PAGE_ROWS)
    most_useful = max(least, config.slots * (max_context + block_size + PAGE_ROWS))
    num_rows = min(budget // per_token, most_useful) // PAGE_ROWS * PAGE_ROWS
    if num_rows < least:
        needed = f"{least * per_token / 1e6:.3f}MB"
        raise ConfigError(
            f"{budget / 1e6:.3f} MB for keys and values hold {num_rows} tokens ({per_token} bytes "
            f"each), and at least {least} are needed: raise --kv-memory to {needed} or more"
        )
    return Capacity(
        slots=config.slots,
        max_context=min(max_context, num_rows - block_size),
        num_rows=num_rows,
        target_bytes_per_token=target_bytes_per_token,
        drafter_bytes_per_token=drafter_bytes_per_token,
    )


def scheduler_config(
    config: EngineConfig, capacity: Capacity, *, block_size: int, can_copy: bool
) -> SchedulerConfig:
    """The scheduler's limits; prefixes are reused only where rows can be copied."""
    return SchedulerConfig(
        num_slots=capacity.slots,
        num_rows=capacity.num_rows,
        max_context=capacity.max_context,
        page_rows=PAGE_ROWS,
        rows_ahead=block_size,
        prefill_rows=config.prefill_rows,
        prefill_rows_alone=max(config.prefill_rows, PREFILL_ROWS_ALONE),
        reuse_prefixes=config.reuse_prefixes and can_copy,
    )
