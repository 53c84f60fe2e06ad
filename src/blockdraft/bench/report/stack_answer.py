"""Question 5: does the pair fit the serving stack in use?

The verdicts of the engines are those of `blockdraft check`, put into the document by the command.
"""

from textwrap import shorten

from blockdraft.bench.report.conditions import drafters_of
from blockdraft.bench.report.document import BenchDocument, StackVerdict
from blockdraft.bench.report.evidence import drafted_lanes
from blockdraft.bench.report.reply import Reply, listed

LONGEST_FINDING = 90


def answer_stack(document: BenchDocument) -> Reply:
    stack = document.stack
    if not stack:
        return _not_checked(document)
    in_use = document.conditions.get("engine") if document.is_endpoint else None
    asked = [one for one in stack if one.engine == in_use] or list(stack)
    ready = [one for one in asked if one.verdict == "ready"]
    problems = [one for one in asked if one.verdict == "problems"]
    unknown = [one for one in asked if one.verdict not in ("ready", "problems")]
    verdict = "unknown"
    if ready or problems:
        verdict = "yes" if not problems and not unknown else "no" if not ready else "mixed"
    parts = [
        f"{word}: {listed([_named(one) for one in some])}."
        for word, some in (("Ready", ready), ("Problems", problems), ("Not told", unknown))
        if some
    ]
    return Reply(
        verdict=verdict,
        headline=f"{len(ready)} of {len(asked)}",
        sentence=" ".join(parts),
        detail="Verdicts of `blockdraft check`, which docs/check.md explains code by code.",
        figures={one.engine: one.verdict for one in stack},
    )


def _named(one: StackVerdict) -> str:
    """With its first error where there is a problem."""
    if one.verdict == "ready" or not one.findings:
        return one.engine
    finding = next((text for text in one.findings if " error" in text), one.findings[0])
    return f"{one.engine} ({shorten(finding, LONGEST_FINDING, placeholder=' ..')})"


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
    return Reply(
        verdict="unknown",
        sentence=f"No engine's verdict is in this run; `{command}` tells.{seen}",
        figures={"command": command},
    )
