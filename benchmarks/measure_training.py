"""What a training step costs: time, share of the measured peak, memory, and where the time goes.

    python benchmarks/measure_training.py --out training-step
    python benchmarks/measure_training.py --out training-step --profile

Steps are real ones (forward, loss, backward, clipping, Muon) on random tokens and features, in a
process of its own for each size, so that its peak of memory is its own. Sizes are tokens x anchors
of a row. Writes step.json and prints a table.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import torch
from torch.profiler import ProfilerActivity, profile

from blockdraft.drafter import DrafterConfig, RopeConfig
from blockdraft.training.batches.anchors import AnchorConfig
from blockdraft.training.batches.batch import Batch, Sample
from blockdraft.training.batches.layout import lay_out
from blockdraft.training.batches.packing import PackingConfig, make_batch, pack_epoch
from blockdraft.training.cost.flops import step_flops, work_of
from blockdraft.training.cost.machine import measured_peak, utilization
from blockdraft.training.forward import BlockForward
from blockdraft.training.frozen_head import FrozenHead
from blockdraft.training.initialize import new_drafter
from blockdraft.training.loss import LossConfig
from blockdraft.training.objective import Objective
from blockdraft.training.optim.optimizers import OptimizerConfig, build_optimizers
from blockdraft.training.ranks.distributed import Ranks
from blockdraft.training.ranks.parallel import parallelize
from blockdraft.training.vocabulary import DraftVocabulary

SIZES = ((1024, 128), (2048, 256), (4096, 512), (8192, 1024), (4096, 128), (4096, 1024))
DRAFT_VOCABULARY = 8192
PROMPT_LEN, ANSWER_LEN = 100, 180

SMOLLM2 = DrafterConfig(
    hidden_size=576,
    intermediate_size=1536,
    num_layers=4,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    rms_norm_eps=1e-5,
    vocab_size=49152,
    block_size=8,
    mask_token_id=16,
    taps=(1, 8, 14, 20, 27),
    layer_types=("full_attention",) * 4,
    max_position_embeddings=8192,
    num_target_layers=30,
    rope=RopeConfig(theta=100_000.0),
    draft_vocab_size=DRAFT_VOCABULARY,
)
"""The built-in drafter's shape."""


class StepCost(NamedTuple):
    """One size: seconds of a whole step and of its optimizer, peak memory of the process."""

    tokens: int
    anchors: int
    seconds: float
    optimizer_seconds: float
    gflop: float
    utilization: float
    slots_per_second: float
    peak_mb: float


class Step:
    """A step that can be run again and again on the same packed row."""

    def __init__(self, tokens: int, anchors: int, optimizer: str) -> None:
        torch.manual_seed(0)
        self.batch = packed_row(tokens, anchors)
        self.layout = lay_out(self.batch)
        drafter = new_drafter(SMOLLM2, 0)
        self.parallel = parallelize(BlockForward(drafter), Ranks(), "none")
        name = "muon" if optimizer == "muon" else "adamw"
        self.optimizers = build_optimizers(self.parallel.model, OptimizerConfig(name=name))
        vocabulary = DraftVocabulary(torch.arange(DRAFT_VOCABULARY), SMOLLM2.vocab_size)
        head = FrozenHead(torch.randn(DRAFT_VOCABULARY, 576).bfloat16() / 24, None)
        self.objective = Objective(LossConfig(weighting="dpace"), head, 8, vocabulary=vocabulary)
        self.features = torch.randn(self.batch.num_tokens, 5 * 576).bfloat16()
        self.embeddings = torch.randn(self.batch.num_anchors, 8, 576).bfloat16()
        self.optimizer_seconds = 0.0

    def run(self) -> None:
        with torch.autocast("cpu", torch.bfloat16):
            states = self.parallel.model(self.features, self.embeddings, self.layout)
        scores = self.objective(states, self.layout.labels)
        scores.loss.backward()
        started = time.perf_counter()
        self.parallel.finish_gradients(float(scores.weight), 1.0)
        self.optimizers.step()
        self.optimizers.zero_grad()
        self.optimizer_seconds = time.perf_counter() - started


