"""`blockdraft bench --endpoint`: measure a running server, and a plain one beside it.

Arguments of the endpoint, words and exit codes; measuring is the package `bench`, tables are
`bench_report.py`.
"""

import os
import shlex
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from blockdraft.cli.bench_command import command_line
from blockdraft.cli.console import emit_json, say
from blockdraft.cli.workload_args import read_arrivals, read_settings, read_source, say_notes
from blockdraft.errors import ConfigError

if TYPE_CHECKING:
    from blockdraft.bench import Bench, BenchOrder, EndpointPlan, RequestRecord, ResultsFolder
    from blockdraft.bench.endpoint_run import Turn

SECONDS_BETWEEN_WRITES = 10.0
MOST_OF_TIME = 0.01
"""Share of a run that writing may take, since nothing is read meanwhile."""


def add_endpoint_args(parser: ArgumentParser) -> None:
    where = parser.add_argument_group("endpoint")
    where.add_argument(
        "--endpoint", metavar="URL", help="measure the server there, like http://host:8000"
    )
    where.add_argument(
        "--baseline",
        metavar="URL",
        help="a server of the same model without drafts, measured in turns: gives the speed-up",
    )
    where.add_argument("--model", metavar="NAME", help="served name (default: the only one there)")
    where.add_argument(
        "--baseline-model", metavar="NAME", help="its name at --baseline (default: the same)"
    )
    where.add_argument(
        "--api-key-env", metavar="VAR", help="the environment variable that holds the key"
    )
    where.add_argument(
        "--timeout",
        type=float,
        default=600.0,
        metavar="S",
        help="seconds for a whole request (default: %(default)g)",
    )


def run_endpoint(args: Namespace) -> int:
    """Measure, keep and show; what was measured is kept and shown after a failure too."""
    from blockdraft.bench import Bench, EndpointPlan, ResultsFolder, check_baseline

    orders = _orders(args)
    workload = orders[0].workload
    plan = EndpointPlan(
        arrivals=read_arrivals(args, workload), repeats=args.repeats or 1, command=command_line()
    )
    out: Path | None = args.out
    folder = None if out is None else ResultsFolder(out)
    say_notes(workload)
    with ExitStack() as stack:
        benches = [stack.enter_context(Bench(order)) for order in orders]
        for bench in benches:
            found = bench.connect()
            say(f"{found.model} at {bench.order.endpoint.shown} ({found.engine} engine)")
        if len(benches) > 1:
            check_baseline(*benches, is_named=args.baseline_model is not None)
        is_over = False
        try:
            _measure(plan, benches, folder)
            is_over = True
        finally:
            document = _document(plan, benches)
            is_kept = folder is None or _is_written(folder, document)
            if folder is not None and is_kept:
                say(f"results are in {folder.path}")
            if not is_over:
                say(_stopped(benches, folder if is_kept else None))
    if folder is not None:
        _write_page(folder, document)
    _show(document, benches, as_json=args.json)
    has_failed = any(level.num_failed for bench in benches for level in bench.levels)
    return 0 if document["complete"] and is_kept and not has_failed else 1


def _orders(args: Namespace) -> "list[BenchOrder]":
    """Of the endpoint, and of the baseline if there is one."""
    from blockdraft.bench import ENDPOINT, BenchOrder, Endpoint, read_workload
    from blockdraft.bench.endpoint_run import PLAIN_LANE

    settings = read_settings(args)
    key = _key(args)
    endpoint = Endpoint(url=args.endpoint, api_key=key, timeout=args.timeout)
    order = BenchOrder(
        endpoint=endpoint,
        settings=settings,
        workload=read_workload(read_source(args, ENDPOINT), settings),
        model=args.model,
        num_requests=args.requests,
        num_warm_ups=args.warmup,
    )
    if args.baseline is None:
        if args.baseline_model is not None:
            raise ConfigError("--baseline-model is a name at --baseline; give its URL too")
        return [order]
    plain = replace(endpoint, url=args.baseline, flag="--baseline")
    baseline = replace(order, endpoint=plain, model=args.baseline_model, lane=PLAIN_LANE)
    return [order, baseline]


