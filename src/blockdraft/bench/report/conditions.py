"""The conditions of a measurement in words: model, prompts, hardware, settings, versions.

It judges nothing; `compare.py` says which of them must agree.
"""

import re
from collections.abc import Mapping, Sequence
from typing import cast

from blockdraft.bench.report.document import BenchDocument

NAMES = {
    "url": "endpoint",
    "baseline_url": "baseline",
    "load_average": "load of the machine",
    "batch_invariant": "batch invariant",
    "blockdraft": "Blockdraft",
    "python": "Python",
    "max_tokens": "most tokens",
    "template_args": "template variables",
    "ignore_eos": "stops ignored",
    "cores": "CPU cores",
    "warm_ups": "warm-ups",
    "ignored_keys": "ignored keys",
}


NOT_SHOWN = ("arrivals", "least_requests")


def headline_of(document: BenchDocument) -> str:
    """The pair, or the endpoint, in one line."""
    conditions = document.conditions
    if document.is_endpoint:
        engine = conditions.get("engine")
        told = f"{conditions.get('model')} at {conditions.get('url')}"
        return f"{told} ({engine} engine)" if engine else told
    drafters = drafters_of(document)
    target = str(conditions.get("target") or "target")
    if not drafters:
        return target
    return f"{target} with the drafter{'s' if len(drafters) > 1 else ''} {', '.join(drafters)}"


def busy_remark(document: BenchDocument) -> str:
    """A warning where other programs kept the processor busy when the run began; or nothing."""
    load, cores = document.conditions.get("load_average"), _num_cores(document.conditions)
    if not isinstance(load, int | float) or cores is None or load < cores:
        return ""
    return (
        f"The machine was busy when this began (load {load:.1f} on {cores} cores): times, and what "
        "is decided by them, are unreliable."
    )


def _num_cores(conditions: Mapping[str, object]) -> int | None:
    found = re.search(r"\b(\d+) cores?\b|\bcores (\d+)\b", inline(conditions.get("hardware")))
    if found is not None:
        return int(found[1] or found[2])
    cores = conditions.get("cores")
    return cores if isinstance(cores, int) else None


def drafters_of(document: BenchDocument) -> list[str]:
    """Prompt lookup is none: it needs no model."""
    found = [lane.drafter for lane in document.lanes if lane.drafter and lane.kind != "lookup"]
    return list(dict.fromkeys(found))


def condition_lines(document: BenchDocument) -> list[tuple[str, str]]:
    """Name and value of everything that figures depend on."""
    drafters = drafters_of(document)
    lines = [("drafter", ", ".join(drafters))] if drafters else []
    shown = dict(document.conditions)
    software = inline(shown.get("software"))
    for name in ("blockdraft", "python"):
        if f"{name} " in software.lower():
            del shown[name]
    lines = [*_lines_of({"target": shown.pop("target", None)}), *lines, *_lines_of(shown)]
    lines.append(("prompts", _prompts(document.workload)))
    lines += [("settings", text)] if (text := _settings(document.settings)) else []
    lines.append(("measured", _measured(document)))
    return lines


def inline(value: object) -> str:
    """A value of JSON in one line; objects as "name value, name value", unknown parts left out."""
    if isinstance(value, Mapping):
        parts = cast("Mapping[str, object]", value).items()
        return ", ".join(
            f"{NAMES.get(name, name.replace('_', ' '))} {text}"
            for name, part in parts
            if (text := inline(part))
        )
    if isinstance(value, list | tuple):
        return ", ".join(filter(None, (inline(part) for part in cast("Sequence[object]", value))))
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _lines_of(conditions: Mapping[str, object]) -> list[tuple[str, str]]:
    return [
        (NAMES.get(name, name.replace("_", " ")), text)
        for name, value in conditions.items()
        if (text := inline(value))
    ]


def _prompts(workload: Mapping[str, object]) -> str:
    """Their number and source first; the hash is cut, results.json has all of it."""
    parts = [f"{inline(workload.get('prompts'))} of {inline(workload.get('source'))}"]
    categories = inline(workload.get("categories"))
    parts += [categories] if categories else []
    digest = workload.get("sha256")
    parts += [f"sha256 {digest[:12]}"] if isinstance(digest, str) else []
    rest = ("license", "requests", "warm_ups", "ignored_keys")
    parts += [
        f"{NAMES.get(name, name)} {text}" for name in rest if (text := inline(workload.get(name)))
    ]
    return "; ".join(parts)


def _settings(settings: Mapping[str, object]) -> str:
    """Without what is off, and without the loads, which every table names."""
    return inline(
        {
            name: value
            for name, value in settings.items()
            if value is not False and name not in NOT_SHOWN
        }
    )


def _measured(document: BenchDocument) -> str:
    parts = [document.started or "", document.mode]
    parts += [f"--{document.preset}"] if document.preset else []
    parts += [f"{document.seconds:.0f} s in all"] if document.seconds is not None else []
    parts += [] if document.is_complete else ["not to its end"]
    return ", ".join(filter(None, parts))
