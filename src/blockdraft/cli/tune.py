"""`blockdraft tune`: find the width that pays for a workload, or calculate what would.

Arguments and dispatch; the work is in `tune_run.py` and `tune_what_if.py`.
"""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from math import isfinite
from pathlib import Path

from blockdraft.cli import values
from blockdraft.cli.args import ENGINES, add_model_args
from blockdraft.cli.given_flags import given_flags
from blockdraft.cli.workload_args import add_request_args, add_workload_args
from blockdraft.errors import ConfigError

SUMMARY = "find the width that pays for a workload, and write the flags of five engines"
EPILOG = """examples:
  blockdraft tune --quick                                the built-in pair, under 3 minutes
  blockdraft tune --target ./model --drafter ./drafter --prompts chat.jsonl --out tuned
  blockdraft tune --workload code --concurrency 1 4 16 --goal throughput --out tuned
  blockdraft tune --what-if --tau 4.2 --block-size 16 --plain-step-ms 20 --verify-ms 27 --draft-ms 4
  blockdraft tune --what-if --acceptance 0.8,0.62,0.47 --costs results/results.json
  blockdraft tune --what-if --tau 3.1 --block-size 8 --concurrency 1 2 4 8     costs measured here

It measures what passes of both models cost, plain decoding at the fewest and the most requests at a
time and the widest block at two levels; from these it predicts every width at every concurrency,
end to end, prefills inside. The best settings are then measured beside plain decoding, in turn,
--repeats times. Prompts are the first 16 and answers have 96 tokens at most (6 and 48 with
--quick), unless --limit and --max-tokens say otherwise. Where nothing pays it says so.

--goal latency looks for the shortest answers at the fewest requests at a time, throughput for the
most tokens a second over the levels given.

With --out DIR each run is kept as soon as it is complete, so that the same command goes on after
Ctrl-C; DIR/tune.json has all figures, DIR/flags/ a script for each engine. Another engine has other
costs: there the prediction holds for the acceptance only, and `blockdraft bench --endpoint` tells.

--what-if calculates instead of measuring: from --tau (with --block-size) or --acceptance, the share
of steps that accepts draft 1, 2, .. Its costs are those of a bench (--costs), milliseconds by hand,
or measured here on the pair. docs/tuning.md explains the formula on an example.

Exit code 0: an answer was found, "leave it off" included. 2: a mistake in what was asked.
"""

QUICK_LEVELS = (1, 4)
LEVELS = (1, 2, 4, 8)


