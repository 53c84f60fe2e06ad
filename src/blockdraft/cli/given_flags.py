"""Which flags of a group a command line gives, so that none is passed over in silence.

It adds no flag and judges none.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import cast


def given_flags(args: Namespace, add: Callable[[ArgumentParser], None]) -> list[str]:
    """Of the flags that `add` adds, those with another value than when they are left out."""
    parser = ArgumentParser(add_help=False)
    add(parser)
    left_out = cast("dict[str, object]", vars(parser.parse_args([])))
    return [
        f"--{name.replace('_', '-')}"
        for name, value in left_out.items()
        if getattr(args, name) != value
    ]