def _key(args: Namespace) -> str | None:
    name: str | None = args.api_key_env
    if name is None:
        return None
    key = os.environ.get(name, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise ConfigError(f"--api-key-env {name}: that variable holds no key")
    return key


def _measure(
    plan: "EndpointPlan", benches: "Sequence[Bench]", folder: "ResultsFolder | None"
) -> None:
    """One level after the other; none further once a failure makes them pointless."""
    from blockdraft.bench import turns

    keep = _keeper(plan, benches, folder)
    for turn in turns(plan, benches):
        title = _title(turn, plan, len(benches))
        if not _measure_level(turn, title, keep):
            return


def _measure_level(turn: "Turn", title: str, keep: Callable[[], None]) -> bool:
    """Whether it makes sense to go on."""
    from blockdraft.bench import make_jobs
    from blockdraft.cli.progress import progress_bar

    bench, order = turn.bench, turn.bench.order
    num_planned = len(make_jobs(order.workload.prompts, turn.arrival, order.num_requests))
    with progress_bar(num_planned, title) as advance:

        def on_record(record: "RequestRecord") -> None:
            advance()
            keep()

        level = bench.measure(turn.arrival, on_record, repeat=turn.repeat)
    ended_by = level.ended_by
    if ended_by is not None:
        say(
            f"blockdraft: stopped after {len(level.records)} of {level.num_planned} requests "
            f"({title}): {ended_by.message}"
        )
        return False
    say(f"{title}: {len(level.records)} requests, {level.num_failed} failed")
    return True


def _stopped(benches: "Sequence[Bench]", folder: "ResultsFolder | None") -> str:
    """What an interrupt leaves. The server may be another one later, so nothing is gone on with."""
    num = sum(len(level.records) - level.num_failed for bench in benches for level in bench.levels)
    told = f"blockdraft: stopped: {num} requests were answered"
    if folder is None:
        return f"{told}, and nothing is kept: no --out was given, or it can't be written"
    shown = shlex.quote(str(folder.path.parent))
    return (
        f"{told} and are kept: `blockdraft report {shown}` shows them; a run at an endpoint can't "
        "be gone on with, so measure again with another --out"
    )


def _title(turn: "Turn", plan: "EndpointPlan", num_lanes: int) -> str:
    parts = [turn.arrival.title]
    if num_lanes > 1:
        parts.append(turn.bench.order.lane)
    if plan.repeats > 1:
        parts.append(f"repeat {turn.repeat + 1} of {plan.repeats}")
    return ", ".join(parts)


def _document(plan: "EndpointPlan", benches: "Sequence[Bench]") -> dict[str, object]:
    from blockdraft.bench import endpoint_run, run_document

    return run_document(endpoint_run(plan, benches))


def _show(document: dict[str, object], benches: "Sequence[Bench]", *, as_json: bool) -> None:
    from blockdraft.bench.remarks import remarks

    if as_json:
        emit_json(document, indent=2)
    else:
        from blockdraft.cli.bench_report import print_bench

        print_bench(document)
        for line in remarks([level.result() for bench in benches for level in bench.levels]):
            say(line)


def _write_page(folder: "ResultsFolder", document: dict[str, object]) -> None:
    """report.html beside the results; its figures are shown here too, so it may fail."""
    from blockdraft.bench.report.page import FILE_NAME, write_page
    from blockdraft.bench.report.reading import parse_document

    path = folder.path.with_name(FILE_NAME)
    try:
        missing = write_page(path, parse_document(document))
    except ConfigError as error:
        say(f"blockdraft: error: {error}")
        return
    say(f"the report is in {path}" + (f" ({missing})" if missing else ""))


def _is_written(folder: "ResultsFolder", document: dict[str, object]) -> bool:
    """A full disk must not end a measurement, nor keep its figures from being shown."""
    try:
        folder.write(document)
    except ConfigError as error:
        say(f"blockdraft: error: {error}")
        return False
    return True


def _keeper(
    plan: "EndpointPlan", benches: "Sequence[Bench]", folder: "ResultsFolder | None"
) -> Callable[[], None]:
    """Writes what there is now and then, so that a run that is killed leaves its part."""
    due = time.monotonic() + SECONDS_BETWEEN_WRITES

    def keep() -> None:
        nonlocal due
        begun = time.monotonic()
        if folder is not None and begun >= due:
            _is_written(folder, _document(plan, benches))
            ended = time.monotonic()
            due = ended + max(SECONDS_BETWEEN_WRITES, (ended - begun) / MOST_OF_TIME)

    return keep
