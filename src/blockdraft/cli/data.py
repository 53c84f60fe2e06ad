"""`blockdraft data`: the commands that make training data, one after the other.

It only picks one of them; each is a module of its own.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable

from blockdraft.cli import data_features, data_prepare, data_regenerate, data_self_prompt
from blockdraft.cli.commands import Command, add_commands

SUMMARY = "make training data: prompts, the target's answers, features"
EPILOG = """examples:
  blockdraft data prepare chats.jsonl --eval eval.jsonl --holdout 0.02 --out prompts
  blockdraft data prepare --help
"""


SUBCOMMANDS: dict[str, Command] = {
    "prepare": data_prepare,
    "self-prompt": data_self_prompt,
    "regenerate": data_regenerate,
    "features": data_features,
}


def add_arguments(parser: ArgumentParser) -> None:
    add_commands(parser, SUBCOMMANDS, "run_data")


def run(args: Namespace) -> int:
    run_data: Callable[[Namespace], int] = args.run_data
    return run_data(args)
