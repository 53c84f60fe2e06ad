"""`Reporter`: steps and evaluations to the metrics and to whoever watches, and kept for the record.

It measures nothing.
"""

from pathlib import Path

from blockdraft.training.run.metrics import Metrics
from blockdraft.training.run.watch import EvalReport, StepReport, Watch


class Reporter:
    """Used by the main rank only. `metrics` may be replaced once the run's folder is known."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.metrics = Metrics([])
        self.evaluations: list[EvalReport] = []
        """Those of this process, oldest first."""

    def stepped(self, report: StepReport) -> None:
        """One optimizer step was taken."""
        self.metrics.write(
            report.step,
            "train",
            {
                "epoch": report.epoch,
                "loss": report.loss,
                "lr": report.lr,
                "gradient_norm": report.gradient_norm,
                "accuracy_by_position": report.accuracy_by_position,
                "seconds": report.seconds,
                "tokens_per_second": report.tokens_per_second,
                "anchors_per_second": report.anchors_per_second,
                "slots_per_second": report.slots_per_second,
                "flops_per_second": report.flops_per_second,
            },
        )
        self._watch.stepped(report)

    def evaluated(self, report: EvalReport) -> None:
        """The weights were evaluated."""
        taus = {f"tau_{name}": tau for name, tau in report.categories.items()}
        self.metrics.write(
            report.step,
            report.kind,
            {
                "tau": report.tau,
                "acceptance_by_position": report.stats.acceptance_by_position,
                "seconds": report.seconds,
                **taus,
            },
        )
        self.evaluations.append(report)
        self._watch.evaluated(report)

    def saved(self, folder: Path) -> None:
        """A checkpoint was written."""
        self._watch.saved(folder)
