"""Every rule in one table, and what those for some engines find in a pair.

docs/check.md lists the same codes; a test compares the two.
"""

from collections.abc import Sequence

from blockdraft.check.facts import PairFacts
from blockdraft.check.findings import ENGINES, Engine, Finding, Rule, apply_rules
from blockdraft.check.rules import (
    blockdraft,
    files,
    fit,
    layout,
    live,
    llamacpp,
    openvino,
    sglang,
    taps,
    trtllm,
    vllm,
)

_MODULES = (
    files,
    layout,
    taps,
    fit,
    vllm,
    sglang,
    trtllm,
    llamacpp,
    openvino,
    blockdraft,
    live,
)

RULES: tuple[Rule, ...] = tuple(
    sorted((rule for module in _MODULES for rule in module.RULES), key=lambda rule: rule.code)
)
"""All rules, by code."""


def judge_pair(pair: PairFacts, engines: Sequence[Engine] = ENGINES) -> tuple[Finding, ...]:
    """Sorted findings of the rules for `engines` and of those that hold in every engine."""
    asked = {"all", *engines}
    return apply_rules([rule for rule in RULES if rule.engine in asked], pair)


def has_error(findings: Sequence[Finding]) -> bool:
    """Whether the pair is unusable in an engine that was asked for."""
    return any(finding.severity == "error" for finding in findings)


def list_codes() -> str:
    """The Markdown table of all codes, as in docs/check.md."""
    rows = ["| code | severity | engine | checked |", "|---|---|---|---|"]
    rows += [f"| {r.code} | {r.severity} | {r.engine} | {r.subject} |" for r in RULES]
    return "\n".join(rows)
