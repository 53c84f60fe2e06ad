"""`blockdraft demo`: a real model answers a few prompts, plainly and with its drafter.

Arguments only; the work is in `demonstration.py`.
"""

from argparse import ArgumentParser, Namespace

from blockdraft.cli import values
from blockdraft.cli.args import add_engine_args, add_model_args

SUMMARY = "watch a model answer, plainly and with a drafter, side by side"
EPILOG = """examples:
  blockdraft demo
  blockdraft demo --dtype float32 --repeats 1
  blockdraft demo --prompts my-prompts.jsonl --limit 5 --max-new-tokens 256
  blockdraft demo --width fixed:8 --batch-invariant off
  blockdraft demo --engine hf
  blockdraft demo --json > demo.json

How it measures: both ways use the same target weights and the same engine, once without drafter
and once with it, one prompt after the other, after a warm-up that is not counted; no prompt is
reused. Seconds run from the start of a request to its last token, with the prefills of target and
drafter inside and the time for this display taken out; they are medians of --repeats runs, plain
and drafted in turn, so that one disturbance does not decide. Decoding is greedy. With --width auto
(the default) the engine chooses at every step how much to draft; the widths it chose and why are
printed below the table. By default every target pass is padded to one number of rows, so that the
texts are equal by construction also in bfloat16. Padding costs plain decoding some time, so plain
decoding is also timed without it, and both gains are printed. --batch-invariant off races without
padding, which is faster.

The table goes to stdout, what you watch to stderr. Exit code 1: a text differs by more than a
near-tie of the target.
"""


def add_arguments(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("prompts")
    group.add_argument(
        "--prompts",
        metavar="FILE",
        help='JSON lines of the shape {"id": "a", "category": "math", "turns": ["user turn", ...]} '
        "(default: a few built-in prompts)",
    )
    group.add_argument("--limit", type=values.count, metavar="N", help="only the first N prompts")
    group.add_argument(
        "--max-new-tokens",
        type=values.count,
        default=64,
        metavar="N",
        help="at most so many tokens an answer (default: %(default)s)",
    )
    group.add_argument(
        "--repeats",
        type=values.count,
        default=3,
        metavar="N",
        help="time every answer N times and take medians (default: %(default)s)",
    )
    add_model_args(parser, dtype="bfloat16", batch_invariant="auto")
    add_engine_args(parser, reuse=False)
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")


def run(args: Namespace) -> int:
    from blockdraft.cli.demonstration import demonstrate

    return demonstrate(args)
