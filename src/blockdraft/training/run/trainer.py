"""`Trainer`: the loop. Rows in, steps taken, metrics told, checkpoints and evaluations on time.

What a step computes is `step.py`, what is saved `state.py`, how ranks share a model
`ranks/parallel.py`.
"""

import signal
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from blockdraft.errors import ConfigError
from blockdraft.target.fingerprint import fingerprint_of
from blockdraft.training.batches.packing import PackedRow, make_batch
from blockdraft.training.batches.row_stream import Place, RowStream, count_rows
from blockdraft.training.batches.samples import digest_samples
from blockdraft.training.config import RunConfig
from blockdraft.training.forward import BlockForward
from blockdraft.training.optim.ema import Ema
from blockdraft.training.optim.optimizers import build_optimizers
from blockdraft.training.optim.schedule import lr_factor
from blockdraft.training.ranks.distributed import Ranks, all_reduce_sums, any_rank, barrier
from blockdraft.training.ranks.parallel import parallelize
from blockdraft.training.run.checkpoints import Checkpoints
from blockdraft.training.run.evaluating import Evaluator
from blockdraft.training.run.evaluations import Evaluations, LiveDrafter, published
from blockdraft.training.run.failures import (
    check_gradient_finite,
    check_loss_finite,
    is_out_of_memory,
    out_of_memory,
)
from blockdraft.training.run.reporting import Reporter
from blockdraft.training.run.setup import Training
from blockdraft.training.run.state import (
    Progress,
    TrainedParts,
    capture,
    check_settings,
    restore,
    share,
)
from blockdraft.training.run.step import BlockInputs, StepParts, StepSums
from blockdraft.training.run.stopping import StopRequest
from blockdraft.training.run.watch import StepReport, Watch

FREE_SETTINGS = frozenset(
    {
        "eval",
        "data.accept_other_target",
        "data.features",
        "run.save_every",
        "run.keep_last",
        "run.keep_best",
        "run.tensorboard",
        "run.wandb_project",
        "run.recompute",
        "run.steps",
        "run.epochs",
        "optimizer.lr",
        "optimizer.muon_lr",
        "schedule",
        "run.sharding",
    }
)
"""What may change between the start of a run and its resuming; the rest would break its order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run ended: steps done of those planned, and whether a signal ended it early."""

    step: int
    total_steps: int
    stopped_by: str | None