def packed_row(tokens: int, anchors: int) -> Batch:
    """A row of answers of usual lengths with about that many tokens and anchors."""
    count = max(1, tokens // (PROMPT_LEN + ANSWER_LEN))
    ids = torch.randint(DRAFT_VOCABULARY, (count, PROMPT_LEN + ANSWER_LEN))
    samples = [
        Sample(row=row, ids=tuple(cast(list[int], line.tolist())), answer_start=PROMPT_LEN)
        for row, line in enumerate(ids)
    ]
    drawn = AnchorConfig(per_sample=max(1, anchors // count))
    packing = PackingConfig(row_tokens=tokens, row_anchors=anchors)
    row = pack_epoch(samples, packing, drawn, seed=0, epoch=0)[0]
    return make_batch(row, samples, drawn, 8, seed=0)


def measure(tokens: int, anchors: int, optimizer: str, repeats: int, peak: float) -> StepCost:
    """Median of `repeats` steps after one of warm-up."""
    step = Step(tokens, anchors, optimizer)
    step.run()
    seconds: list[float] = []
    optimizer_seconds: list[float] = []
    for _ in range(repeats):
        started = time.perf_counter()
        step.run()
        seconds.append(time.perf_counter() - started)
        optimizer_seconds.append(step.optimizer_seconds)
    median = statistics.median(seconds)
    flops = step_flops(SMOLLM2, work_of(SMOLLM2, step.batch)).total
    slots = int((step.layout.labels.ids >= 0).sum())
    return StepCost(
        tokens=step.batch.num_tokens,
        anchors=step.batch.num_anchors,
        seconds=median,
        optimizer_seconds=statistics.median(optimizer_seconds),
        gflop=flops / 1e9,
        utilization=utilization(flops, median, peak),
        slots_per_second=slots / median,
        peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def print_profile(tokens: int, anchors: int, optimizer: str) -> None:
    """The operations that take most of a step."""
    step = Step(tokens, anchors, optimizer)
    step.run()
    with profile(activities=[ProfilerActivity.CPU]) as found:
        step.run()
    averages: object = found.key_averages()  # pyright: ignore[reportUnknownVariableType]: untyped
    table = cast(Callable[..., str], getattr(averages, "table"))  # noqa: B009 - of an object
    sys.stdout.write(table(sort_by="self_cpu_time_total", row_limit=15))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for step.json")
    parser.add_argument("--optimizer", choices=("muon", "adamw"), default="muon")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--profile", action="store_true", help="only where the time of a step goes")
    parser.add_argument("--size", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    if args.size is not None:
        tokens, anchors = (int(part) for part in cast(str, args.size).split("x"))
        cost = measure(tokens, anchors, args.optimizer, args.repeats, measured_peak())
        sys.stdout.write(json.dumps(cost._asdict()) + "\n")
        return 0
    if args.profile:
        print_profile(*SIZES[2], args.optimizer)
        return 0
    args.out.mkdir(parents=True, exist_ok=True)
    costs: list[dict[str, float]] = []
    sys.stdout.write("| tokens | anchors | s | optimizer, s | of the peak | tokens/s | MB |\n")
    sys.stdout.write("|---:|---:|---:|---:|---:|---:|---:|\n")
    for tokens, anchors in SIZES:
        command = [
            sys.executable,
            __file__,
            "--out",
            str(args.out),
            "--size",
            f"{tokens}x{anchors}",
        ]
        command += ["--optimizer", args.optimizer, "--threads", str(args.threads)]
        command += ["--repeats", str(args.repeats)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        cost = cast("dict[str, float]", json.loads(done.stdout.splitlines()[-1]))
        costs.append(cost)
        sys.stdout.write(
            f"| {cost['tokens']} | {cost['anchors']} | {cost['seconds']:.2f} | "
            f"{cost['optimizer_seconds']:.2f} | {cost['utilization']:.0%} | "
            f"{cost['slots_per_second']:.0f} | {cost['peak_mb']:.0f} |\n"
        )
        sys.stdout.flush()
    (args.out / "step.json").write_text(json.dumps(costs, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
