"""The command line of a bench as its results keep it, so that it can be run again or gone on with.

It holds no secrets: a key comes from a variable that is only named, and addresses lose theirs.
"""

import shlex
import sys
from collections.abc import Sequence

PROGRAM = "blockdraft"


def command_line(argv: Sequence[str] | None = None) -> str:
    """One line for a shell, of this process's own arguments unless `argv` (without the program)."""
    from blockdraft.bench.config import without_secrets

    words = sys.argv[1:] if argv is None else argv
    return shlex.join([PROGRAM, *(without_secrets(word) for word in words)])


def resume_command(argv: Sequence[str] | None = None) -> str:
    """The same line with --resume, to go on after an interrupt."""
    words = sys.argv[1:] if argv is None else argv
    return command_line([*words, *([] if "--resume" in words else ["--resume"])])
