"""A toy training loop for test_stopping.py: trains until it is told to stop, then saves.

Usage: stopping_worker.py RUN_FOLDER NUM_STEPS. Saves every 5 steps; prints each step it has done.
"""

import sys
from pathlib import Path

import torch
from torch import nn

from blockdraft.training.optim.optimizers import OptimizerConfig, build_optimizers
from blockdraft.training.ranks.distributed import Ranks
from blockdraft.training.run.checkpoints import Checkpoints
from blockdraft.training.run.state import Progress, TrainedParts, capture, restore
from blockdraft.training.run.stopping import StopRequest


def main() -> None:
    folder, num_steps = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 64))
    optimizers = build_optimizers(model, OptimizerConfig(name="adamw"))
    parts = TrainedParts(model=model, optimizers=optimizers, ema=None, ranks=Ranks())
    checkpoints = Checkpoints(folder, keep_last=2)
    checkpoints.clear_leftovers()
    step = 0
    latest = checkpoints.load_latest()
    if latest is not None:
        restore(parts, latest)
        step = latest.progress.step
    with StopRequest() as stop:
        while step < num_steps:
            optimizers.zero_grad()
            model(torch.randn(8, 64)).square().sum().backward()
            optimizers.step()
            step += 1
            sys.stdout.write(f"{step}\n")
            sys.stdout.flush()
            if step % 5 == 0 or step == num_steps or stop.requested:
                checkpoints.save(capture(parts, Progress(step=step, epoch=0, position=step), {}))
            if stop.requested:
                sys.stdout.write(f"stopped by {stop.signal_name} at {step}\n")
                return


if __name__ == "__main__":
    main()
