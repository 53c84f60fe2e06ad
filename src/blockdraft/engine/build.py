"""`build_engine`: sides, scheduler and width control for a target and a drafter that are loaded.

It chooses between pooled and stateful sides and measures costs; decoding is in `engine.py`.
"""

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import NamedTuple, Protocol

import torch

from blockdraft.decoding.interfaces import Drafter, TargetModel
from blockdraft.decoding.text import DecodeText
from blockdraft.drafter.dflash import DFlashDrafter
from blockdraft.engine.alarm import AcceptanceAlarm
from blockdraft.engine.calibrate import Limits, measure_costs
from blockdraft.engine.config import Capacity, EngineConfig, plan_capacity, scheduler_config
from blockdraft.engine.cost_cache import cost_file, read_costs, write_costs
from blockdraft.engine.costs import CostModel
from blockdraft.engine.engine import Engine, EngineParts
from blockdraft.engine.memory import free_memory
from blockdraft.engine.pooled import PooledDrafts, PooledTarget
from blockdraft.engine.scheduler import Scheduler
from blockdraft.engine.sides import DraftSide, TargetSide
from blockdraft.engine.stateful import StatefulDrafts, StatefulTarget
from blockdraft.engine.width import StepOutcome, WidthController
from blockdraft.errors import ConfigError
from blockdraft.native.drafting import PackedDrafter
from blockdraft.native.target import NativeTarget
from blockdraft.target.hf import HFTarget

Report = Callable[[str], None]


class LoadedTarget(TargetModel, Protocol):
    """A target whose dtype and device are known."""

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def device(self) -> torch.device: ...


@dataclass(frozen=True, slots=True)
class BuiltEngine:
    """An engine with what the banner says about it."""

    engine: Engine
    capacity: Capacity
    batches: bool
    sides: "Sides"

    @property
    def banner(self) -> str:
        """One line on memory and batching."""
        c = self.capacity
        batching = "" if self.batches else "; requests take turns, so batching brings no gain"
        return (
            f"{c.slots} slots, {c.max_context} tokens a request; {c.num_rows} tokens fit in "
            f"{c.num_bytes / 1e6:.0f} MB ({c.target_bytes_per_token} bytes a token for the target, "
            f"{c.drafter_bytes_per_token} for the drafter){batching}"
        )


def fast_drafter(target: TargetModel, drafter: Drafter, *, takes: bool = False) -> Drafter:
    """The packed form of a block drafter beside a native target; other drafters as they are.

    `takes`: the drafter given is nobody else's, so its own copy of the weights is released.
    """
    if not (isinstance(target, NativeTarget) and isinstance(drafter, DFlashDrafter)):
        return drafter
    packed = PackedDrafter(drafter, clock=time.perf_counter)
    if takes:
        drafter.release_weights()
    return packed


def build_engine(
    target: LoadedTarget,
    drafter: Drafter,
    config: EngineConfig | None = None,
    *,
    decode_text: DecodeText | None = None,
    report: Report | None = None,
    observe: Callable[[StepOutcome], None] | None = None,
) -> BuiltEngine:
    """An engine over loaded models. Raises ConfigError when memory or settings don't allow it.

    `report` gets a line when costs have to be measured first, `observe` every step that decoded.
    """
    config = config or EngineConfig()
    drafter = fast_drafter(target, drafter)
    speculates = drafter.block_size > 1 and config.width.kind != "off"
    block_size = drafter.block_size if speculates else 1
    _check_pass_rows(pass_rows(target), min(block_size, config.width.width or block_size))
    pooled = isinstance(target, NativeTarget) and target.batch_invariant is None
    capacity = plan_capacity(
        config,
        context_limit=target.spec.max_context_len,
        block_size=block_size,
        target_bytes_per_token=_target_bytes(target),
        drafter_bytes_per_token=_drafter_bytes(drafter) if speculates else 0,
        free_bytes=free_memory(target.device),
    )
    if config.compiled and not pooled:
        raise ConfigError("--compile needs the native engine without --batch-invariant; drop one")
    sides = _make_sides(
        target, drafter if speculates else None, capacity, pooled=pooled, compiled=config.compiled
    )
    costs = None
    if config.width.kind == "auto" and speculates:
        costs = _known_costs(
            target, drafter, sides, capacity, compiled=config.compiled, report=report
        )
    limits = scheduler_config(config, capacity, block_size=block_size, can_copy=sides.can_copy)
    engine = Engine(
        EngineParts(
            spec=target.spec,
            target=sides.target,
            drafts=sides.drafts,
            scheduler=Scheduler(limits),
            reuses=limits.reuse_prefixes,
            controller=WidthController(config.width, block_size, costs),
            alarm=AcceptanceAlarm(_recorded_tau(config, drafter), block_size),
            decode_text=decode_text,
            observe=observe,
        )
    )
    return BuiltEngine(engine, capacity, sides.target.can_batch, sides)