class Trainer:
    """One training in one folder, from its newest good checkpoint on."""

    def __init__(
        self,
        training: Training,
        config: RunConfig,
        folder: Path,
        *,
        ranks: Ranks,
        watch: Watch,
    ) -> None:
        """Raises ConfigError for settings that don't fit together or differ from the run's own."""
        if config.packing.rows_per_step % ranks.world_size:
            raise ConfigError(
                f"packing.rows_per_step {config.packing.rows_per_step} can't be shared by "
                f"{ranks.world_size} processes; make it a multiple"
            )
        self._training = training
        self._config = config
        self._ranks = ranks
        self.reporter = Reporter(watch)
        run, samples = config.run, training.data.train
        forward = BlockForward(training.drafter, recompute=run.recompute).to(ranks.device)
        dtype = torch.bfloat16 if run.precision == "bfloat16" else None
        mode = "none" if ranks.is_alone else run.sharding
        self._parallel = parallelize(forward, ranks, mode, param_dtype=dtype)
        self._optimizers = build_optimizers(self._parallel.model, config.optimizer, ranks)
        self._ema = None if run.ema is None else Ema(self._parallel.model, run.ema)
        self._parts = StepParts(
            self._parallel.model,
            training.drafter.config,
            training.source,
            BlockInputs(training.target, training.drafter.config.mask_token_id),
            training.objective,
            run.precision,
            ranks.device,
        )
        self.checkpoints = Checkpoints(folder, keep_last=run.keep_last, keep_best=run.keep_best)
        self.total_steps = run.steps or max(
            1,
            count_rows(
                samples, config.packing, config.anchors, seed=run.seed, num_epochs=run.epochs
            )
            // config.packing.rows_per_step,
        )
        self._schedule = config.schedule.over(self.total_steps)
        self._drafter = LiveDrafter(
            model=self._parallel.model, ema=self._ema, draft=self._parts.draft
        )
        self._evaluations = Evaluations(
            Evaluator(training, config.eval, config.packing),
            config.eval,
            self._drafter,
            ranks=ranks,
            total_steps=self.total_steps,
        )
        self.step = 0
        self._saved_step: int | None = None
        self._stream = self._open_stream(Place(0, 0))

    @property
    def device(self) -> torch.device:
        """Where this rank trains."""
        return self._ranks.device

    def resume(self) -> int:
        """Go on from the newest good checkpoint; returns its step, 0 without one."""
        if self._ranks.is_main:
            self.checkpoints.clear_leftovers()
        snapshot = share(self.checkpoints.load_latest, self._ranks)
        if snapshot is None:
            return 0
        check_settings(snapshot.settings, self._settings(), FREE_SETTINGS)
        restore(self._trained(), snapshot)
        self.step = self._saved_step = snapshot.progress.step
        self._stream = self._open_stream(Place(snapshot.progress.epoch, snapshot.progress.position))
        return self.step

    def run(self, stop: StopRequest) -> RunResult:
        """Train to the end, or until a signal asks to stop: then the state is saved first."""
        # A step may have been saved and its evaluation not finished.
        owes = self.step > 0 and any_rank(self._owes_evaluation(), self._ranks)
        if owes and not self._evaluate_when_due(stop):
            return self._stopped(stop)
        while self.step < self.total_steps:
            self._take_step()
            # Saved before it is evaluated, which may take long: what kills the run meanwhile takes
            # no step with it, and what is owed is measured when the run goes on.
            stopping = any_rank(stop.requested, self._ranks)
            due = self._is_due(self._config.run.save_every) or self.step == self.total_steps
            if stopping or due or self._evaluations.due(self.step):
                self.save()
            if stopping or not self._evaluate_when_due(stop):
                return self._stopped(stop)
        return RunResult(step=self.step, total_steps=self.total_steps, stopped_by=None)

    def _stopped(self, stop: StopRequest) -> RunResult:
        # The signal may have reached another rank only.
        name = stop.signal_name or signal.SIGTERM.name
        return RunResult(step=self.step, total_steps=self.total_steps, stopped_by=name)

    def save(self) -> None:
        """Write a checkpoint of the state after the last step, unless there is one already."""
        if self._saved_step == self.step:
            return  # writing it again would lose its score
        progress = Progress(
            step=self.step, epoch=self._stream.place.epoch, position=self._stream.place.position
        )
        snapshot = capture(self._trained(), progress, self._settings())
        if self._ranks.is_main:
            self.reporter.saved(self.checkpoints.save(snapshot))
        self._saved_step = self.step
        barrier(self._ranks)

    def weights(self) -> dict[str, Tensor]:
        """The drafter's tensors under their published names, whole, fp32, on the CPU: averaged
        ones where a run keeps an average. All ranks have to call it."""
        return self._drafter.weights()

    def best_weights(self) -> tuple[int, dict[str, Tensor]]:
        """The step with the best evaluation (the newest without any) and its tensors, read from
        its checkpoint; only the main rank has the files."""
        snapshot = self.checkpoints.load_best()
        averages = dict(snapshot.ema or snapshot.model)
        # The state of an average holds more than the averages.
        tensors = {name: averages.get(name, tensor) for name, tensor in snapshot.model.items()}
        return snapshot.progress.step, published(tensors)

    def _take_step(self) -> None:
        started = time.perf_counter()
        rows = self._stream.take(self._config.packing.rows_per_step)
        mine = rows[self._ranks.rank :: self._ranks.world_size]
        factor = lr_factor(self.step, self._schedule)
        self._optimizers.set_lr_factor(factor)
        sums: StepSums | None = None
        for index, row in enumerate(mine):
            with self._parallel.micro_batch(last=index == len(mine) - 1):
                added = self._train_row(row)
            sums = added if sums is None else sums + added
        assert sums is not None
        sums = StepSums(all_reduce_sums(sums.values, self._ranks))
        members = [self._training.data.train.row_of(i) for row in rows for i in row.members]
        norm = 0.0
        if sums.weight > 0:
            norm = self._parallel.finish_gradients(sums.weight, self._config.run.clip)
            check_gradient_finite(norm, members, self.step)
            self._optimizers.step()
        self._optimizers.zero_grad()
        if self._ema is not None:
            self._ema.update()
        self.step += 1
        if self._ranks.is_main:
            self.reporter.stepped(
                StepReport.of(
                    sums,
                    step=self.step,
                    total_steps=self.total_steps,
                    epoch=rows[-1].epoch,
                    lr=self._optimizers.lr,
                    gradient_norm=norm,
                    seconds=time.perf_counter() - started,
                )
            )

    def _train_row(self, row: PackedRow) -> StepSums:
        config, samples = self._config, self._training.data.train
        batch = make_batch(
            row,
            samples,
            config.anchors,
            self._training.drafter.config.block_size,
            seed=config.run.seed,
        )
        members = [sample.row for sample in batch.samples]
        try:
            sums = self._parts.train(batch)
        except (RuntimeError, MemoryError) as error:
            if is_out_of_memory(error):
                raise out_of_memory(
                    self.step, members, batch.num_tokens, batch.num_anchors
                ) from error
            raise
        check_loss_finite(float(sums.values[0]), members, self.step)
        return sums

    def _evaluate_when_due(self, stop: StopRequest) -> bool:
        """Evaluate what is due after this step, which is saved already, and choose by it.

        False when a signal came meanwhile: what it ended is left to be done again as a whole.
        """
        if not self._evaluations.due(self.step):
            return True
        reports = self._evaluations.run(self.step, stop)
        if reports is None:
            return False
        if self._ranks.is_main:
            for report in reports:
                self.reporter.evaluated(report)
            chosen = [report.tau for report in reports if report.kind == self._score_kind]
            self.checkpoints.set_score(self.step, chosen[0] if chosen else None)
        return self.step == self.total_steps or not any_rank(stop.requested, self._ranks)

    @property
    def _score_kind(self) -> str:
        """Which evaluations choose the best checkpoint: never of two kinds in one run."""
        simulates = self._config.eval.simulate_every and len(self._training.data.heldout)
        return "simulated" if simulates else "decoded"

    def _owes_evaluation(self) -> bool:
        if not self._ranks.is_main or not self._evaluations.due(self.step):
            return False
        return not self.checkpoints.is_evaluated(self.step)

    def _is_due(self, every: int) -> bool:
        return self.step % every == 0

    def _settings(self) -> dict[str, object]:
        """The recipe, and what tells its answers from others under the same name."""
        data = self._training.data
        return {
            **self._config.as_table(),
            "samples": digest_samples(data.train),
            "heldout_samples": digest_samples(data.heldout),
            "target_fingerprint": fingerprint_of(self._training.target),
        }

    def _trained(self) -> TrainedParts:
        return TrainedParts(
            model=self._parallel.model,
            optimizers=self._optimizers,
            ema=self._ema,
            ranks=self._ranks,
        )

    def _open_stream(self, place: Place) -> RowStream:
        config = self._config
        return RowStream(
            self._training.data.train,
            config.packing,
            config.anchors,
            seed=config.run.seed,
            place=place,
        )
