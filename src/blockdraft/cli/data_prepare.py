"""`blockdraft data prepare`: prompts from files and data sets to one clean folder of them.

Arguments only; the work is in `data/prepare.py`, the words for people in `prepare_report.py`.
"""

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from blockdraft.cli import values

SUMMARY = "collect prompts: read, filter, de-duplicate, split, keep evaluation prompts out"
EPILOG = """examples:
  blockdraft data prepare chats.jsonl --out prompts
  blockdraft data prepare math.jsonl,license=MIT,category=math code.parquet,limit=20000 \\
      --eval gsm8k-test.jsonl humaneval.jsonl --holdout 0.02 --out prompts
  blockdraft data prepare hf:owner/name::train,key=problem --max-chars 6000 --out prompts
  blockdraft data prepare requests.jsonl --target smollm2 --max-prompt-tokens 1024 --out prompts

inputs: JSON lines (.jsonl, .ndjson), a JSON list (.json), Parquet (.parquet), or a Hugging Face
data set hf:owner/name[:config][:split], each with fields behind it if wanted:
  ,license=L   license of rows that name none      ,category=C  likewise, their category
  ,limit=N     its first N usable rows             ,key=K       the key that holds the prompt
Each row's shape is found out by itself: turns, OpenAI messages, ShareGPT conversations, logged
requests, instruction, prompt, question. Answers in the rows are dropped, the target writes its own.

The folder gets train.jsonl, heldout.jsonl (with --holdout) and manifest.json, complete or not at
all. The order is random by --seed, so that the first rows are a fair sample of all.

Exit code 0: the folder is written. 2: an input can't be read, or a bad row with --on-bad stop.
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="file or data set (see below)")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write")
    parser.add_argument(
        "--overwrite", action="store_true", help="replace a folder that was made by this command"
    )
    parser.add_argument(
        "--eval",
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help="evaluation prompts; rows that repeat one, exactly or nearly, are left out",
    )
    _add_filters(parser)
    _add_split(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document: the manifest")


def _add_filters(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("which rows")
    group.add_argument(
        "--on-bad",
        choices=("skip", "stop"),
        default="skip",
        help="rows that can't be used: leave them out and count them, or end (default: skip)",
    )
    group.add_argument(
        "--near-duplicates",
        choices=("drop", "keep"),
        default="drop",
        help="rows that share more than half of their 8-word runs with an earlier one (default: "
        "drop); with keep, such rows are never divided by --holdout",
    )
    group.add_argument(
        "--min-chars",
        type=values.count,
        default=1,
        metavar="N",
        help="shortest, all user turns together (default: 1)",
    )
    group.add_argument("--max-chars", type=values.count, metavar="N", help="longest, likewise")
    group.add_argument(
        "--max-prompt-tokens",
        type=values.count,
        metavar="N",
        help="longest in tokens of --target, chat template included",
    )
    group.add_argument("--target", help="whose tokenizer counts: folder, hub id or built-in name")
    group.add_argument("--revision", help="commit, tag or branch of a hub id")


def _add_split(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("how many")
    group.add_argument("--limit", type=values.count, metavar="N", help="keep N rows, at random")
    group.add_argument(
        "--holdout",
        type=holdout,
        metavar="N",
        help="rows to hold out, a number or a fraction like 0.02",
    )
    group.add_argument("--seed", type=int, default=0, help="of the order (default: 0)")


def holdout(text: str) -> int | float:
    """A number of rows (whole), or a fraction of them (between 0 and 1)."""
    try:
        value = int(text) if text.isdecimal() else float(text)
    except ValueError:
        value = 0
    if (isinstance(value, int) and value >= 1) or 0 < value < 1:
        return value
    raise ArgumentTypeError(f"{text!r} is neither a number of rows nor a fraction like 0.02")


def run(args: Namespace) -> int:
    from blockdraft import __version__
    from blockdraft.cli.console import emit_json, say
    from blockdraft.cli.prepare_report import counting_rows, show_report
    from blockdraft.data.collect import RowFilter
    from blockdraft.data.prepare import Destination, PrepareOptions, prepare
    from blockdraft.data.sources import parse_source
    from blockdraft.errors import ConfigError

    if (args.target is None) != (args.max_prompt_tokens is None):
        raise ConfigError("--target and --max-prompt-tokens need each other: give both or none")
    if args.revision is not None and args.target is None:
        raise ConfigError("--revision belongs to a --target from the hub")
    options = PrepareOptions(
        sources=tuple(parse_source(text) for text in args.inputs),
        eval_sources=tuple(parse_source(text) for text in args.eval),
        row_filter=RowFilter(
            min_chars=args.min_chars,
            max_chars=args.max_chars,
            max_prompt_tokens=args.max_prompt_tokens,
            on_bad=args.on_bad,
        ),
        near_duplicates=args.near_duplicates,
        limit=args.limit,
        holdout=args.holdout,
        seed=args.seed,
    )
    destination = Destination(
        folder=Path(args.out),
        overwrite=args.overwrite,
        made_by={"blockdraft": __version__, "argv": sys.argv[1:], "target": args.target},
    )
    count_tokens = None
    if args.target is not None:
        from blockdraft.data.prompt_tokens import load_counter

        count_tokens = load_counter(args.target, args.revision, say)
    with counting_rows() as progress:
        document = prepare(options, destination, count_tokens=count_tokens, progress=progress)
    show_report(document, args.out)
    if args.json:
        emit_json(document, indent=2)
    return 0
