"""How far the what-if model is from measured speed-ups, on settings it was not fitted to.

python benchmarks/what_if_error.py --out what-if
python benchmarks/what_if_error.py --out what-if --prompts-file chat.jsonl --tokens 64

The model is fitted to plain decoding at 1 and 8 requests at a time and to the widest block at 1 and
4. Each other setting is then measured --repeats times beside plain decoding, in turn, and compared.
What is complete is kept in --out, and the same command goes on from there. A quiet machine, please.
"""

import argparse
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import torch

import ours
from blockdraft.api import load_drafter
from blockdraft.bench.in_process.jobs import EngineJob
from blockdraft.cli.hardware import busy_text, describe_hardware
from blockdraft.cli.prompts import read_prompt_file
from blockdraft.data.durable import write_json
from blockdraft.decoding import SamplingParams
from blockdraft.engine import EngineConfig, WidthMode
from blockdraft.native import NativeTarget
from blockdraft.target import Message
from blockdraft.tuning.measure import Bench
from blockdraft.tuning.search import OFF, Knowledge, predict_run
from blockdraft.tuning.store import RunStore
from blockdraft.tuning.tune import know
from blockdraft.tuning.verify import speedup
from prompts import read_set

PLAIN_FIT = (1, 8)
WIDEST_FIT = (1, 4)
HELD_OUT: tuple[tuple[int, int], ...] = (
    *((width, 1) for width in (3, 4, 6)),
    *((width, 2) for width in (2, 4, 6, 8)),
    *((width, 4) for width in (2, 4, 6)),
    *((width, 8) for width in (2, 4, 6, 8)),
)
"""(width, requests at a time) that nothing is fitted to."""

AIM = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingError:
    """`measured` is the median of the repeats' ratios, `low` and `high` are their ends."""

    width: int
    concurrency: int
    predicted: float
    measured: float
    low: float
    high: float

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


def main(argv: Sequence[str] | None = None) -> int:
    """0 when all errors are within the aim, 1 when not."""
    args = _parser().parse_args(argv)
    torch.set_num_threads(args.threads)
    busy = busy_text()
    if busy is not None:
        _say(busy)
    target = ours.load_native(args.target, args.dtype)
    jobs = read_jobs(target, args.prompts_file, args.prompts, args.tokens)
    facts: dict[str, object] = {
        "target": args.target,
        "drafter": str(args.drafter),
        "dtype": args.dtype,
        "threads": args.threads,
        "machine": describe_hardware(str(target.device)).machine,
        "prompts": [list(job.prompt_ids) for job in jobs],
        "tokens": args.tokens,
    }
    bench = Bench(
        target,
        load_drafter(args.drafter, target),
        jobs,
        EngineConfig(max_context=max(len(job.prompt_ids) for job in jobs) + args.tokens),
        RunStore(args.out, facts),
        _watch,
    )
    known = fit(bench)
    held_out = [pair for pair in HELD_OUT if pair[0] <= bench.drafter.block_size]
    errors: list[SettingError] = []
    for width, concurrency in held_out:
        errors.append(measure(bench, known, width, concurrency, args.repeats))
        _say(_row(errors[-1]))
        write_json(args.out / "errors.json", document(errors, facts, len(held_out)))
    _say(summary(errors))
    return 0 if all(abs(one.error) <= AIM for one in errors) else 1


def fit(bench: Bench) -> Knowledge:
    """What the model is told: a table of passes, and four runs."""
    believed = bench.passes(max(PLAIN_FIT))
    widest = WidthMode("fixed", bench.drafter.block_size)
    plain = [bench.run(OFF, level, "fit") for level in PLAIN_FIT]
    drafted = [bench.run(widest, level, "fit") for level in WIDEST_FIT]
    return know(believed, bench.drafter.block_size, plain, drafted, len(bench.jobs))


