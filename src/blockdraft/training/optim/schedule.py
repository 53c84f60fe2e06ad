"""The learning rate's course over a run: warm-up, then cosine, warm-up-stable-decay or constant.

Pure numbers; the optimizers apply the factor.
"""

import math
from dataclasses import dataclass
from typing import Literal

from blockdraft.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleConfig:
    """Shape of the course. Ratios are fractions of `total_steps`.

    `min_ratio` is the factor that "cosine" and "wsd" end at. `decay_ratio` and `decay` belong to
    "wsd": how long the decay at the end takes, and its form (1 - sqrt, or a straight line).
    A "wsd" run may be continued with more `total_steps` from any checkpoint before its decay, as
    if it had been planned that long: the factor before the decay depends on the warm-up only, so
    give `warmup_steps` there, which replaces `warmup_ratio`.
    """

    kind: Literal["cosine", "wsd", "constant"] = "cosine"
    total_steps: int
    warmup_ratio: float = 0.04
    warmup_steps: int | None = None
    min_ratio: float = 0.0
    decay_ratio: float = 0.2
    decay: Literal["sqrt", "linear"] = "sqrt"

    def __post_init__(self) -> None:
        if self.kind not in ("cosine", "wsd", "constant"):
            raise ConfigError(f"schedule is {self.kind!r}, expected cosine, wsd or constant")
        if self.decay not in ("sqrt", "linear"):
            raise ConfigError(f"decay is {self.decay!r}, expected sqrt or linear")
        if self.total_steps < 1:
            raise ConfigError(f"total_steps is {self.total_steps}, expected at least 1")
        for name in ("warmup_ratio", "min_ratio", "decay_ratio"):
            value: float = getattr(self, name)
            if not 0 <= value <= 1:
                raise ConfigError(f"{name} is {value}, expected 0 to 1")
        if self.warmup_steps is not None and self.warmup_steps < 0:
            raise ConfigError(f"warmup_steps is {self.warmup_steps}, expected at least 0")

    @property
    def num_warmup_steps(self) -> int:
        """Steps below the full rate at the start."""
        if self.warmup_steps is not None:
            return self.warmup_steps
        return round(self.total_steps * self.warmup_ratio)


def lr_factor(step: int, config: ScheduleConfig) -> float:
    """What the learning rate of step `step` (0-based) is multiplied with, in [0, 1].

    Warm-up is linear and never gives 0; steps past the end get the last step's factor.
    """
    warmup = config.num_warmup_steps
    if step < warmup:
        return (step + 1) / warmup
    if config.kind == "constant":
        return 1.0
    if config.kind == "cosine":
        done = _progress(step, warmup, config.total_steps)
        fraction = 0.5 * (1 + math.cos(math.pi * done))
    else:
        decay_steps = round(config.total_steps * config.decay_ratio)
        start = max(warmup, config.total_steps - decay_steps)
        done = _progress(step, start, config.total_steps)
        fraction = 1 - (math.sqrt(done) if config.decay == "sqrt" else done)
    return config.min_ratio + (1 - config.min_ratio) * fraction


def _progress(step: int, start: int, end: int) -> float:
    """How far `step` is from `start` (0) to the last step before `end` (1)."""
    if step < start:
        return 0.0
    if step >= end - 1:
        return 1.0
    return (step - start) / (end - 1 - start)
