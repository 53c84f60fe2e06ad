"""`Reply`: the answer to one question, and the words that all answers share.

It decides nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from blockdraft.bench.report.document import BenchDocument, Load, Verdict
from blockdraft.bench.report.evidence import Estimate
from blockdraft.bench.report.noise import speedup_noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """`headline` is the figure in a word or two, `detail` says how it was decided; both may be
    empty. `figures` are the numbers of the sentence."""

    verdict: Verdict
    sentence: str
    figures: Mapping[str, object]
    headline: str = ""
    detail: str = ""


def times(estimate: Estimate, *, has_range: bool = True) -> str:
    """A speed-up: "1.62x (1.58 to 1.66)"."""
    told = f"{estimate.value:.2f}x"
    return f"{told} ({estimate.low:.2f} to {estimate.high:.2f})" if has_range else told


def seconds(value: float) -> str:
    """A time for people: ms below a second."""
    if value >= 1:
        return f"{value:.3g} s" if value < 100 else f"{value:.0f} s"
    ms = value * 1000
    return f"{ms:.3g} ms"


def percent(ratio: float) -> str:
    """A change, with its sign: 1.2 is "+20%"."""
    return f"{100 * (ratio - 1):+.0f}%"


def listed(words: Sequence[str]) -> str:
    """ "a, b and c"."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def noise_remark(document: BenchDocument, loads: Sequence[Load]) -> str:
    """What the ranges of the speed-ups are made of, where some were measured once."""
    repeats = {f.repeats for f in document.figures if f.load in loads}
    if not repeats or min(repeats) >= 2:
        return "Ranges hold all repeats, and at least 2% either way."
    noise = speedup_noise(document)
    why = {
        "repeats": ", as far as repeats lie apart in this run",
        "answers": ", as far as plain answers lie apart in this run; --repeats 3 tells more",
        "assumed": "",
    }[noise.source]
    told = f"{noise.share:.0%} either way is assumed"
    if max(repeats) < 2:
        return f"Measured once: {told}{why}."
    return f"Measured once at some loads: {told} there{why}."


def no_drafts(document: BenchDocument) -> Reply:
    """Where no lane drafts."""
    if document.is_endpoint:
        what = "The endpoint told nothing about drafts; measure one that drafts"
    elif not document.figures:
        what = "Nothing was measured to its end; run `blockdraft bench` again"
    else:
        what = "No lane drafted; run `blockdraft bench` with a drafter"
    return Reply(verdict="unknown", sentence=f"{what}.", figures={})
