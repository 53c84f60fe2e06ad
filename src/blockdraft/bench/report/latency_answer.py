"""Question 2: does end-to-end latency really fall, at the lightest load that was measured?

It compares with plain decoding of the same run.
"""

from blockdraft.bench.report.document import BenchDocument, Figures, Group, Load
from blockdraft.bench.report.evidence import (
    Estimate,
    best_lane,
    drafted_lanes,
    latency_speedup_of,
    lightest_load,
    main_lanes,
    plain_lane,
)
from blockdraft.bench.report.reply import Reply, no_drafts, noise_remark, percent, seconds, times

SLOWER_GROUP = 0.95
"""A category counts as slower below this speed-up: one category has few answers."""
NO_BASELINE = Reply(
    verdict="unknown",
    sentence="Plain decoding was not measured beside it; run `blockdraft bench` again with "
    "--baseline URL, the same engine without a drafter.",
    figures={},
)


def answer_latency(document: BenchDocument) -> Reply:
    load = lightest_load(document)
    if load is None or not drafted_lanes(document):
        return no_drafts(document)
    plain = plain_lane(document)
    base = None if plain is None else document.find(plain.name, load)
    lane = best_lane(document, main_lanes(document), [load])
    own = None if lane is None else document.find(lane.name, load)
    gain = latency_speedup_of(document, own)
    if base is None or own is None or gain is None:
        return NO_BASELINE
    slower = [group for group in _categories(own) if (group.speedup or 0) < SLOWER_GROUP]
    side = gain.side_of(1.0)
    verdict = "no" if side == "below" else "yes" if side == "above" and not slower else "mixed"
    return Reply(
        verdict=verdict,
        headline=f"{gain.value:.2f}x",
        sentence=_sentence(own, base, gain, load),
        detail=_detail(document, load, slower),
        figures=_numbers(own, base, gain, load),
    )


def _categories(figures: Figures) -> list[Group]:
    """Those with a speed-up, the highest first."""
    known = [group for group in figures.groups.get("category", ()) if group.speedup is not None]
    return sorted(known, key=lambda group: -(group.speedup or 0))


def _sentence(own: Figures, base: Figures, gain: Estimate, load: Load) -> str:
    parts = [f"End-to-end speed-up {times(gain)} at {load.phrase} ({own.lane})"]
    first, plain_first = own.first_token, base.first_token
    if first is not None and plain_first is not None and plain_first.p50 > 0:
        change = percent(first.p50 / plain_first.p50)
        parts.append(f"first token {seconds(first.p50)} ({change})")
    groups = _categories(own)
    if len(groups) > 1:
        best, worst = groups[0], groups[-1]
        parts.append(
            f"best in {best.title} ({best.speedup or 0:.2f}x), least in {worst.title} "
            f"({worst.speedup or 0:.2f}x)"
        )
    return "; ".join(parts) + "."


def _detail(document: BenchDocument, load: Load, slower: list[Group]) -> str:
    told = [
        "Time of whole answers, the prefill included, against plain decoding of the same prompts.",
        noise_remark(document, [load]),
    ]
    if slower:
        names = ", ".join(group.title for group in slower)
        told.append(f"Slower than plain decoding in: {names}.")
    lookup = best_lane(document, [x for x in drafted_lanes(document) if x.kind == "lookup"], [load])
    found = None if lookup is None else document.find(lookup.name, load)
    gain = latency_speedup_of(document, found)
    if lookup is not None and gain is not None:
        told.append(f"{lookup.name}, which needs no drafter, reaches {times(gain)}.")
    return " ".join(told)


def _numbers(own: Figures, base: Figures, gain: Estimate, load: Load) -> dict[str, object]:
    return {
        "lane": own.lane,
        "load": load.title,
        "speedup": gain.value,
        "speedup_range": gain.range,
        "first_token_p50": None if own.first_token is None else own.first_token.p50,
        "plain_first_token_p50": None if base.first_token is None else base.first_token.p50,
        "categories": {group.title: group.speedup for group in _categories(own)},
    }
