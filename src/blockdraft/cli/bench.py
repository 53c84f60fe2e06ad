"""`blockdraft bench`: measure a running server, ours or another engine's.

Arguments, words and exit codes; measuring is in the package `bench`, tables in `bench_report.py`.
"""

import os
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from blockdraft.cli import values
from blockdraft.cli.console import emit_json, say
from blockdraft.errors import ConfigError

if TYPE_CHECKING:
    from blockdraft.bench import Arrival, Bench, BenchOrder, RequestRecord, ResultsFolder

SUMMARY = "measure a running server: latency, throughput, acceptance"
EPILOG = """examples:
  blockdraft bench --endpoint http://127.0.0.1:8000
  blockdraft bench --endpoint http://127.0.0.1:8000 --concurrency 1 4 8 --out results
  blockdraft bench --endpoint http://host:8000/v1 --model my-model --prompts chat.jsonl --limit 64
  blockdraft bench --endpoint http://host:8000 --rate 0.5 2 --max-tokens 256 --ignore-eos
  blockdraft bench --endpoint https://host --api-key-env MY_KEY --template-arg enable_thinking=false

The endpoint is any server with OpenAI's interface: blockdraft serve, vLLM, SGLang, TensorRT-LLM or
llama-server. Answers are streamed from /v1/chat/completions; with --raw, and for prompts of token
ids, from /v1/completions. Tokens are counted by the server, never by chunks.

FILE holds JSON lines: {"id": "a", "category": "math", "turns": ["first user turn", ...]}, of which
the first turn is asked; {"prompt": "text"}; or {"prompt_ids": [12, 7]}. id and category may be left
out. Each level sends every prompt once, and at least two requests for each that runs at a time, the
prompts in turn; --requests says how many instead.

Acceptance comes from the answers' own fields and from the server's /metrics, whichever are there;
where both are, they are compared. docs/bench.md says what each engine tells and what tau then is.

Exit code 1 when a request failed or was not sent; the others are reported all the same. 2: the
endpoint, the model, the key or the prompts can't be used, so nothing was measured.
"""
SECONDS_BETWEEN_WRITES = 10.0
MOST_OF_TIME = 0.01
"""Share of a run that writing may take, since nothing is read meanwhile."""


def add_arguments(parser: ArgumentParser) -> None:
    where = parser.add_argument_group("endpoint")
    where.add_argument(
        "--endpoint", metavar="URL", required=True, help="the server's root, like http://host:8000"
    )
    where.add_argument("--model", metavar="NAME", help="served name (default: the only one there)")
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
    _add_load_args(parser)
    _add_request_args(parser)
    out = parser.add_argument_group("output")
    out.add_argument(
        "--out", type=Path, metavar="DIR", help="write results.json there, also of a part of a run"
    )
    out.add_argument("--json", action="store_true", help="one JSON document instead of tables")


