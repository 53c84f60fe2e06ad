"""Where words go: results to stdout, everything meant for people to stderr.

It formats no results; modules that do hand their lines to `emit`.
"""

import json
import sys


def emit(text: str, end: str = "\n") -> None:
    """Write a result to stdout and flush it, so that a reader sees it as soon as it exists."""
    sys.stdout.write(text + end)
    sys.stdout.flush()


def emit_json(value: object, indent: int | None = None) -> None:
    """Write one JSON value. ASCII only, so that U+2028 in a text can't break a line in two."""
    emit(json.dumps(value, ensure_ascii=True, allow_nan=False, indent=indent))


def say(text: str) -> None:
    """Write a line for people to stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def say_progress(text: str) -> None:
    """Like `say`, but only where someone is watching."""
    if sys.stderr.isatty():
        say(text)
