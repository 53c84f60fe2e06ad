"""Documents of benches made up for tests: known taus, costs and speed-ups, no clock, no model."""

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

Document = dict[str, object]

DRAFTER = "smollm2-dflash"
LANES = (
    ("plain", "plain", None, "off", None),
    ("prompt-lookup", "lookup", "prompt-lookup", "fixed:8", 8),
    ("dflash fixed:4", "block", DRAFTER, "fixed:4", 8),
    ("dflash fixed:8", "block", DRAFTER, "fixed:8", 8),
    ("dflash auto", "block", DRAFTER, "auto", 8),
)
TAUS = {"prompt-lookup": 1.24, "dflash fixed:4": 2.05, "dflash fixed:8": 2.44, "dflash auto": 2.31}
STEP_COSTS = {
    "plain": 1.0,
    "prompt-lookup": 1.15,
    "dflash fixed:4": 1.32,
    "dflash fixed:8": 1.68,
    "dflash auto": 1.42,
}
SPEEDUPS = {
    "plain": (1.0, 1.0, 1.0, 1.0),
    "prompt-lookup": (1.06, 1.02, 0.97, 0.9),
    "dflash fixed:4": (1.53, 1.38, 1.16, 0.94),
    "dflash fixed:8": (1.45, 1.2, 0.98, 0.72),
    "dflash auto": (1.6, 1.44, 1.24, 1.06),
}
PLAIN_TOTALS = (41.0, 63.0, 88.0, 104.0)
CATEGORIES = ("code", "math", "chat", "summary", "translation")
CONCURRENCIES = (1, 2, 4, 8)


def make_document(
    concurrencies: Sequence[int] = CONCURRENCIES,
    lanes: Sequence[str] = tuple(SPEEDUPS),
) -> Document:
    """A run in process with everything in it."""
    kept = [lane for lane in LANES if lane[0] in lanes]
    return {
        "schema": "blockdraft.bench",
        "version": 2,
        "complete": True,
        "mode": "in-process",
        "preset": "quick",
        "started": "2026-11-30T12:00:00Z",
        "seconds": 171.4,
        "conditions": {
            "command": "blockdraft bench --quick --out results",
            "target": "smollm2",
            "device": "cpu",
            "dtype": "bfloat16",
            "quantize": None,
            "engine": "native",
            "threads": 2,
            "batch_invariant": None,
            "hardware": "Some CPU, 2 cores",
            "software": "blockdraft 0.1.0, torch 2.13.0, transformers 5.24.0, Python 3.13.5",
            "load_average": 0.31,
            "blockdraft": "0.1.0",
            "python": "3.13.5",
        },
        "workload": {
            "source": "built-in set: mixed",
            "sha256": "5f0c" * 16,
            "license": "CC0-1.0",
            "prompts": 20,
            "categories": dict.fromkeys(CATEGORIES, 4),
            "requests": 20,
            "warm_ups": 1,
            "ignored_keys": [],
        },
        "settings": {
            "max_tokens": 64,
            "temperature": 0.0,
            "template_args": {},
            "ignore_eos": False,
            "raw": False,
            "seed": 0,
            "timeout": 600.0,
            "repeats": 2,
        },
        "lanes": [
            {
                "name": name,
                "kind": kind,
                "drafter": drafter,
                "width": width,
                "block_size": block,
                "note": None,
            }
            for name, kind, drafter, width, block in kept
        ],
        "levels": [_level(name, c) for name, *_ in kept for c in concurrencies],
        "figures": [_figures(name, c) for name, *_ in kept for c in concurrencies],
        "costs": _costs(),
        "quality": [_quality(name) for name, kind, *_ in kept if kind != "plain"],
        "energy": {"source": None, "reason": "no RAPL counters may be read here"},
        "stack": [
            {"engine": "vllm", "verdict": "ready", "findings": []},
            {"engine": "sglang", "verdict": "ready", "findings": []},
            {
                "engine": "llamacpp",
                "verdict": "problems",
                "findings": ["BD201: its conversion has no rule for this target's tokenizer"],
            },
        ],
        "answers": [],
    }


