"""`blockdraft data`: the commands that make training data, one after the other.

It only picks one of them; each is a module of its own.
"""

from argparse import SUPPRESS, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable
from typing import Protocol

from blockdraft.cli import data_features, data_prepare, data_regenerate, data_self_prompt

SUMMARY = "make training data: prompts, the target's answers, features"
EPILOG = """examples:
  blockdraft data prepare chats.jsonl --eval eval.jsonl --holdout 0.02 --out prompts
  blockdraft data prepare --help
"""


class Subcommand(Protocol):
    """What the module of a command below `data` has."""

    @property
    def SUMMARY(self) -> str: ...

    @property
    def EPILOG(self) -> str: ...

    @staticmethod
    def add_arguments(parser: ArgumentParser) -> None: ...

    @staticmethod
    def run(args: Namespace) -> int: ...


SUBCOMMANDS: dict[str, Subcommand] = {
    "prepare": data_prepare,
    "self-prompt": data_self_prompt,
    "regenerate": data_regenerate,
    "features": data_features,
}


def add_arguments(parser: ArgumentParser) -> None:
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, command in SUBCOMMANDS.items():
        subparser = subparsers.add_parser(
            name,
            help=command.SUMMARY,
            description=f"{command.SUMMARY[0].upper()}{command.SUMMARY[1:]}.",
            epilog=command.EPILOG,
            formatter_class=RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.add_arguments(subparser)
        subparser.add_argument(
            "--traceback",
            action="store_true",
            default=SUPPRESS,
            help="show where an error came from",
        )
        subparser.set_defaults(run_data=command.run)


def run(args: Namespace) -> int:
    run_data: Callable[[Namespace], int] = args.run_data
    return run_data(args)