def _add_load_args(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("load")
    group.add_argument(
        "--prompts", type=Path, metavar="FILE", help="JSON lines (default: a few built-in prompts)"
    )
    group.add_argument("--limit", type=values.count, metavar="N", help="only the first N prompts")
    group.add_argument(
        "--requests", type=values.count, metavar="N", help="requests of each level (see below)"
    )
    arrival = group.add_mutually_exclusive_group()
    arrival.add_argument(
        "--concurrency",
        type=values.count,
        nargs="+",
        metavar="N",
        help="levels: so many requests at a time (default: 1)",
    )
    arrival.add_argument(
        "--rate",
        type=float,
        nargs="+",
        metavar="R",
        help="levels: so many requests a second on average, at random times, answered or not",
    )
    group.add_argument(
        "--warmup",
        type=int,
        default=1,
        metavar="N",
        help="requests before anything is counted (default: %(default)s)",
    )


def _add_request_args(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("requests")
    group.add_argument(
        "--max-tokens",
        type=values.count,
        default=128,
        metavar="N",
        help="at most so many tokens an answer (default: %(default)s)",
    )
    group.add_argument(
        "--temperature", type=float, default=0.0, metavar="X", help="0 = greedy (default: 0)"
    )
    group.add_argument(
        "--ignore-eos", action="store_true", help="every answer has --max-tokens tokens"
    )
    group.add_argument("--raw", action="store_true", help="do not apply the chat template")
    group.add_argument(
        "--template-arg",
        action="append",
        default=[],
        type=values.template_arg,
        metavar="KEY=VALUE",
        help="a variable for the chat template, like enable_thinking=false; repeatable",
    )
    group.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="of arrivals, and with a temperature of requests (default: %(default)s)",
    )


def run(args: Namespace) -> int:
    from blockdraft.bench import Bench, ResultsFolder, bench_document
    from blockdraft.cli.bench_report import print_bench

    order, arrivals = _order(args), _arrivals(args)
    out: Path | None = args.out
    folder = None if out is None else ResultsFolder(out)
    if order.workload.ignored:
        keys = ", ".join(order.workload.ignored)
        say(f"note: {order.workload.source}: ignored keys: {keys}")
    with Bench(order) as bench:
        found = bench.connect()
        say(f"{found.model} at {order.endpoint.url} ({found.engine} engine)")
        try:
            _measure(bench, arrivals, folder)
        finally:
            document = bench_document(bench, len(arrivals))
            is_kept = folder is None or _is_written(folder, document)
            if folder is not None and is_kept:
                say(f"results are in {folder.path}")
    if args.json:
        emit_json(document, indent=2)
    else:
        print_bench(bench)
    has_failed = any(level.num_failed for level in bench.levels)
    return 0 if document["complete"] and is_kept and not has_failed else 1


def _order(args: Namespace) -> "BenchOrder":
    from blockdraft.bench import BenchOrder, Endpoint, RequestSettings, read_workload

    settings = RequestSettings(
        max_tokens=args.max_tokens,
        temperature=args.temperature,
        template_args=dict(args.template_arg),
        ignore_eos=args.ignore_eos,
        raw=args.raw,
        seed=args.seed,
    )
    return BenchOrder(
        endpoint=Endpoint(url=args.endpoint, api_key=_key(args), timeout=args.timeout),
        settings=settings,
        workload=read_workload(args.prompts, args.limit, settings),
        model=args.model,
        num_requests=args.requests,
        num_warm_ups=args.warmup,
    )


def _key(args: Namespace) -> str | None:
    name: str | None = args.api_key_env
    if name is None:
        return None
    key = os.environ.get(name, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise ConfigError(f"--api-key-env {name}: that variable holds no key")
    return key


def _arrivals(args: Namespace) -> "list[Arrival]":
    from blockdraft.bench import Arrival

    rates: list[float] | None = args.rate
    if rates is not None:
        return [Arrival(rate=rate) for rate in rates]
    return [Arrival(concurrency=number) for number in args.concurrency or [1]]


def _measure(bench: "Bench", arrivals: "list[Arrival]", folder: "ResultsFolder | None") -> None:
    """One level after the other; none further once a failure makes them pointless."""
    from blockdraft.bench import make_jobs
    from blockdraft.cli.progress import progress_bar

    keep = _keeper(bench, len(arrivals), folder)
    for arrival in arrivals:
        num_planned = len(
            make_jobs(bench.order.workload.prompts, arrival, bench.order.num_requests)
        )
        with progress_bar(num_planned, arrival.title) as advance:

            def on_record(record: "RequestRecord", advance: Callable[[], None] = advance) -> None:
                advance()
                keep()

            level = bench.measure(arrival, on_record)
        ended_by = level.ended_by
        if ended_by is not None:
            say(
                f"blockdraft: stopped after {len(level.records)} of {level.num_planned} requests "
                f"({arrival.title}): {ended_by.message}"
            )
            return
        say(f"{arrival.title}: {len(level.records)} requests, {level.num_failed} failed")


def _is_written(folder: "ResultsFolder", document: dict[str, object]) -> bool:
    """A full disk must not end a measurement, nor keep its figures from being shown."""
    try:
        folder.write(document)
    except ConfigError as error:
        say(f"blockdraft: error: {error}")
        return False
    return True


def _keeper(bench: "Bench", num_levels: int, folder: "ResultsFolder | None") -> Callable[[], None]:
    """Writes what there is now and then, so that a run that is killed leaves its part."""
    from blockdraft.bench import bench_document

    due = time.monotonic() + SECONDS_BETWEEN_WRITES

    def keep() -> None:
        nonlocal due
        begun = time.monotonic()
        if folder is not None and begun >= due:
            _is_written(folder, bench_document(bench, num_levels))
            ended = time.monotonic()
            due = ended + max(SECONDS_BETWEEN_WRITES, (ended - begun) / MOST_OF_TIME)

    return keep
