"""How a training looks in a terminal: a bar with loss, drafted accuracy and speed; lines elsewhere.

It decides nothing about the training.
"""

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from blockdraft.training.run.watch import EvalReport, StepReport

SECONDS_BETWEEN_LINES = 30.0
STEPS_BEFORE_ESTIMATE = 20


class TrainingProgress:
    """A `Watch` on stderr. `measure_peak` gives the speed of large products, all ranks together; it
    is asked once, after the first step."""

    def __init__(
        self, measure_peak: Callable[[], float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._measure_peak = measure_peak
        self._peak: float | None = None
        self._clock = clock
        self._console = Console(stderr=True)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._said_at = clock() - SECONDS_BETWEEN_LINES
        self._seconds: list[float] = []

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=self._console,
            )
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, text: str) -> None:
        # Not markup: brackets in a text are its own.
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def stepped(self, report: StepReport) -> None:
        self._seconds.append(report.seconds)
        if self._bar is not None:
            self._show(self._bar, report)
        elif self._clock() - self._said_at >= SECONDS_BETWEEN_LINES:
            self._said_at = self._clock()
            self.say(f"step {report.step} of {report.total_steps}: {self.describe(report)}")
        if len(self._seconds) == STEPS_BEFORE_ESTIMATE:
            left = (report.total_steps - report.step) * sorted(self._seconds)[
                len(self._seconds) // 2
            ]
            self.say(
                f"about {duration(left)} for the {report.total_steps - report.step} steps left"
            )

    def evaluated(self, report: EvalReport) -> None:
        by_category = ", ".join(f"{n} {tau:.2f}" for n, tau in report.categories.items())
        rates = " ".join(f"{rate:.2f}" for rate in report.stats.acceptance_by_position)
        self.say(
            f"step {report.step}, {report.kind} tau {report.tau:.3f} ({by_category}); accepted by "
            f"position {rates}"
        )

    def saved(self, folder: Path) -> None:
        del folder

    def describe(self, report: StepReport) -> str:
        """One line of figures."""
        first, last = report.accuracy_by_position[0], report.accuracy_by_position[-1]
        if self._peak is None:
            self._peak = self._measure_peak()
        share = report.flops_per_second / self._peak
        return (
            f"loss {report.loss:.3f}, accuracy {first:.2f} .. {last:.2f}, "
            f"{report.slots_per_second:.0f} draft tokens/s, {share:.0%} of the measured peak"
        )

    def _show(self, bar: Progress, report: StepReport) -> None:
        if self._task is None:
            self._task = bar.add_task("", total=report.total_steps, completed=report.step)
        bar.update(self._task, completed=report.step, description=self.describe(report))


def duration(seconds: float) -> str:
    """Hours and minutes, or minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
