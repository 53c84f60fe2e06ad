"""Rules on what decoding here measured, against what the drafter's makers recorded.

The decoding is in `check/live.py`.
"""

from blockdraft.check.facts import LiveOutcome, PairFacts
from blockdraft.check.findings import Rule, Verdict

MIN_STEPS = 24
"""Fewer verifications decide nothing."""

FAR_SHARE = 0.5
LOW_SHARE = 0.8
"""Shares of the recorded gain (tau - 1) that the 95% interval of the measured one must reach."""

_CAUSES = (
    "Look at the tapped layers, the chat template and thinking mode, the LM head and vocabulary "
    "map, and whether this is the target of the training (quantized ones accept less)."
)


def far_below(pair: PairFacts) -> Verdict | None:
    if _reached(pair) is None or not _misses(pair, FAR_SHARE):
        return None
    return Verdict(_figures(pair, "less than half of the recorded gain"), _CAUSES)


def below(pair: PairFacts) -> Verdict | None:
    if _reached(pair) is None or not _misses(pair, LOW_SHARE) or _misses(pair, FAR_SHARE):
        return None
    return Verdict(
        _figures(pair, "less than 80% of the recorded gain"),
        "These few prompts may be harder than those of the record: measure with `blockdraft eval` "
        f"on your own. {_CAUSES}",
    )


def nothing_accepted(pair: PairFacts) -> Verdict | None:
    """Without a record only a drafter that never is right stands out."""
    live = pair.live
    if live is None or live.tau is None or pair.drafter.record.tau is not None:
        return None
    if live.num_steps < 4 * MIN_STEPS or live.tau > 1.02:
        return None
    return Verdict(
        f"Decoding here accepted practically nothing (tau {live.tau:.2f} over {live.num_steps} "
        "verifications), and no engine will accept more.",
        _CAUSES,
    )


def not_run(pair: PairFacts) -> Verdict | None:
    if pair.live is None or pair.live.skipped is None:
        return None
    return Verdict(
        f"Acceptance was not measured: {pair.live.skipped}.",
        "Check again with both folders complete on this machine.",
    )


def as_recorded(pair: PairFacts) -> Verdict | None:
    if _reached(pair) is None or _misses(pair, LOW_SHARE):
        return None
    return Verdict(_figures(pair, "as recorded, within what these prompts can tell"), "Nothing.")


def _reached(pair: PairFacts) -> LiveOutcome | None:
    """The outcome, when it can be compared."""
    live, recorded = pair.live, pair.drafter.record.tau
    if live is None or live.tau is None or live.high is None or recorded is None:
        return None
    return live if live.num_steps >= MIN_STEPS else None


def _misses(pair: PairFacts, share: float) -> bool:
    live, recorded = pair.live, pair.drafter.record.tau
    assert live is not None and live.high is not None and recorded is not None
    return live.high - 1 < share * (recorded - 1)


def _figures(pair: PairFacts, verdict: str) -> str:
    live = pair.live
    assert live is not None and live.tau is not None
    return (
        f"Decoding {live.num_prompts} prompts here gave tau {live.tau:.2f} (95% interval "
        f"{live.low:.2f} to {live.high:.2f}, {live.num_steps} verifications), recorded is "
        f"{pair.drafter.record.tau:.2f}: {verdict}."
    )


RULES = (
    Rule("DFL900", "error", "all", "measured acceptance far below the recorded one", far_below),
    Rule("DFL901", "warning", "all", "measured acceptance below the recorded one", below),
    Rule("DFL902", "error", "all", "practically nothing accepted", nothing_accepted),
    Rule("DFL903", "note", "all", "acceptance not measured", not_run),
    Rule("DFL904", "note", "all", "acceptance as recorded", as_recorded),
)