class Sides(NamedTuple):
    """A target side and the draft side beside it."""

    target: TargetSide
    drafts: DraftSide | None

    @property
    def can_copy(self) -> bool:
        """Whether both can copy rows: what one of them lacks can't be reused."""
        return self.target.can_copy and (self.drafts is None or self.drafts.can_copy)


def _make_sides(
    target: LoadedTarget,
    drafter: Drafter | None,
    capacity: Capacity,
    *,
    pooled: bool,
    compiled: bool,
) -> Sides:
    taps = () if drafter is None else drafter.taps
    try:
        if pooled and isinstance(target, NativeTarget):
            side: TargetSide = PooledTarget(
                target.model, capacity.num_rows, taps, compiled=compiled
            )
        else:
            side = StatefulTarget(
                target,
                taps,
                capacity.target_bytes_per_token,
                decodes_again=isinstance(target, HFTarget) and target.traits.recurrent,
            )
        if drafter is None:
            return Sides(side, None)
        if pooled and isinstance(drafter, PackedDrafter):
            return Sides(side, PooledDrafts(drafter, capacity.num_rows))
        return Sides(side, StatefulDrafts(drafter, capacity.drafter_bytes_per_token))
    except (RuntimeError, MemoryError) as error:
        raise ConfigError(
            f"{capacity.num_bytes / 1e6:.0f} MB for keys and values can't be had on "
            f"{target.device}; lower --kv-memory, --slots or --max-context"
        ) from error


def pass_rows(target: LoadedTarget) -> int | None:
    """The rows that every verification is padded to, where passes are batch-invariant."""
    return target.batch_invariant if isinstance(target, NativeTarget | HFTarget) else None


def _check_pass_rows(pass_rows: int | None, widest: int) -> None:
    if pass_rows is not None and widest > pass_rows:
        raise ConfigError(
            f"blocks of {widest} tokens do not fit batch-invariant passes of {pass_rows} rows; "
            f"load the target with batch_invariant {widest}, or use --width fixed:{pass_rows}"
        )


def _target_bytes(target: LoadedTarget) -> int:
    if isinstance(target, NativeTarget):
        return target.model.config.num_key_values * target.dtype.itemsize
    # What is not known of other models is bounded by full multi-head attention.
    return 2 * target.spec.num_layers * target.spec.hidden_size * target.dtype.itemsize


def _drafter_bytes(drafter: Drafter) -> int:
    if isinstance(drafter, PackedDrafter):
        config, itemsize = drafter.config, drafter.dtype.itemsize
    elif isinstance(drafter, DFlashDrafter):
        config, itemsize = drafter.model.config, drafter.model.dtype.itemsize
    else:
        return 0
    return 2 * config.num_layers * config.num_kv_heads * config.head_dim * itemsize


def _recorded_tau(config: EngineConfig, drafter: Drafter) -> float | None:
    """What the user says, else what the checkpoint records (made for its own block size)."""
    if config.recorded_tau is not None:
        return config.recorded_tau
    if isinstance(drafter, PackedDrafter):
        drafter = drafter.drafter
    return drafter.recorded_tau if isinstance(drafter, DFlashDrafter) else None


def clock_for(device: torch.device) -> Callable[[], float]:
    """A clock that waits until the device has done what was asked of it."""
    if device.type != "cuda":
        return time.perf_counter

    def clock() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return clock


def _shape(drafter: Drafter) -> str:
    """What of a drafter decides its cost."""
    return repr(drafter.config) if isinstance(drafter, PackedDrafter) else repr(drafter.taps)


def _known_costs(
    target: LoadedTarget,
    drafter: Drafter,
    sides: Sides,
    capacity: Capacity,
    *,
    compiled: bool,
    report: Report | None,
) -> CostModel:
    """Costs from the cache, or measured now."""
    facts = {
        "target": target.spec.name,
        "kind": type(sides.target).__name__,
        "dtype": str(target.dtype),
        "device": str(target.device),
        "pass_rows": str(pass_rows(target)),
        "quantize": str(target.quantize if isinstance(target, NativeTarget) else None),
        "drafter": f"{type(drafter).__name__} {drafter.block_size} {_shape(drafter)}",
        "compiled": str(compiled),
        "slots": str(capacity.slots),
        "max_context": str(capacity.max_context),
        "threads": str(torch.get_num_threads()),
        "machine": f"{platform.node()} {torch.backends.cpu.get_cpu_capability()}",
        "torch": torch.__version__,
        "blockdraft": version("blockdraft"),
    }
    path = cost_file(facts)
    known = read_costs(path)
    if known is not None:
        return known
    if report is not None:
        report("measuring what passes cost on this machine, once")
    costs = measure_costs(
        sides.target,
        sides.drafts,
        Limits(
            num_slots=capacity.slots,
            num_rows=capacity.num_rows,
            max_context=capacity.max_context,
            pass_rows=pass_rows(target),
        ),
        feature_size=len(drafter.taps) * target.spec.hidden_size,
        dtype=target.dtype,
        clock=clock_for(target.device),
    )
    write_costs(path, costs)
    return costs