def measure(
    bench: Bench, known: Knowledge, width: int, concurrency: int, num_repeats: int
) -> SettingError:
    """One held-out setting beside plain decoding, which goes first in every other repeat."""
    mode = WidthMode("fixed", width)
    ratios: list[float] = []
    for repeat in range(num_repeats):
        name = f"beside fixed:{width}, repeat {repeat + 1}"
        order = (OFF, mode) if repeat % 2 == 0 else (mode, OFF)
        runs = {one: bench.run(one, concurrency, name) for one in order}
        ratios.append(speedup(runs[OFF], runs[mode]))
    return SettingError(
        width=width,
        concurrency=concurrency,
        predicted=predict_speedup(known, mode, concurrency),
        measured=median(ratios),
        low=min(ratios),
        high=max(ratios),
    )


def predict_speedup(known: Knowledge, mode: WidthMode, concurrency: int) -> float:
    plain, drafted = (predict_run(known, one, concurrency) for one in (OFF, mode))
    return plain.seconds / drafted.seconds


def read_jobs(
    target: NativeTarget, file: Path | None, num_prompts: int, num_tokens: int
) -> tuple[EngineJob, ...]:
    """The first prompts of GSM8K, or of a file, as greedy requests."""
    if file is None:
        texts = [(prompt.id, prompt.text) for prompt in read_set("gsm8k", num_prompts)]
    else:
        texts = [(one.id, one.turns[0]) for one in read_prompt_file(file)[:num_prompts]]
    codec = target.text
    assert codec is not None, "the built-in target has a tokenizer"
    params = SamplingParams(max_new_tokens=num_tokens)
    return tuple(
        EngineJob(number, name, "", tuple(codec.chat([Message(role="user", content=text)])), params)
        for number, (name, text) in enumerate(texts)
    )


def document(
    errors: Sequence[SettingError], facts: dict[str, object], num_planned: int
) -> dict[str, object]:
    """What is known so far, without the ids of the prompts."""
    return {
        "facts": {name: value for name, value in facts.items() if name != "prompts"},
        "complete": len(errors) == num_planned,
        "settings": [asdict(one) | {"error": one.error} for one in errors],
        "worst": max((abs(one.error) for one in errors), default=None),
        "mean": sum(abs(one.error) for one in errors) / len(errors) if errors else None,
        "within_aim": sum(abs(one.error) <= AIM for one in errors),
    }


def summary(errors: Sequence[SettingError]) -> str:
    """A table in Markdown, and what it comes to."""
    lines = ["", "| width | at once | predicted | measured | error |", "|---|---|---|---|---|"]
    lines += [
        f"| {one.width} | {one.concurrency} | {one.predicted:.2f}x | {one.measured:.2f}x "
        f"({one.low:.2f} to {one.high:.2f}) | {one.error:+.1%} |"
        for one in errors
    ]
    within = sum(abs(one.error) <= AIM for one in errors)
    worst = max(abs(one.error) for one in errors)
    mean = sum(abs(one.error) for one in errors) / len(errors)
    lines.append(
        f"\n{within} of {len(errors)} held-out settings within {AIM:.0%}; mean error {mean:.1%}, "
        f"worst {worst:.1%}"
    )
    return "\n".join(lines)


def _row(one: SettingError) -> str:
    return (
        f"width {one.width} at {one.concurrency}: predicted {one.predicted:.3f}x, measured "
        f"{one.measured:.3f}x ({one.low:.3f} to {one.high:.3f}), {one.error:+.1%}"
    )


@contextmanager
def _watch(what: str, total: int) -> Generator[Callable[[], None], None, None]:
    started = time.monotonic()
    yield lambda: None
    _say(f"{what}: {total} in {time.monotonic() - started:.1f} s")


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of runs and errors.json")
    parser.add_argument("--target", default="smollm2")
    parser.add_argument("--drafter", default="smollm2")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--prompts-file", type=Path, help="JSON lines (default: GSM8K)")
    parser.add_argument("--prompts", type=int, default=16, help="so many prompts (default: 16)")
    parser.add_argument("--tokens", type=int, default=48, help="of an answer (default: 48)")
    parser.add_argument("--repeats", type=int, default=2, help="of each setting (default: 2)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
