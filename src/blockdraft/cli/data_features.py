"""`blockdraft data features`: compute the target's features of all answers once and keep them.

Arguments only; the work is in `feature_run.py`.
"""

from argparse import ArgumentParser, Namespace

from blockdraft.cli import values
from blockdraft.cli.args import DEFAULT_TARGET, DTYPES, add_threads

SUMMARY = "keep the target's features of answers on disk, for training without the target"
EPILOG = """examples:
  blockdraft data features --answers answers --taps 1,8,14,20,27 --out features --dry-run
  blockdraft data features --answers answers --taps 1,8,14,20,27 --out features
  blockdraft data features --answers answers --taps 1,8,14,20,27 --out features --dtype fp8 --final
  blockdraft data features --out features --verify

Training computes features on the fly unless told otherwise; a cache pays where the target is slow,
as on a CPU, and the same answers are learned from for several epochs. It is large: for each token,
2 bytes (fp8: 1) times the target's hidden size times the number of tapped layers. --dry-run prints
the bytes and does nothing else.

The size is said before anything is computed, and the disk is never filled: 1 GB stays free. A run
that was stopped goes on behind its last finished shard when the same command is given again. The
cache is of these answers and this target: features of others are refused.

Exit code 0: the cache is complete (--verify: undamaged). 2: the disk is too small, the answers
can't be read, or the folder holds something else or is damaged.
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--out", required=True, metavar="DIR", help="folder of the cache")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--dry-run", action="store_true", help="print the bytes that the cache takes, and stop"
    )
    what.add_argument(
        "--verify", action="store_true", help="check every byte of a finished cache, and stop"
    )
    _add_content(parser)
    _add_target(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document")


def _add_content(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("what is kept")
    group.add_argument(
        "--answers",
        metavar="DIR",
        help="folder of `blockdraft data regenerate`; each folder of a recipe has its own cache",
    )
    group.add_argument(
        "--taps",
        type=values.id_list,
        metavar="LAYERS",
        help="zero-based target layers, like 1,8,14,20,27, in the drafter's order",
    )
    group.add_argument(
        "--dtype",
        choices=("bf16", "fp8"),
        default="bf16",
        help="of the numbers on disk; fp8 has a scale for each token and layer (default: bf16)",
    )
    group.add_argument(
        "--final",
        action="store_true",
        help="also keep what the target's LM head is given, for soft labels",
    )
    group.add_argument(
        "--max-tokens",
        type=values.count,
        metavar="N",
        help="cut answers at N tokens, prompt included: the recipe's value (default: 2048)",
    )
    group.add_argument("--limit", type=values.count, metavar="N", help="only the first N answers")
    group.add_argument(
        "--shard-size",
        type=values.byte_count,
        metavar="SIZE",
        help="of one file, like 256MiB (the default)",
    )


def _add_target(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("target")
    group.add_argument(
        "--target",
        default=DEFAULT_TARGET,
        metavar="MODEL",
        help="built-in name, folder, GGUF file or hub id (default: %(default)s)",
    )
    group.add_argument("--revision", help="commit, tag or branch of a target from the hub")
    group.add_argument(
        "--target-dtype",
        choices=DTYPES,
        default="auto",
        help="that the target computes in; auto = bfloat16, as in training",
    )
    group.add_argument("--device", help="torch device of the target (default: chosen by torch)")
    add_threads(group)


def run(args: Namespace) -> int:
    from blockdraft.cli.feature_run import make_features, verify_features

    return verify_features(args) if args.verify else make_features(args)
