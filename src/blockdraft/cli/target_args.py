"""Arguments of the commands in which the target writes: the model, and its chat template.

They load nothing; that is `answer_loading.py`.
"""

from argparse import ArgumentParser

from blockdraft.cli import values
from blockdraft.cli.args import (
    DTYPES,
    ENGINES,
    QUANTIZATIONS,
    add_kv_memory,
    add_template_arg,
    add_threads,
)

DEFAULT_SLOTS = 64
DEFAULT_CONTEXT = 2048
DEFAULT_CONCURRENCY = 64


def add_target_args(parser: ArgumentParser) -> None:
    """The model, and how it runs in this process."""
    group = parser.add_argument_group("target")
    group.add_argument(
        "--target", required=True, metavar="MODEL", help="built-in name, folder, GGUF file, hub id"
    )
    group.add_argument("--revision", help="commit, tag or branch of a target from the hub")
    group.add_argument(
        "--dtype",
        choices=DTYPES,
        default="auto",
        help="auto (default) = the faster of float32 and bfloat16 here, by measuring; a continued "
        "run keeps what was chosen",
    )
    group.add_argument("--quantize", choices=QUANTIZATIONS, help="round the target's weights")
    group.add_argument("--engine", choices=ENGINES, default="auto", help="default: auto")
    group.add_argument("--device", help="torch device (default: chosen by torch)")
    add_threads(group)
    group.add_argument(
        "--drafter",
        default="none",
        metavar="MODEL",
        help="draft with this one, where that is faster than decoding so many at once plainly; the "
        "answers do not depend on it (default: none)",
    )
    group.add_argument(
        "--slots",
        type=values.count,
        default=DEFAULT_SLOTS,
        metavar="N",
        help="answers that are generated at once (default: %(default)s)",
    )
    group.add_argument(
        "--max-context",
        type=values.count,
        default=DEFAULT_CONTEXT,
        metavar="N",
        help="tokens of a prompt and its answer together (default: %(default)s)",
    )
    add_kv_memory(group)
    # What loading a pair asks for and nobody needs to choose here.
    parser.set_defaults(
        taps=None, drafter_revision=None, batch_invariant="off", width=None, compile=False
    )


def add_template_args(parser: ArgumentParser, *, raw: bool) -> None:
    """What the chat template makes of a conversation."""
    group = parser.add_argument_group("chat template")
    add_template_arg(group)
    group.add_argument(
        "--system",
        metavar="TEXT",
        help="system text of conversations that bring none (default: none is given, and the "
        "template may add its own)",
    )
    if raw:
        group.add_argument("--raw", action="store_true", help="do not apply the chat template")
