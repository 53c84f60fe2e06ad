"""What `blockdraft data features` does: sizes first, then the target, then shard by shard.

It prints and shows progress; computing and storing are in `training/`.
"""

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from blockdraft.cli.console import emit, emit_json, say, say_progress
from blockdraft.cli.progress import progress_bar
from blockdraft.cli.target_report import describe_target
from blockdraft.data.answers import AnswerTable
from blockdraft.decoding.interfaces import TargetSpec
from blockdraft.errors import ConfigError
from blockdraft.native import TargetOptions, load_engine_target
from blockdraft.target.fingerprint import fingerprint_of
from blockdraft.target.rows import check_taps
from blockdraft.training.batches.samples import SampleConfig, SampleSet, make_samples
from blockdraft.training.features.cache import CachedFeatures
from blockdraft.training.features.format import FeatureKind, parse_feature_dtype
from blockdraft.training.features.live import LiveFeatures
from blockdraft.training.features.writer import SHARD_BYTES, FeatureWriter, free_bytes
from blockdraft.training.run.origin import other_target

SECONDS_BETWEEN_LINES = 60.0


def make_features(args: Namespace) -> int:
    """Compute and store, or only say how much there is to store."""
    folder = Path(args.out)
    if args.answers is None or args.taps is None:
        raise ConfigError("give --answers DIR and --taps LAYERS: what to compute features of")
    answers = AnswerTable.open(args.answers)
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    if args.dry_run:
        return _say_size(args, answers)
    options = TargetOptions(
        dtype=args.target_dtype,
        device=args.device,
        revision=args.revision,
        tuned=False,  # a cache that is gone on with is one, and that of what training computes
    )
    target = load_engine_target(args.target, options, report=say_progress)
    difference = other_target(answers.manifest, target, args.target)
    if difference is not None:
        say(f"{args.answers} is not of this target, and training will refuse it: {difference}")
    source = LiveFeatures(target, args.taps, final=args.final)
    kind = FeatureKind(
        target=target.spec.name,
        fingerprint=fingerprint_of(target),
        hidden_size=target.spec.hidden_size,
        taps=args.taps,
        dtype=parse_feature_dtype(args.dtype),
        final=args.final,
    )
    samples = _samples(args, answers, target.spec.vocab_size)
    writer = FeatureWriter(folder, samples, kind, shard_bytes=args.shard_size or SHARD_BYTES)
    need = writer.need()
    say(
        f"{len(samples)} answers, {samples.num_tokens} tokens; {folder} takes "
        f"{need.num_bytes / 1e9:.2f} GB more, {need.free / 1e9:.2f} GB are free"
    )
    with token_bar(writer.num_tokens_left) as progress:
        index = writer.write(source, progress)
    num_bytes = sum(shard.num_bytes for shard in index.shards)
    if args.json:
        emit_json(
            {
                "folder": str(folder),
                "samples": index.num_samples,
                "tokens": index.num_tokens,
                "shards": len(index.shards),
                "bytes": num_bytes,
                "fingerprint": kind.fingerprint,
            },
            indent=2,
        )
    else:
        say(f"{folder} is complete: {len(index.shards)} shards, {num_bytes / 1e9:.2f} GB")
    return 0


def verify_features(args: Namespace) -> int:
    """Check sizes and hashes of a finished cache."""
    cache = CachedFeatures(args.out)
    with progress_bar(cache.num_shards, "shards") as advance:
        cache.verify(advance)
    if args.json:
        emit_json({"folder": args.out, "shards": cache.num_shards, "intact": True}, indent=2)
    else:
        say(f"{args.out}: all {cache.num_shards} shards are as they were written")
    return 0


def _say_size(args: Namespace, answers: AnswerTable) -> int:
    """The size, from the target's configuration alone."""
    report = describe_target(args.target, args.revision)
    if report.hidden_size is None or report.vocab_size is None:
        raise ConfigError(f"{args.target} does not say its hidden size: leave --dry-run out")
    spec = TargetSpec(
        name=args.target,
        vocab_size=report.vocab_size,
        hidden_size=report.hidden_size,
        num_layers=report.num_layers or 0,
    )
    if report.num_layers is not None:
        check_taps(args.taps, spec)
    samples = _samples(args, answers, report.vocab_size)
    kind = FeatureKind(
        target=args.target,
        fingerprint="",
        hidden_size=report.hidden_size,
        taps=args.taps,
        dtype=parse_feature_dtype(args.dtype),
        final=args.final,
    )
    num_bytes = kind.num_bytes(samples.num_tokens, len(samples))
    if args.json:
        sizes = {
            "bytes": num_bytes,
            "tokens": samples.num_tokens,
            "free": free_bytes(Path(args.out)),
        }
        emit_json(sizes, indent=2)
    else:
        emit(str(num_bytes))
    return 0


def _samples(args: Namespace, answers: AnswerTable, vocab_size: int) -> SampleSet:
    config = SampleConfig() if args.max_tokens is None else SampleConfig(max_tokens=args.max_tokens)
    num_answers = min(len(answers), args.limit or len(answers))
    samples = make_samples(answers, range(num_answers), config, vocab_size)
    for reason, rejects in samples.rejects.items():
        rows = ", ".join(str(row) for row in rejects.rows)
        say(f"{rejects.count} answers: {reason} (rows {rows}{' ..' * (rejects.count > 5)})")
    return samples


@contextmanager
def token_bar(
    total: int, clock: Callable[[], float] = time.monotonic
) -> Generator[Callable[[int], None], None, None]:
    """Gives the function that takes numbers of finished tokens.

    A bar where someone watches; elsewhere a line a minute.
    """
    start = said_at = clock()
    done = 0

    def speed() -> str:
        return f"{done / max(clock() - start, 1e-9):.0f} tok/s"

    if sys.stderr.isatty():
        columns = (TextColumn("features"), BarColumn(), TextColumn("{task.fields[speed]}"))
        console = Console(stderr=True)
        with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
            task = bar.add_task("features", total=total, speed="")

            def advance(num_tokens: int) -> None:
                nonlocal done
                done += num_tokens
                bar.update(task, completed=done, speed=speed())

            yield advance
        return

    def count_and_say(num_tokens: int) -> None:
        nonlocal done, said_at
        done += num_tokens
        if clock() - said_at >= SECONDS_BETWEEN_LINES:
            said_at = clock()
            say(f"{done} of {total} tokens, {speed()}")

    yield count_and_say
