"""`Watch`: what a training tells whoever looks at it. Reports only; nothing is drawn here."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from blockdraft.decoding import AcceptanceStats
from blockdraft.training.run.step import StepSums


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One optimizer step. Rates are per second of the whole step, over all ranks."""

    step: int
    total_steps: int
    epoch: int
    loss: float
    lr: float
    gradient_norm: float
    accuracy_by_position: tuple[float, ...]
    seconds: float
    tokens_per_second: float
    anchors_per_second: float
    slots_per_second: float
    flops_per_second: float

    @classmethod
    def of(
        cls,
        sums: StepSums,
        *,
        step: int,
        total_steps: int,
        epoch: int,
        lr: float,
        gradient_norm: float,
        seconds: float,
    ) -> Self:
        """The report of a step that took `seconds` and whose sums over all ranks are `sums`."""
        return cls(
            step=step,
            total_steps=total_steps,
            epoch=epoch,
            loss=sums.loss,
            lr=lr,
            gradient_norm=gradient_norm,
            accuracy_by_position=tuple(sums.accuracy_by_position),
            seconds=seconds,
            tokens_per_second=sums.num_tokens / seconds,
            anchors_per_second=sums.num_anchors / seconds,
            slots_per_second=sums.num_slots / seconds,
            flops_per_second=sums.flops / seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalReport:
    """An evaluation after `step` steps.

    `kind` simulated = walks over held-out answers; decoded = real decoding of prompts. `categories`
    holds the acceptance length of each category of answers.
    """

    step: int
    kind: str
    stats: AcceptanceStats
    categories: Mapping[str, float]
    seconds: float

    @property
    def tau(self) -> float:
        return self.stats.tau or 1.0


class Watch(Protocol):
    """Someone who is told how a run goes."""

    def say(self, text: str) -> None: ...
    def stepped(self, report: StepReport) -> None: ...
    def evaluated(self, report: EvalReport) -> None: ...
    def saved(self, folder: Path) -> None: ...


class NoWatch:
    """Nobody looks."""

    def say(self, text: str) -> None:
        del text

    def stepped(self, report: StepReport) -> None:
        del report

    def evaluated(self, report: EvalReport) -> None:
        del report

    def saved(self, folder: Path) -> None:
        del folder
