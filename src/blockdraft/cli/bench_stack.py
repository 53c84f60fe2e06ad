"""The part "stack" of a bench: what engines make of each drafter, by the rules of `check`.

Static checks only; nothing is decoded here.
"""

from collections.abc import Mapping, Sequence

from blockdraft.check import (
    ENGINES,
    Engine,
    Finding,
    gather_pair,
    has_error,
    judge_pair,
    locate_drafter,
    locate_target,
)
from blockdraft.errors import Error

EAGLE3_UNKNOWN = "`blockdraft check` judges DFlash drafters, and this is an EAGLE-3 one"


def stack_document(
    target: str,
    drafter: str,
    revisions: tuple[str | None, str | None],
    template_args: Mapping[str, object],
) -> list[dict[str, object]]:
    """One entry for each engine; "unknown", with the reason, where the pair can't be judged.

    `revisions` are the target's and the drafter's.
    """
    try:
        located = locate_target(target, revisions[0]), locate_drafter(drafter, revisions[1])
        findings = judge_pair(gather_pair(*located, dict(template_args)), ENGINES)
    except Error as error:
        return unknown_stack(drafter, str(error))
    return [_judged(engine, drafter, findings) for engine in ENGINES]


def unknown_stack(drafter: str, reason: str) -> list[dict[str, object]]:
    """Of a drafter that can't be judged."""
    return [_entry(engine, drafter, "unknown", [reason]) for engine in ENGINES]


def _judged(engine: Engine, drafter: str, findings: Sequence[Finding]) -> dict[str, object]:
    own = [found for found in findings if found.engine in ("all", engine)]
    texts = [f"{found.code} {found.severity}: {found.happens}" for found in own]
    return _entry(engine, drafter, "problems" if has_error(own) else "ready", texts)


def _entry(engine: Engine, drafter: str, verdict: str, findings: list[str]) -> dict[str, object]:
    return {"engine": engine, "drafter": drafter, "verdict": verdict, "findings": findings}