def make_endpoint_document(*, has_baseline: bool) -> Document:
    """A run against a server, which tells tau only."""
    names = ("plain", "dflash auto") if has_baseline else ("dflash auto",)
    document = make_document((1, 4), names)
    document["mode"] = "endpoint"
    document["preset"] = None
    document["conditions"] = {
        "command": "blockdraft bench --endpoint http://127.0.0.1:8000 --out results",
        "url": "http://127.0.0.1:8000",
        "model": "smollm2",
        "engine": "vllm",
        "baseline_url": "http://127.0.0.1:8001" if has_baseline else None,
        "blockdraft": "0.1.0",
        "python": "3.13.5",
        "machine": "x86_64",
        "cores": 2,
    }
    for lane in parts(document, "lanes"):
        lane["drafter"], lane["width"], lane["block_size"] = None, None, None
        if lane["kind"] != "plain":
            lane["kind"], lane["name"] = "endpoint", "endpoint"
    for one in parts(document, "figures") + parts(document, "levels"):
        if one["lane"] == "dflash auto":
            one["lane"] = "endpoint"
            if not has_baseline and "speedup" in one:
                one |= {"speedup": None, "speedup_spread": None, "latency_speedup": None}
    for level in parts(document, "levels"):
        level["step_time"] = None
    document["costs"], document["stack"], document["quality"] = None, None, []
    return document


def parts(document: Document, name: str) -> list[Document]:
    return cast("list[Document]", document[name])


def figures_of(document: Document, lane: str, concurrency: int) -> Document:
    """To be changed by a test."""
    for figures in parts(document, "figures"):
        arrival = cast(Document, figures["arrival"])
        if figures["lane"] == lane and arrival["concurrency"] == concurrency:
            return figures
    raise KeyError((lane, concurrency))


def set_speedups(document: Document, lane: str, *speedups: float) -> None:
    """By load, with a spread of 1% either way and two repeats."""
    for concurrency, speedup in zip(CONCURRENCIES, speedups, strict=False):
        figures_of(document, lane, concurrency).update(
            speedup=speedup,
            latency_speedup=speedup,
            speedup_spread=[speedup * 0.99, speedup * 1.01],
            repeats=2,
        )


def spread(middle: float, num: int = 20) -> Document:
    return {
        "num": num,
        "mean": middle * 1.04,
        "min": middle * 0.7,
        "p50": middle,
        "p90": middle * 1.3,
        "p99": middle * 1.6,
        "max": middle * 1.7,
    }


def _level(name: str, concurrency: int) -> Document:
    step = 0.024 * STEP_COSTS[name]
    share = 0.0 if name == "plain" else 0.18
    return {
        "lane": name,
        "repeat": 0,
        "arrival": {"concurrency": concurrency, "rate": None},
        "complete": True,
        "started": "2026-11-30T12:00:20Z",
        "seconds": 12.5,
        "requests": {
            "planned": 20,
            "distinct_prompts": 20,
            "answered": 20,
            "failed": 0,
            "failures": [],
        },
        "tokens": {"prompt": 800, "cached": 0, "completion": 1280},
        "acceptance": {"tau": TAUS.get(name), "reason": None, "warnings": []},
        "step_time": {
            "steps": 500,
            "draft_seconds": 500 * step * share,
            "verify_seconds": 500 * step * (0.95 - share),
            "other_seconds": 500 * step * 0.05,
        },
        "energy_joules": None,
        "records": [_record(name, concurrency, number) for number in range(20)],
    }


def _record(name: str, concurrency: int, number: int) -> Document:
    """Of an answer of 64 tokens; the 20 of a level are spread as `spread` is."""
    idx, scale = CONCURRENCIES.index(concurrency), 0.7 + number / 20
    user = PLAIN_TOTALS[idx] * SPEEDUPS[name][idx] / concurrency
    sent, first = 0.5 * number, 0.085 * (1 if name == "plain" else 1.14) * (1 + 0.5 * idx) * scale
    end = first + 63 / user * scale
    return {
        "number": number,
        "id": f"p{number}",
        "category": CATEGORIES[number % 5],
        "sent_s": sent,
        "first_s": sent + first,
        "end_s": sent + end,
        "chunks_s": [sent + first, sent + end],
        "prompt_tokens": 40,
        "cached_tokens": 0,
        "completion_tokens": 64,
        "finish_reason": "length",
        "drafts": None,
        "steps": None,
        "token_ids": None,
        "failure": None,
    }


