"""How far off a figure may be that was measured once, from what the run itself shows.

Values in, values out; what is done with it is `evidence.py`. docs/report.md states the rule.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from blockdraft.bench.report.document import BenchDocument, Figures, Range

LEAST_ONCE = 0.05
"""Of a ratio of times that was measured once, however quiet the run was."""
FEW_ANSWERS = 5
"""Below it, a spread over answers says too little."""


class OnceNoise(NamedTuple):
    """What is assumed either way, as a share, and what in the run says so."""

    share: float
    source: Literal["repeats", "answers", "assumed"]


def speedup_noise(document: BenchDocument) -> OnceNoise:
    """Of a speed-up that was measured once."""
    return _once_noise(document, (f.speedup_spread for f in _repeated(document)))


def total_noise(document: BenchDocument) -> OnceNoise:
    """Of tokens a second that were measured once: what slows all lanes does not cancel there."""
    return _once_noise(document, (f.tokens_per_second_spread for f in _repeated(document)))


def _repeated(document: BenchDocument) -> list[Figures]:
    return [figures for figures in document.figures if figures.repeats > 1]


def _once_noise(document: BenchDocument, spreads: Iterable[Range | None]) -> OnceNoise:
    """As far as two repeats of one lane lie apart anywhere in the run; without repeats, as far as
    plain answers do."""
    # Where both ends are one, there was one ratio only.
    apart = [high / low - 1 for low, high in filter(None, spreads) if high > low > 0]
    if apart:
        return OnceNoise(max(LEAST_ONCE, *apart), "repeats")
    answers = _plain_answers_apart(document)
    if answers is None:
        return OnceNoise(LEAST_ONCE, "assumed")
    return OnceNoise(max(LEAST_ONCE, answers), "answers")


def _plain_answers_apart(document: BenchDocument) -> float | None:
    """From the median time between tokens of plain answers up to 90% of them.

    One at a time only: beside others, an answer waits for their prompts by turns.
    """
    plain = {lane.name for lane in document.lanes if lane.is_plain}
    for figures in document.figures:
        times = figures.inter_token
        is_alone = figures.lane in plain and figures.load.concurrency == 1
        if is_alone and times is not None and times.num >= FEW_ANSWERS and times.p50 > 0:
            return times.p90 / times.p50 - 1
    return None
