"""What a check finds: `Finding`, the rules that lead to it, and the engines they speak of.

It judges nothing; the rules are in `rules/`.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple

from blockdraft.check.facts import PairFacts

Severity = Literal["error", "warning", "note"]
Engine = Literal["all", "vllm", "sglang", "trtllm", "llamacpp", "openvino", "blockdraft"]

ENGINES: tuple[Engine, ...] = ("vllm", "sglang", "trtllm", "llamacpp", "openvino", "blockdraft")
"""Engines that can be asked for; a finding of "all" holds in each of them."""

ENGINE_NAMES: dict[Engine, str] = {
    "all": "every engine",
    "vllm": "vLLM 0.32",
    "sglang": "SGLang 0.5.23",
    "trtllm": "TensorRT-LLM 1.3.0rc",
    "llamacpp": "llama.cpp b11549",
    "openvino": "OpenVINO GenAI 2026.4.1",
    "blockdraft": "Blockdraft",
}
"""The versions that the rules speak of."""

_ORDER: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}


class Verdict(NamedTuple):
    """What will happen, and what to do about it; one sentence each."""

    happens: str
    remedy: str


Judge = Callable[[PairFacts], Verdict | None]
"""A pure function of the pair; None when there is nothing to say."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that is checked. `code` is stable; `subject` is how the list of codes calls it.

    error: the engine refuses, crashes, or accepts practically nothing. warning: it runs, but
    slower than it could, or fails under conditions that the text names. note: good to know.
    """

    code: str
    severity: Severity
    engine: Engine
    subject: str
    judge: Judge


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One verdict about one pair."""

    code: str
    severity: Severity
    engine: Engine
    happens: str
    remedy: str

    def to_json(self) -> dict[str, object]:
        """Plain values for `json.dumps`."""
        return asdict(self)


def apply_rules(rules: Sequence[Rule], pair: PairFacts) -> tuple[Finding, ...]:
    """What `rules` find, sorted: errors, warnings, notes; in each by code."""
    found: list[Finding] = []
    for rule in rules:
        verdict = rule.judge(pair)
        if verdict is not None:
            found.append(make_finding(rule, verdict))
    return sort_findings(found)


def make_finding(rule: Rule, verdict: Verdict) -> Finding:
    """`verdict` under the code, severity and engine of `rule`."""
    return Finding(
        code=rule.code,
        severity=rule.severity,
        engine=rule.engine,
        happens=verdict.happens,
        remedy=verdict.remedy,
    )


def sort_findings(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Errors first, then warnings, then notes; in each by code."""
    return tuple(sorted(findings, key=lambda found: (_ORDER[found.severity], found.code)))
