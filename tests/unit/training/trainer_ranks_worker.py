"""One rank of the runs that test_trainer_start.py compares; started with torchrun's environment.

Usage: trainer_ranks_worker.py TARGET ANSWERS OUT_FOLDER. The main rank writes OUT/losses.json.
"""

import json
import sys
import warnings
from pathlib import Path

import torch
from tiny_runs import Recorder, config_of, prepared

from blockdraft.training.ranks.distributed import Ranks, joined_ranks
from blockdraft.training.run.stopping import StopRequest
from blockdraft.training.run.trainer import Trainer

NUM_STEPS = 20


def losses_of(
    pair: tuple[Path, Path], folder: Path, ranks: Ranks, *more: str
) -> tuple[list[float], list[float]]:
    """Losses of all steps, and the simulated acceptance lengths."""
    config = config_of(
        pair,
        *(f"run.steps={NUM_STEPS}", "run.save_every=10", "eval.simulate_every=10"),
        *("optimizer.name=muon", "optimizer.ns_dtype=float32", "run.ema=0.9", *more),
    )
    watch = Recorder()
    Trainer(prepared(config), config, folder, ranks=ranks, watch=watch).run(StopRequest())
    return watch.losses, [report.tau for report in watch.evaluations]


def main() -> None:
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    target, answers, out = (Path(argument) for argument in sys.argv[1:])
    found: dict[str, tuple[list[float], list[float]]] = {}
    with joined_ranks("cpu") as ranks:
        if ranks.is_main:
            found["one"] = losses_of((target, answers), out / "one", Ranks())
        for mode in ("ddp", "fsdp"):
            more = f"run.sharding={mode}"
            found[mode] = losses_of((target, answers), out / mode, ranks, more)
        if ranks.is_main:
            (out / "losses.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
