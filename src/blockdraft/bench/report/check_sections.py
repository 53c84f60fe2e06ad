"""Sections about trust: are greedy answers those of plain decoding, what failed, where time went.

Values in, values out.
"""

from blockdraft.bench.report.document import BenchDocument, Quality
from blockdraft.bench.report.evidence import lightest_load
from blockdraft.bench.report.section import Section, Table, told

MOST_DIVERGENCES = 20
MOST_FAILURES = 20


def quality_section(document: BenchDocument) -> Section | None:
    if not document.quality:
        return None
    compared = [one for one in document.quality if one.compared]
    rows = tuple(
        (one.lane, str(one.compared), str(one.identical), str(_near_ties(one)), str(_real(one)))
        for one in compared
    )
    notes = [f"{one.lane}: {one.reason}" for one in document.quality if one.reason]
    for one in compared:
        shown = one.divergences[:MOST_DIVERGENCES]
        notes += [
            f"{one.lane}: {d.id} parts at token {d.position}, top-two margin "
            f"{'not known' if d.margin is None else f'{d.margin:.3g}'}"
            f"{' (a near-tie)' if d.near_tie else ''}"
            for d in shown
        ]
        if len(one.divergences) > len(shown):
            notes.append(f"{one.lane}: {len(one.divergences) - len(shown)} more, in results.json")
    return Section(
        key="quality",
        title="Are the answers the same?",
        reading=_quality_told(compared),
        table=Table(headings=("lane", "compared", "identical", "near-ties", "other"), rows=rows)
        if rows
        else None,
        notes=tuple(notes),
    )


def _near_ties(one: Quality) -> int:
    return sum(divergence.near_tie for divergence in one.divergences)


def _real(one: Quality) -> int:
    return len(one.divergences) - _near_ties(one)


def _quality_told(compared: list[Quality]) -> str:
    total, same = sum(q.compared for q in compared), sum(q.identical for q in compared)
    ties, other = sum(map(_near_ties, compared)), sum(map(_real, compared))
    if not total:
        return "Nothing was compared with plain decoding."
    if same == total:
        return f"All {total} greedy answers are token for token those of plain decoding."
    text = f"{same} of {total} greedy answers are token for token those of plain decoding"
    if other:
        return f"{text}; {other} part where the target was not undecided: find out why."
    return f"{text}; the other {ties} part at a near-tie, where rounding turns the choice."


def share_section(document: BenchDocument) -> Section | None:
    """Where the time of a step goes, and energy."""
    load = lightest_load(document)
    found = [] if load is None else [document.find(lane.name, load) for lane in document.lanes]
    shares = [
        f
        for f in found
        if f is not None
        and (f.draft_share is not None or f.other_share is not None or f.joules_per_token)
    ]
    if load is None or not shares:
        return None
    most = max(shares, key=lambda f: f.draft_share or 0.0)
    energy = document.energy_source
    why = document.energy_reason or "the platform does not tell"
    return Section(
        key="shares",
        title="Where the time of a step goes",
        reading=f"At {load.phrase}. Drafting takes most in {most.lane}: "
        f"{told(100 * (most.draft_share or 0.0), 0)}% of its time. "
        + (f"Energy from {energy}." if energy else f"Energy is not known: {why}."),
        table=Table(
            headings=("lane", "draft", "verify", "the rest", "J a token"),
            rows=tuple(
                (
                    f.lane,
                    _share(f.draft_share),
                    _share(_verify_share(f.draft_share, f.other_share)),
                    _share(f.other_share),
                    told(f.joules_per_token, 3),
                )
                for f in shares
            ),
        ),
    )


def _share(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:.1f}%"


def _verify_share(draft: float | None, other: float | None) -> float | None:
    return None if other is None else 1 - (draft or 0.0) - other


def _failed_told(failed: int) -> str:
    if not failed:
        return "No request failed."
    return f"{failed} request{'' if failed == 1 else 's'} failed."


def trouble_section(document: BenchDocument) -> Section | None:
    """Requests that failed, warnings, missing parts; each once."""
    notes: list[str] = []
    if not document.is_complete:
        notes.append("The run was not measured to its end; figures are of what there is.")
    failed = sum(level.failed for level in document.levels)
    for level in document.levels:
        where = f"{level.lane}, {level.load.title}"
        notes += [f"{where}: {failure}" for failure in level.failures]
        notes += [f"{where}: {warning}" for warning in level.warnings]
        lane = document.lane(level.lane)
        if level.reason and (lane is None or not lane.is_plain):
            notes.append(f"{where}: tau is not known: {level.reason}")
        if not level.is_complete:
            notes.append(f"{where}: broken off at {level.answered} of {level.planned} requests")
    notes += [f"{lane.name}: {lane.note}" for lane in document.lanes if lane.note]
    notes = list(dict.fromkeys(notes))
    if not notes:
        return None
    shown = notes[:MOST_FAILURES]
    if len(notes) > len(shown):
        shown.append(f"{len(notes) - len(shown)} more, in results.json")
    return Section(
        key="trouble",
        title="Failures, warnings and notes",
        reading=_failed_told(failed),
        notes=tuple(shown),
    )
