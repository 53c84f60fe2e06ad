"""`blockdraft inspect`: what a drafter checkpoint is, or what a target is and what runs it.

Arguments only, and what a drafter needs; it loads no target and runs nothing.
"""

from argparse import ArgumentParser, Namespace

from blockdraft.cli import values

SUMMARY = "say what a drafter is and which target it fits, or which engine runs a target"
EPILOG = """examples:
  blockdraft inspect smollm2
  blockdraft inspect ./my-drafter --json
  blockdraft inspect owner/name --revision 0123abc
  blockdraft inspect --target smollm2
  blockdraft inspect --target ./qwen3

--target tells from the configuration alone whether the native engine runs a target, and if not,
why; transformers runs it then (--engine hf). No weights are read.
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="folder, hub id or built-in name")
    parser.add_argument(
        "--target", action="store_true", help="PATH names a target (a folder of one is recognized)"
    )
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
    from blockdraft.cli.target_report import describe_target, is_target_folder
    from blockdraft.errors import ConfigError

    name: str = args.path
    if args.target or is_target_folder(name):
        if args.taps is not None:
            raise ConfigError("--taps belong to a drafter; drop --taps or --target")
        report = describe_target(name, args.revision)
        if args.json:
            emit_json(report.to_json(), indent=2)
        else:
            emit(report.to_text())
        return 0
    path = builtin_drafter_path(name) or name
    summary = describe(load_checkpoint(path, revision=args.revision, taps=args.taps))
    if args.json:
        emit_json(summary.to_json(), indent=2)
    else:
        emit(render_text(summary))
    return 0
