"""Arguments that say what is asked and when: workload, load and requests of `bench` and `tune`.

They are turned into values here; what the values mean is the package `bench`.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from blockdraft.cli import values
from blockdraft.cli.args import add_template_arg
from blockdraft.cli.console import say
from blockdraft.errors import ConfigError

if TYPE_CHECKING:
    from blockdraft.bench import Arrival, FieldRules, RequestSettings, Workload, WorkloadSource

THINKING = "enable_thinking"
DEFAULT_MAX_TOKENS = 128
WORKLOADS = "math, code, chat, reasoning, extraction, translation, long or mixed"


def add_workload_args(parser: ArgumentParser) -> None:
    """Where prompts come from."""
    group = parser.add_argument_group("workload")
    source = group.add_mutually_exclusive_group()
    source.add_argument(
        "--workload", metavar="NAME", help=f"prompts that come along: {WORKLOADS} (default: mixed)"
    )
    source.add_argument(
        "--prompts",
        type=Path,
        metavar="FILE",
        help="JSON lines: prompts, chats or logged requests; or a .parquet or .json table",
    )
    source.add_argument(
        "--dataset", metavar="OWNER/NAME[@REV]", help="a data set of the Hugging Face hub"
    )
    group.add_argument("--config", metavar="NAME", help="the data set's configuration")
    group.add_argument("--split", metavar="NAME", help="the data set's split (default: train)")
    group.add_argument(
        "--column", metavar="NAME", help="the column with the prompt (default: a known shape)"
    )
    group.add_argument("--limit", type=values.count, metavar="N", help="only the first N prompts")
    group.add_argument(
        "--ignore-fields",
        metavar="A,B",
        help="fields of logged requests to pass over, although they would change the answers",
    )


def add_load_args(parser: ArgumentParser) -> None:
    """When requests are sent, and how many."""
    group = parser.add_argument_group("load")
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
    arrival.add_argument(
        "--arrivals", choices=("logged",), help="when the log says that the requests came"
    )
    group.add_argument(
        "--requests", type=values.count, metavar="N", help="requests of each level (see below)"
    )
    group.add_argument(
        "--repeats", type=values.count, metavar="N", help="measure every level so many times"
    )
    group.add_argument(
        "--warmup",
        type=int,
        default=1,
        metavar="N",
        help="requests before anything is counted (default: %(default)s)",
    )


def add_request_args(parser: ArgumentParser) -> None:
    """What each request asks for."""
    group = parser.add_argument_group("requests")
    group.add_argument(
        "--max-tokens",
        type=values.count,
        metavar="N",
        help="at most so many tokens an answer (default: a logged request's own, else 128)",
    )
    group.add_argument(
        "--temperature",
        type=float,
        metavar="X",
        help="0 = greedy (default: a logged request's own, else 0)",
    )
    group.add_argument(
        "--ignore-eos", action="store_true", help="every answer has --max-tokens tokens"
    )
    group.add_argument("--raw", action="store_true", help="do not apply the chat template")
    add_template_arg(group)
    group.add_argument(
        "--thinking",
        choices=("on", "off"),
        help=f"the template's {THINKING}, by which many models think or don't",
    )
    group.add_argument(
        "--seed",
        type=int,
        metavar="N",
        help="of arrivals, and with a temperature of requests (default: 0)",
    )


def read_settings(args: Namespace) -> "RequestSettings":
    """The requests' settings. Raises ConfigError for values that make no sense."""
    from blockdraft.bench import RequestSettings

    template_args: dict[str, object] = dict(args.template_arg)
    if args.thinking is not None:
        if THINKING in template_args:
            raise ConfigError(f"--thinking is --template-arg {THINKING}=..; give one of them")
        if args.raw:
            raise ConfigError("--raw applies no chat template; drop --thinking")
        template_args[THINKING] = args.thinking == "on"
    longest: int | None = args.max_tokens
    temperature: float | None = args.temperature
    seed: int | None = args.seed
    given = {
        "max_tokens": longest is not None,
        "temperature": temperature is not None,
        "seed": seed is not None,
        "ignore_eos": bool(args.ignore_eos),
    }
    return RequestSettings(
        max_tokens=longest or DEFAULT_MAX_TOKENS,
        temperature=temperature or 0.0,
        seed=seed or 0,
        template_args=template_args,
        ignore_eos=args.ignore_eos,
        raw=args.raw,
        explicit=tuple(name for name, is_given in given.items() if is_given),
    )


def read_source(args: Namespace, rules: "FieldRules") -> "WorkloadSource":
    """Where the workload is. `rules` say which fields of logged requests can go along."""
    from blockdraft.bench import WorkloadSource

    text: str | None = args.ignore_fields
    names = frozenset(name.strip() for name in (text or "").split(",") if name.strip())
    return WorkloadSource(
        name=args.workload,
        path=args.prompts,
        dataset=args.dataset,
        config=args.config,
        split=args.split,
        column=args.column,
        limit=args.limit,
        rules=rules.ignoring(names),
    )


def say_notes(workload: "Workload") -> None:
    """Tell on stderr what of the workload is passed over, and what else is odd about it."""
    if workload.ignored:
        say(f"note: {workload.source}: ignored keys: {', '.join(workload.ignored)}")
    for note in workload.notes:
        say(f"note: {note}")


def read_arrivals(args: Namespace, workload: "Workload") -> "list[Arrival]":
    """The levels of load, one request at a time where nothing is said."""
    from blockdraft.bench import Arrival, logged_arrival

    if args.arrivals == "logged":
        if args.requests is not None:
            raise ConfigError("--arrivals logged sends each logged request once; drop --requests")
        return [logged_arrival(workload.prompts)]
    rates: list[float] | None = args.rate
    if rates is not None:
        return [Arrival(rate=rate) for rate in rates]
    return [Arrival(concurrency=number) for number in args.concurrency or [1]]
