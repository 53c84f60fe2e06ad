"""The part "stack" of a bench: what each engine will make of the pair, by the rules of `check`.

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
        return [_entry(engine, "unknown", [str(error)]) for engine in ENGINES]
    return [_judged(engine, findings) for engine in ENGINES]


def _judged(engine: Engine, findings: Sequence[Finding]) -> dict[str, object]:
    own = [found for found in findings if found.engine in ("all", engine)]
    texts = [f"{found.code} {found.severity}: {found.happens}" for found in own]
    return _entry(engine, "problems" if has_error(own) else "ready", texts)


def _entry(engine: Engine, verdict: str, findings: list[str]) -> dict[str, object]:
    return {"engine": engine, "verdict": verdict, "findings": findings}
