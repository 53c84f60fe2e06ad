"""`Evaluations`: what is measured after which step, over all ranks, and ended early by a signal.

How is `evaluating.py`'s business; nothing is written here.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from blockdraft.training.batches.batch import Batch
from blockdraft.training.batches.layout import Layout
from blockdraft.training.config import EvalSection
from blockdraft.training.optim.ema import Ema
from blockdraft.training.ranks.distributed import Ranks, any_rank
from blockdraft.training.ranks.sharded import whole
from blockdraft.training.run.evaluating import Evaluator
from blockdraft.training.run.stopping import StopRequest
from blockdraft.training.run.watch import EvalReport
from blockdraft.training.simulate import DraftBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDrafter:
    """The drafter under training, as it is evaluated: with averaged weights where a run keeps
    them."""

    model: nn.Module
    ema: Ema | None
    draft: DraftBatch

    def averaged(self) -> AbstractContextManager[object]:
        return nullcontext() if self.ema is None else self.ema.swapped_in()

    def weights(self) -> dict[str, Tensor]:
        """Its tensors under their published names, whole, fp32, on the CPU. All ranks have to call
        it."""
        with self.averaged():
            return published(
                {
                    name: whole(parameter.detach()).cpu().clone()
                    for name, parameter in self.model.named_parameters()
                }
            )


class Evaluations:
    """The evaluations of a run of `total_steps`: at their intervals, and all of them at the end."""

    def __init__(
        self,
        evaluator: Evaluator,
        section: EvalSection,
        drafter: LiveDrafter,
        *,
        ranks: Ranks,
        total_steps: int,
    ) -> None:
        self._evaluator = evaluator
        self._drafter = drafter
        self._ranks = ranks
        self._total_steps = total_steps
        self._intervals = {
            "simulated": section.simulate_every,
            "decoded": section.decode_every,
        }

    def due(self, step: int) -> list[str]:
        """The kinds of evaluation that belong after `step`."""
        last = step == self._total_steps
        return [k for k, every in self._intervals.items() if every and (last or step % every == 0)]

    def run(self, step: int, stop: StopRequest) -> list[EvalReport] | None:
        """The reports of all that is due, empty but on the main rank; None when a signal ended it.

        All ranks have to call it.
        """
        reports: list[EvalReport] = []
        try:
            for kind in self.due(step):
                make = self._simulate if kind == "simulated" else self._decode
                report = make(step, stop)
                if report is not None and self._ranks.is_main:
                    reports.append(report)
        except _Interrupted:
            return None
        return reports

    def _simulate(self, step: int, stop: StopRequest) -> EvalReport | None:
        """Over the held-out answers; None without any. Ended between rows, where a process is
        alone: shards need all ranks for every row."""

        def draft(batch: Batch, layout: Layout) -> Int[Tensor, "blocks slots"]:
            if self._ranks.is_alone:
                _heed(stop)
            return self._drafter.draft(batch, layout)

        with self._drafter.averaged():
            report = self._evaluator.simulate(step, draft)
            # FSDP keeps what a forward gathered until a backward; the next step has other weights.
            for module in self._drafter.model.modules():
                if isinstance(module, FSDPModule):
                    module.reshard()
            return report

    def _decode(self, step: int, stop: StopRequest) -> EvalReport | None:
        """The prompts of the recipe: the main rank decodes, others wait. Ended between answers."""
        tensors = self._drafter.weights()
        report: EvalReport | None = None
        interrupted = False
        if self._ranks.is_main:
            try:
                report = self._evaluator.decode(step, tensors, lambda _: _heed(stop))
            except _Interrupted:
                interrupted = True
        if any_rank(interrupted, self._ranks):
            raise _Interrupted
        return report


class _Interrupted(Exception):
    """A signal came during an evaluation."""


def _heed(stop: StopRequest) -> None:
    if stop.requested:
        raise _Interrupted


def published(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of a BlockForward under the names of checkpoints: `LayerForward` holds the published
    layer as `layer`."""
    return {name.replace(".layer.", ".", 1): tensor for name, tensor in tensors.items()}
