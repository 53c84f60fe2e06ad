"""`blockdraft inspect`: what a drafter checkpoint is.

It loads no target and runs nothing.
"""

from argparse import ArgumentParser, Namespace

from blockdraft.cli import values

SUMMARY = "say what a drafter checkpoint is and which target it fits"
EPILOG = """examples:
  blockdraft inspect smollm2
  blockdraft inspect ./my-drafter --json
  blockdraft inspect owner/name --revision 0123abc
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="folder, hub id or built-in name")
    parser.add_argument("--revision", help="commit, tag or branch of a hub id")
    parser.add_argument(
        "--taps",
        type=values.id_list,
        metavar="LAYERS",
        help="zero-based target layers, like 1,8,14, for a checkpoint that does not say",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(args: Namespace) -> int:
    from blockdraft.builtin import builtin_drafter_path
    from blockdraft.checkpoint import describe, load_checkpoint, render_text
    from blockdraft.cli.console import emit, emit_json

    name: str = args.path
    path = builtin_drafter_path(name) or name
    summary = describe(load_checkpoint(path, revision=args.revision, taps=args.taps))
    if args.json:
        emit_json(summary.to_json(), indent=2)
    else:
        emit(render_text(summary))
    return 0
