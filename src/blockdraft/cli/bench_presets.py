"""`--quick` and `--full`: what is measured in process where the user does not say it.

Values only; whatever is given on the command line wins.
"""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from blockdraft.cli.workload_args import read_arrivals
from blockdraft.engine import WidthMode, parse_width
from blockdraft.errors import ConfigError

if TYPE_CHECKING:
    from blockdraft.bench import Arrival, Workload

CONCURRENCIES = {"quick": (1, 2, 4, 8), "full": (1, 2, 4, 8, 16)}
WIDTHS = {
    "quick": ("fixed:4", "fixed:8", "auto"),
    "full": ("fixed:2", "fixed:3", "fixed:4", "fixed:6", "fixed:8", "fixed:12", "fixed:16", "auto"),
}
REPEATS = {"quick": (2, 1), "full": (3, 3)}
"""Of the first arrival pattern, and of the others."""
MAX_TOKENS = {"quick": 24, "full": 256}
LEAST_REQUESTS = {"quick": 6, "full": None}
"""Requests of a level: so many, or two for each that runs at a time; None: every prompt."""


@dataclass(frozen=True, slots=True)
class Preset:
    """The chosen preset and the arguments with its values filled in."""

    name: str
    args: Namespace
    widths: tuple[WidthMode, ...]
    least_requests: int | None

    def arrivals(self, workload: "Workload") -> "list[Arrival]":
        return read_arrivals(self.args, workload)

    @property
    def repeats(self) -> tuple[int, ...]:
        """For each arrival pattern."""
        given: int | None = self.args.repeats
        first, others = REPEATS[self.name] if given is None else (given, given)
        return (first, *[others] * (self._num_arrivals - 1))

    @property
    def _num_arrivals(self) -> int:
        patterns: Sequence[object] | None = self.args.rate or self.args.concurrency
        return 1 if self.args.arrivals is not None else len(patterns or [None])


def choose_preset(args: Namespace) -> Preset:
    """`--full` where it is asked for, `--quick` otherwise. Raises ConfigError for a bad width."""
    name = "full" if args.full else "quick"
    filled = Namespace(**vars(args))
    if args.concurrency is None and args.rate is None and args.arrivals is None:
        filled.concurrency = list(CONCURRENCIES[name])
    if args.max_tokens is None:
        filled.max_tokens = MAX_TOKENS[name]
    asked: list[str] = args.width or list(WIDTHS[name])
    widths = tuple(parse_width(text) for text in asked)
    if any(width.kind == "off" for width in widths):
        raise ConfigError("--width off is plain decoding, which is measured anyway; drop it")
    if any(width.width == 1 for width in widths):
        raise ConfigError("--width fixed:1 drafts nothing; give 2 or more, the anchor counts")
    return Preset(name, filled, widths, LEAST_REQUESTS[name])