def add_arguments(parser: ArgumentParser) -> None:
    add_model_args(parser, dtype="auto", batch_invariant="off")
    _add_engine_args(parser)
    _add_level_args(parser)
    _add_measured_args(parser)
    _add_what_if_args(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document instead of tables")


def _add_measured_args(parser: ArgumentParser) -> None:
    """What --what-if has no use for."""
    add_workload_args(parser)
    add_request_args(parser)
    _add_search_args(parser)
    out = parser.add_argument_group("output")
    out.add_argument(
        "--out",
        type=values.new_folder,
        metavar="DIR",
        help="keep runs, tune.json and the engines' flags there; go on with what is there",
    )


def _add_engine_args(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("engine")
    group.add_argument(
        "--engine", choices=ENGINES, default="auto", help="what runs the models (default: auto)"
    )
    group.add_argument("--max-context", type=values.count, metavar="N", help="tokens of a request")
    group.add_argument(
        "--kv-memory", type=values.byte_count, metavar="SIZE", help="for keys and values, like 2GB"
    )


def _add_level_args(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("levels")
    group.add_argument(
        "--concurrency",
        type=values.count,
        nargs="+",
        metavar="N",
        help="so many requests at a time (default: 1 2 4 8; with --quick 1 4)",
    )
    group.add_argument(
        "--quick", action="store_true", help="6 prompts, 48 tokens, one setting verified"
    )


def _add_search_args(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("search")
    group.add_argument(
        "--goal",
        choices=("latency", "throughput"),
        default="latency",
        help="what is to gain (default: %(default)s)",
    )
    group.add_argument(
        "--repeats",
        type=values.count,
        metavar="N",
        help="measure the chosen settings and plain decoding N times (default: 3; --quick 2)",
    )


def _add_what_if_args(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("what-if")
    group.add_argument("--what-if", action="store_true", help="calculate, measure no workload")
    acceptance = group.add_mutually_exclusive_group()
    acceptance.add_argument(
        "--tau", type=float, metavar="X", help="tokens a verification, for blocks of --block-size"
    )
    acceptance.add_argument(
        "--acceptance",
        type=shares,
        metavar="A,B,..",
        help="share of the steps that accepts draft 1, 2, ..",
    )
    group.add_argument(
        "--block-size", type=values.count, metavar="B", help="of --tau, anchor included"
    )
    group.add_argument("--widths", type=values.id_list, metavar="W,..", help="only these widths")
    group.add_argument(
        "--costs", type=Path, metavar="FILE", help="results.json of a bench in process"
    )
    group.add_argument(
        "--plain-step-ms", type=milliseconds, metavar="MS", help="a plain step of one request"
    )
    group.add_argument(
        "--verify-ms",
        type=sized_ms,
        nargs="+",
        metavar="[ROWS:]MS",
        help="a verification of ROWS rows (default: of one block)",
    )
    group.add_argument(
        "--draft-ms",
        type=sized_ms,
        nargs="+",
        metavar="[WIDTH:]MS",
        help="drafting WIDTH tokens for one request (default: a block)",
    )
    group.add_argument(
        "--overhead-ms", type=milliseconds, metavar="MS", help="what every step costs besides"
    )
    group.add_argument(
        "--answer-tokens", type=values.count, metavar="N", help="of an answer (default: no end)"
    )
    group.add_argument(
        "--prefill-ms", type=milliseconds, metavar="MS", help="a prompt's prefill (default: 0)"
    )
    group.add_argument(
        "--drafter-prefill-ms", type=milliseconds, metavar="MS", help="the drafter's share of it"
    )


def run(args: Namespace) -> int:
    what_if: bool = args.what_if
    given = [flag for flag in WHAT_IF_ONLY if getattr(args, flag.replace("-", "_")) is not None]
    if given and not what_if:
        raise ConfigError(f"--{given[0]} is for --what-if; add it, or drop --{given[0]}")
    if what_if:
        wrong = given_flags(args, _add_measured_args)
        if wrong:
            raise ConfigError(
                f"{', '.join(wrong)}: --what-if measures no workload and keeps no folder; drop it"
            )
        from blockdraft.cli.tune_what_if import calculate

        return calculate(args)
    from blockdraft.cli.signals import ended_by_sigterm
    from blockdraft.cli.tune_run import tune_pair

    with ended_by_sigterm():
        return tune_pair(args)


WHAT_IF_ONLY = (
    "tau",
    "acceptance",
    "block-size",
    "widths",
    "costs",
    "plain-step-ms",
    "verify-ms",
    "draft-ms",
    "overhead-ms",
    "answer-tokens",
    "prefill-ms",
    "drafter-prefill-ms",
)


def levels_of(args: Namespace) -> tuple[int, ...]:
    """The concurrencies asked for, or the usual ones."""
    given: list[int] | None = args.concurrency
    if given is not None:
        return tuple(dict.fromkeys(given))
    return QUICK_LEVELS if args.quick else LEVELS


def milliseconds(text: str) -> float:
    """A time of 0 ms or more."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not (isfinite(number) and number >= 0):
        raise ArgumentTypeError(f"{text!r} is not a time in milliseconds, like 20 or 3.5")
    return number


def sized_ms(text: str) -> tuple[int | None, float]:
    """MS, or SIZE:MS."""
    size, colon, number = text.rpartition(":")
    if not colon:
        return None, milliseconds(text)
    return values.count(size), milliseconds(number)


def shares(text: str) -> tuple[float, ...]:
    """Numbers separated by commas."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ArgumentTypeError(
            f"{text!r} is not a list of numbers separated by commas, like 0.8,0.62,0.47"
        ) from None
