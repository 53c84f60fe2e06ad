"""One rank of the runs that test_distributed.py compares; started with torchrun's environment.

Usage: ranks_worker.py OUT_FOLDER. The main rank writes OUT_FOLDER/losses.json.
"""

import json
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from blockdraft.training.optim.ema import Ema
from blockdraft.training.optim.optimizers import OptimizerConfig, build_optimizers
from blockdraft.training.ranks.distributed import (
    Ranks,
    all_reduce_sums,
    any_rank,
    barrier,
    gather_rows,
    joined_ranks,
)
from blockdraft.training.ranks.parallel import Parallel, ParallelMode, parallelize
from blockdraft.training.run.checkpoints import Checkpoints
from blockdraft.training.run.state import Progress, TrainedParts, capture, restore, share

NUM_STEPS = 20
SAVED_STEP = 10
MICRO_BATCHES = 4
MAX_NORM = 0.5


class Block(nn.Module):
    """Odd sizes, so that shards are uneven."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(7)
        self.up = nn.Linear(7, 9)
        self.down = nn.Linear(9, 7, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        super().__init__()
        self.fc = nn.Linear(5, 7, bias=False)
        self.layers = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.LayerNorm(7)

    def forward(self, x: Tensor) -> Tensor:
        x = self.fc(x)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


@dataclass(frozen=True, slots=True)
class Setup:
    mode: ParallelMode
    optimizer: Literal["muon", "adamw"]

    @property
    def name(self) -> str:
        return f"{self.mode}-{self.optimizer}"


class Run:
    """A model in training, with all its parts; `seed` decides its initial weights."""

    def __init__(self, setup: Setup, ranks: Ranks, seed: int) -> None:
        self.parallel: Parallel = parallelize(Model(seed), ranks, setup.mode)
        model = self.parallel.model
        config = OptimizerConfig(name=setup.optimizer, lr=1e-2, muon_lr=1e-2, ns_dtype="float32")
        self.optimizers = build_optimizers(model, config, ranks)
        self.ema = Ema(model, 0.9)
        self.ranks = ranks
        self.parts = TrainedParts(
            model=model, optimizers=self.optimizers, ema=self.ema, ranks=ranks
        )

    def step(self, step: int) -> float:
        """One step over this rank's micro-batches; the loss over all of them."""
        self.optimizers.zero_grad()
        batches = list(self._batches(step))
        sums = torch.zeros(2)
        for idx, (inputs, labels, weights) in enumerate(batches):
            with self.parallel.micro_batch(last=idx == len(batches) - 1):
                errors = (self.parallel.model(inputs) - labels).square().mean(-1)
                loss = (errors * weights).sum()
                loss.backward()
            sums += torch.stack([loss.detach(), weights.sum()])
        total = all_reduce_sums(sums, self.ranks)
        self.optimizers.set_lr_factor(1 - step / 40)
        norm = self.parallel.finish_gradients(float(total[1]), MAX_NORM)
        assert norm > MAX_NORM, "clipping should be part of what is compared"
        self.optimizers.step()
        self.ema.update()
        torch.rand(1)  # so that the random state is another one at every step
        return float(total[0] / total[1])

    def _batches(self, step: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        for idx in range(MICRO_BATCHES):
            if idx % self.ranks.world_size == self.ranks.rank:
                draw = torch.Generator().manual_seed(step * MICRO_BATCHES + idx)
                rows = 3 + idx
                inputs = torch.randn(rows, 5, generator=draw)
                labels = 4 * torch.randn(rows, 7, generator=draw)
                yield inputs, labels, torch.rand(rows, generator=draw)


def save(run: Run, folder: Path, step: int) -> None:
    snapshot = capture(run.parts, Progress(step=step, epoch=0, position=step), {"lr": 0.01})
    if run.ranks.is_main:
        Checkpoints(folder, keep_last=5).save(snapshot)
    barrier(run.ranks)


def straight(setup: Setup, ranks: Ranks, folder: Path) -> list[float]:
    """All steps; snapshots in the middle and at the end."""
    # Each rank starts from other weights: the main rank's have to win.
    run = Run(setup, ranks, seed=7 * ranks.rank)
    losses: list[float] = []
    for step in range(NUM_STEPS):
        if step == SAVED_STEP:
            save(run, folder, step)
        losses.append(run.step(step))
    save(run, folder, NUM_STEPS)
    return losses


def resumed(setup: Setup, ranks: Ranks, folder: Path, into: Path) -> list[float]:
    """The second half again, from the snapshot in the middle and a model of other weights."""
    run = Run(setup, ranks, seed=123)
    snapshot = share(lambda: Checkpoints(folder).load(SAVED_STEP), ranks)
    assert snapshot is not None and asdict(snapshot.progress)["position"] == SAVED_STEP
    restore(run.parts, snapshot)
    losses = [run.step(step) for step in range(SAVED_STEP, NUM_STEPS)]
    save(run, into, NUM_STEPS)
    return losses


def check_talk(ranks: Ranks) -> None:
    assert any_rank(ranks.rank == 1, ranks) and not any_rank(False, ranks)
    rows = gather_rows(torch.tensor([ranks.rank]), ranks)
    assert [int(row) for row in rows] == list(range(ranks.world_size))
    assert share(lambda: None, ranks) is None


def main() -> None:
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    out = Path(sys.argv[1])
    losses: dict[str, list[float]] = {}
    with joined_ranks("cpu") as ranks:
        check_talk(ranks)
        for optimizer in ("muon", "adamw"):
            if ranks.is_main:
                alone = Setup("none", optimizer)
                losses[alone.name] = straight(alone, Ranks(), out / alone.name)
            for mode in ("ddp", "fsdp"):
                setup = Setup(mode, optimizer)
                folder, again = out / setup.name, out / f"{setup.name}-resumed"
                losses[setup.name] = straight(setup, ranks, folder)
                losses[again.name] = resumed(setup, ranks, folder, again)
        if ranks.is_main:
            (out / "losses.json").write_text(json.dumps(losses))


if __name__ == "__main__":
    main()
