"""The command `blockdraft`: picks a subcommand, runs it, turns errors into exit codes.

Exit codes: 0 = done, 1 = it ran but something failed or differs, 2 = a mistake in what was asked,
130 = interrupted, 141 = the reader of stdout went away. What the subcommands do is in their own
modules.
"""

import io
import logging
import os
import sys
import traceback
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from typing import NoReturn

from blockdraft import __version__
from blockdraft.cli import (
    bench,
    check,
    data,
    demo,
    export,
    generate,
    inspect,
    launch,
    models,
    serve,
    train,
    tune,
    verify,
)
from blockdraft.cli import eval as evaluate
from blockdraft.cli import report as report_page
from blockdraft.cli.commands import Command, add_commands, add_traceback_flag
from blockdraft.cli.console import say
from blockdraft.errors import (
    DrafterError,
    EngineFault,
    Error,
    FetchError,
    NumericsError,
    TrainingFault,
)

DESCRIPTION = """Lossless block-diffusion speculative decoding (DFlash).

A small drafter proposes a block of tokens, the target model verifies them in one pass: the text is
the target's own, only sooner.
"""

EPILOG = """start with:
  blockdraft demo                    watch the built-in model answer, plainly and with its drafter
  blockdraft generate "your prompt"  answer with it
  blockdraft verify                  check the promise that the text does not change
  blockdraft bench --quick           measure what drafts gain on this machine

exit codes:
  0    done
  1    it ran but failed: a text differs, a prompt of a file has no answer, logits are not finite,
       a model could not be fetched
  2    a mistake in what was asked: arguments, prompts, a model that is missing or does not fit
  130  interrupted
  141  the reader of the output went away
"""

NOT_THE_USERS_MISTAKE = (NumericsError, DrafterError, EngineFault, FetchError, TrainingFault)


COMMANDS: dict[str, Command] = {
    "demo": demo,
    "generate": generate,
    "serve": serve,
    "verify": verify,
    "inspect": inspect,
    "models": models,
    "data": data,
    "train": train,
    "eval": evaluate,
    "check": check,
    "export": export,
    "launch": launch,
    "bench": bench,
    "report": report_page,
    "tune": tune,
}


class OneLineParser(ArgumentParser):
    """An argument parser whose error is one line that points to the help of its own command."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]: its overloads
        self, args: Sequence[str] | None = None, namespace: Namespace | None = None
    ) -> tuple[Namespace, list[str]]:
        """What is not known is an error here: argparse would leave it to the outermost parser,
        which knows neither the command nor its flags."""
        found, unknown = super().parse_known_args(args, namespace or Namespace())
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._meant(unknown)}")
        return found, unknown

    def _meant(self, unknown: Sequence[str]) -> str:
        """Flags that are spelled nearly like those of `unknown`, as the end of a message."""
        known = [flag[2:] for flag in self._option_string_actions if flag.startswith("--")]
        given = [word[2:].partition("=")[0] for word in unknown if word.startswith("--")]
        near = [f"--{match}" for word in given for match in get_close_matches(word, known, n=1)]
        return f"; did you mean {' '.join(dict.fromkeys(near))}?" if near else ""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `blockdraft argv` and return its exit code; argparse's own exits raise SystemExit."""
    make_output_safe()
    args = build_parser().parse_args(argv)
    run: Callable[[Namespace], int] = args.run
    show_traceback: bool = args.traceback
    try:
        with warnings_on_stderr(full=show_traceback):
            code = run(args)
        sys.stdout.flush()
        return code
    except Error as error:
        code = 1 if isinstance(error, NOT_THE_USERS_MISTAKE) else 2
        return report(error, f"blockdraft: error: {error}", code=code, full=show_traceback)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        discard_stdout()
        return 141  # what a shell reports for a program ended by SIGPIPE
    except Exception as error:  # noqa: BLE001 - a defect of ours, told in one line
        text = f"blockdraft: unexpected {type(error).__name__}: {error} (--traceback shows where)"
        return report(error, text, code=1, full=show_traceback)


def build_parser() -> ArgumentParser:
    parser = OneLineParser(
        prog="blockdraft",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"blockdraft {__version__}")
    parser.set_defaults(traceback=False)
    add_traceback_flag(parser)
    add_commands(parser, COMMANDS, "run")
    return parser


def report(error: BaseException, text: str, *, code: int, full: bool) -> int:
    """Say one line about `error`, or its traceback when `full`; returns `code`."""
    if full:
        traceback.print_exception(error)
    say(" ".join(text.split()))
    return code


def make_output_safe() -> None:
    """A character that the terminal can't show is replaced, instead of ending the program."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def discard_stdout() -> None:
    """Point stdout at nothing, so that its last flush does not complain again."""
    with suppress(io.UnsupportedOperation):  # raised where no file is behind it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class OneLineFormatter(logging.Formatter):
    """Log messages without the traceback that may hang on them, unless `full`."""

    def __init__(self, *, full: bool) -> None:
        super().__init__("blockdraft: %(levelname)s: %(message)s")
        self._full = full

    def format(self, record: logging.LogRecord) -> str:
        if self._full:
            return super().format(record)
        record = logging.makeLogRecord(record.__dict__)
        record.exc_info = record.exc_text = record.stack_info = None
        return super().format(record)


@contextmanager
def warnings_on_stderr(*, full: bool = False) -> Generator[None, None, None]:
    """Blockdraft's log messages go to stderr, one line each, for as long as a command runs.

    `full` adds the traceback of what was logged with one.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLineFormatter(full=full))
    logger = logging.getLogger("blockdraft")
    was_propagating = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = was_propagating


if __name__ == "__main__":
    sys.exit(main())