def _figures(name: str, concurrency: int) -> Document:
    idx = CONCURRENCIES.index(concurrency)
    speedup, total = SPEEDUPS[name][idx], PLAIN_TOTALS[idx]
    tau, is_plain = TAUS.get(name), name == "plain"
    repeats = 2 if concurrency == 1 else 1
    near = [speedup * 0.985, speedup * 1.012] if repeats == 2 else [speedup, speedup]
    rates = [] if tau is None else _rates(tau, 3 if name.endswith("4") else 7)
    user = total * speedup / concurrency
    return {
        "lane": name,
        "arrival": {"concurrency": concurrency, "rate": None},
        "repeats": repeats,
        "answers": 20 * repeats,
        "tau": tau,
        "tau_interval": None if tau is None else [tau * 0.95, tau * 1.06],
        "tau_ended": tau,
        "by_position": rates,
        "conditional": [b / a for a, b in zip([1.0, *rates], rates, strict=False)],
        "histogram": _histogram(rates),
        "tokens_per_second": total * speedup,
        "tokens_per_second_spread": [total * near[0], total * near[1]],
        "user_tokens_per_second": spread(user),
        "user_fairness": 0.74,
        "first_token_seconds": spread(0.085 * (1 if is_plain else 1.14) * (1 + 0.5 * idx)),
        "inter_token_seconds": spread(1 / user),
        "end_to_end_seconds": spread(0.1 + 64 / user),
        "speedup": speedup,
        "speedup_spread": near,
        "latency_speedup": speedup * 0.98,
        "draft_share": 0.0 if is_plain else 0.18,
        "other_share": 0.05,
        "joules_per_token": None,
        "groups": {} if is_plain else _groups(name, tau or 1.0, speedup),
    }


def _rates(tau: float, num: int) -> list[float]:
    """Geometric, and adding up to tau - 1."""
    keep = 0.5
    for _ in range(60):
        total = sum(keep ** (k + 1) for k in range(num))
        keep *= ((tau - 1) / total) ** 0.5
    return [keep ** (k + 1) for k in range(num)]


def _histogram(rates: Sequence[float]) -> list[int]:
    at_least = [1.0, *rates, 0.0]
    return [0, *(round(1000 * (a - b)) for a, b in pairwise(at_least))]


def _groups(name: str, tau: float, speedup: float) -> Document:
    scales = (1.3, 1.18, 0.86, 0.95, 0.78)
    ranges = ((0, 64), (64, 128), (128, 256))
    return {
        "category": [
            {
                "name": category,
                "answers": 8,
                "tau": 1 + (tau - 1) * scale,
                "tau_interval": [1 + (tau - 1) * scale * 0.85, 1 + (tau - 1) * scale * 1.18],
                "speedup": 1 + (speedup - 1) * scale,
            }
            for category, scale in zip(CATEGORIES, scales, strict=True)
        ],
        "context_len": [
            {
                "from": start,
                "to": end,
                "answers": 10,
                "tau": tau * (1.04 - 0.05 * idx),
                "tau_interval": [tau * (0.97 - 0.05 * idx), tau * (1.11 - 0.05 * idx)],
                "speedup": speedup * (1.03 - 0.04 * idx),
            }
            for idx, (start, end) in enumerate(ranges)
        ],
        "output_len": [],
        "answer_position": [
            {
                "from": 16 * idx,
                "to": 16 * (idx + 1),
                "steps": 120,
                "tau": tau * (1.06 - 0.02 * idx),
                "tokens_per_second": 41 * speedup * (1.05 - 0.02 * idx),
            }
            for idx in range(4)
        ],
    }


def _costs() -> Document:
    lengths = (1, 3, 7, 15)
    return {
        "context_len": 256,
        "verify": [{"rows": n, "seconds": 0.022 + 0.0016 * n} for n in (1, 2, 4, 8, 16)],
        "draft": [
            {
                "name": DRAFTER,
                "kind": "block",
                "weights": "trained",
                "tokens": n,
                "seconds": 0.0042 + 0.00022 * n,
            }
            for n in lengths
        ]
        + [
            {
                "name": "EAGLE-3 shape",
                "kind": "autoregressive",
                "weights": "random",
                "tokens": n,
                "seconds": 0.0031 * n + 0.001,
            }
            for n in lengths
        ],
        "step_overhead_seconds": 0.0011,
    }


def _quality(name: str) -> Document:
    parts_at: list[Document] = []
    if name == "dflash fixed:8":
        parts_at = [{"id": "math-3", "position": 41, "margin": 0.012, "near_tie": True}]
    return {
        "lane": name,
        "compared": 20,
        "identical": 20 - len(parts_at),
        "epsilon": 0.125,
        "divergences": parts_at,
        "reason": None,
    }
