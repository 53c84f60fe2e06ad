"""Question 5: does the pair fit the serving stack in use?

The verdicts of the engines are those of `blockdraft check`, put into the document by the command.
"""

from collections.abc import Sequence
from textwrap import shorten

from blockdraft.bench.report.conditions import drafters_of
from blockdraft.bench.report.document import BenchDocument, StackVerdict, Verdict
from blockdraft.bench.report.evidence import drafted_lanes
from blockdraft.bench.report.reply import Reply, listed

LONGEST_FINDING = 90
SOURCE = "Verdicts of `blockdraft check`, which docs/check.md explains code by code."


def answer_stack(document: BenchDocument) -> Reply:
    stack = document.stack
    if not stack:
        return _not_checked(document)
    in_use = document.conditions.get("engine") if document.is_endpoint else None
    asked = [one for one in stack if one.engine == in_use] or list(stack)
    pairs: dict[str | None, list[StackVerdict]] = {}
    for one in asked:
        pairs.setdefault(one.drafter, []).append(one)
    return _of_several(pairs) if len(pairs) > 1 else _of_one(asked, stack)


def _of_one(asked: Sequence[StackVerdict], stack: Sequence[StackVerdict]) -> Reply:
    """Of the only drafter; `figures` are of all engines."""
    ready, problems, unknown = _sorted(asked)
    parts = [
        f"{word}: {listed([_named(one) for one in some])}."
        for word, some in (("Ready", ready), ("Problems", problems), ("Not told", unknown))
        if some
    ]
    reasons = {one.findings for one in unknown}
    if len(unknown) == len(asked) > 1 and len(reasons) == 1:
        parts = [f"Not told for any engine: {_reason(unknown[0])}."]
    return Reply(
        verdict=_judged(asked),
        headline=f"{len(ready)} of {len(asked)}",
        sentence=" ".join(parts),
        detail=SOURCE,
        figures={one.engine: one.verdict for one in stack},
    )


def _of_several(pairs: dict[str | None, list[StackVerdict]]) -> Reply:
    """A drafter fits that is ready for all engines; each is told, reasons are in the detail."""
    verdicts: list[Verdict] = [_judged(asked) for asked in pairs.values()]
    verdict = verdicts[0] if len(set(verdicts)) == 1 else "mixed"
    reasons = [
        f"{drafter or 'the drafter'}, {_named(one)}."
        for drafter, asked in pairs.items()
        for one in asked
        if one.verdict != "ready"
    ]
    return Reply(
        verdict=verdict,
        headline=f"{verdicts.count('yes')} of {len(pairs)} drafters",
        sentence=" ".join(
            f"{drafter or 'The drafter'}: {_course(asked)}." for drafter, asked in pairs.items()
        ),
        detail=" ".join(
            [f"Each drafter is judged; one fits that is ready for all engines. {SOURCE}", *reasons]
        ),
        figures={
            drafter or "": {one.engine: one.verdict for one in asked}
            for drafter, asked in pairs.items()
        },
    )


def _sorted(asked: Sequence[StackVerdict]) -> tuple[list[StackVerdict], ...]:
    """Ready, with problems, and those that nothing is known of."""
    return (
        [one for one in asked if one.verdict == "ready"],
        [one for one in asked if one.verdict == "problems"],
        [one for one in asked if one.verdict not in ("ready", "problems")],
    )


def _judged(asked: Sequence[StackVerdict]) -> Verdict:
    ready, problems, unknown = _sorted(asked)
    if not ready and not problems:
        return "unknown"
    return "yes" if not problems and not unknown else "no" if not ready else "mixed"


def _course(asked: Sequence[StackVerdict]) -> str:
    """One of several drafters: "ready for vllm and sglang, problems with llamacpp"."""
    parts = [
        f"{phrase} {_engines(some, len(asked))}"
        for phrase, some in zip(
            ("ready for", "problems with", "not told for"), _sorted(asked), strict=True
        )
        if some
    ]
    return ", ".join(parts)


def _engines(some: Sequence[StackVerdict], num_all: int) -> str:
    if len(some) == num_all > 1:
        return f"all {num_all} engines"
    return listed([one.engine for one in some])


def _named(one: StackVerdict) -> str:
    """With its first error where there is a problem."""
    if one.verdict == "ready" or not one.findings:
        return one.engine
    return f"{one.engine} ({_reason(one)})"


def _reason(one: StackVerdict) -> str:
    finding = next((text for text in one.findings if " error" in text), "")
    return shorten(finding or " ".join(one.findings[:1]), LONGEST_FINDING, placeholder=" ..")


def _not_checked(document: BenchDocument) -> Reply:
    target = document.conditions.get("target") or "TARGET"
    drafters = drafters_of(document)
    drafter = drafters[0] if drafters else "DRAFTER"
    command = f"blockdraft check --target {target} --drafter {drafter}"
    seen = ""
    if document.is_endpoint:
        command = "blockdraft check --target TARGET --drafter DRAFTER"
        taus = [f.tau for f in document.figures if f.tau is not None]
        engine = document.conditions.get("engine")
        if taus and drafted_lanes(document):
            seen = f" The {engine} engine did draft here, with a tau of up to {max(taus):.2f}."
    elif len(drafters) > 1:
        seen = f" Do the same for {listed(drafters[1:])}."
    return Reply(
        verdict="unknown",
        sentence=f"No engine's verdict is in this run; `{command}` tells.{seen}",
        figures={"command": command},
    )
