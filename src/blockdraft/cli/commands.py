"""What a command's module has, and how a table of them becomes subcommands of a parser."""

from argparse import SUPPRESS, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Mapping
from typing import Protocol


class Command(Protocol):
    """What a subcommand's module has."""

    @property
    def SUMMARY(self) -> str: ...

    @property
    def EPILOG(self) -> str: ...

    @staticmethod
    def add_arguments(parser: ArgumentParser) -> None: ...

    @staticmethod
    def run(args: Namespace) -> int: ...


def add_commands(parser: ArgumentParser, commands: Mapping[str, Command], run_name: str) -> None:
    """Make `commands` subcommands of `parser`; the chosen one's `run` is put under `run_name`."""
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, command in commands.items():
        subparser = subparsers.add_parser(
            name,
            help=command.SUMMARY,
            description=f"{command.SUMMARY[0].upper()}{command.SUMMARY[1:]}.",
            epilog=command.EPILOG,
            formatter_class=RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.add_arguments(subparser)
        add_traceback_flag(subparser)
        subparser.set_defaults(**{run_name: command.run})


def add_traceback_flag(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--traceback", action="store_true", default=SUPPRESS, help="show where an error came from"
    )
