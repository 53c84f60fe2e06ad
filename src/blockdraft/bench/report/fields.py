"""The fields that a document of a bench may have, by where they stand: docs/measuring.md's schema.

A field that is not here is from another version or a slip of an editor, and no report may pass over
it in silence. What values they hold is `reading.py`'s.
"""

from collections.abc import Mapping
from typing import Final

from blockdraft.bench.latency import Spread
from blockdraft.bench.report.nodes import Node

ANYTHING: Final = None
"""A value, a list of values, or an object whose keys are free."""
Shape = Mapping[str, "Shape | None"]
"""What is in an object, or in each object of a list."""


def _leaves(*names: str) -> dict[str, Shape | None]:
    return dict.fromkeys(names, ANYTHING)


SPREAD = _leaves(*Spread._fields)
ARRIVAL = _leaves("concurrency", "rate")
FAILURE = _leaves("kind", "message")
GROUP = _leaves("answers", "tau", "tau_interval", "speedup")
RANGE_GROUP = _leaves("from", "to") | GROUP
SOURCE = _leaves(
    *("name", "definition", "tau", "tau_interval", "accepted", "drafted", "steps"),
    *("acceptance_rate", "by_position"),
)
RECORD = _leaves(
    *("number", "id", "category", "sent_s", "first_s", "end_s", "chunks_s", "prompt_tokens"),
    *("cached_tokens", "completion_tokens", "finish_reason", "steps", "token_ids"),
) | {
    "drafts": _leaves("source", "accepted", "drafted", "steps", "histogram"),
    "failure": FAILURE,
}
LEVEL = _leaves("lane", "repeat", "complete", "started", "seconds", "energy_joules") | {
    "arrival": ARRIVAL,
    "requests": _leaves("planned", "distinct_prompts", "answered", "failed")
    | {"failures": FAILURE | _leaves("count", "id")},
    "tokens": _leaves("prompt", "cached", "completion"),
    "throughput": _leaves("requests_per_second", "tokens_per_second")
    | {"tokens_per_second_per_user": SPREAD},
    "latency": {
        f"{name}_seconds": SPREAD
        for name in ("first_token", "inter_token", "chunk_gap", "end_to_end")
    },
    "acceptance": _leaves("tau", "tau_interval", "source", "definition", "reason", "warnings")
    | {"sources": SOURCE},
    "step_time": _leaves("steps", "draft_seconds", "verify_seconds", "other_seconds"),
    "records": RECORD,
}
FIGURES = _leaves(
    *("lane", "repeats", "answers", "tau", "tau_interval", "tau_ended", "by_position"),
    *("conditional", "histogram", "tokens_per_second", "tokens_per_second_spread"),
    *("user_fairness", "speedup", "speedup_spread", "latency_speedup", "draft_share"),
    *("other_share", "joules_per_token"),
) | {
    "arrival": ARRIVAL,
    "user_tokens_per_second": SPREAD,
    "first_token_seconds": SPREAD,
    "inter_token_seconds": SPREAD,
    "end_to_end_seconds": SPREAD,
    "groups": {
        "category": _leaves("name") | GROUP,
        "context_len": RANGE_GROUP,
        "output_len": RANGE_GROUP,
        "answer_position": _leaves("from", "to", "steps", "tau", "tokens_per_second"),
    },
}
CONDITIONS = {
    "in-process": _leaves(
        *("command", "target", "device", "dtype", "quantize", "engine", "threads"),
        *("batch_invariant", "hardware", "software", "load_average", "blockdraft", "python"),
    ),
    "endpoint": _leaves(
        *("command", "url", "model", "engine", "baseline_url", "blockdraft", "python"),
        *("machine", "cores"),
    ),
}
SETTINGS = _leaves(
    *("max_tokens", "temperature", "template_args", "ignore_eos", "raw", "seed", "timeout"),
    "repeats",
)
SETTINGS_OF = {
    "in-process": SETTINGS
    | _leaves("least_requests", "max_context", "kv_memory", "compile")
    | {"arrivals": ARRIVAL | _leaves("repeats")},
    "endpoint": SETTINGS | _leaves("explicit", "arrivals"),
}
DRAFT = _leaves("name", "tokens", "seconds")


def document_shape(mode: str) -> Shape:
    """Of a document of version 2 that was measured "in-process" or at an "endpoint"."""
    return _leaves("schema", "version", "complete", "mode", "preset", "started", "seconds") | {
        "conditions": CONDITIONS[mode],
        "workload": _leaves(
            *("source", "sha256", "license", "prompts", "categories", "requests", "warm_ups"),
            "ignored_keys",
        ),
        "settings": SETTINGS_OF[mode],
        "lanes": _leaves("name", "kind", "drafter", "width", "block_size", "note"),
        "levels": LEVEL,
        "figures": FIGURES,
        "costs": _leaves("context_len", "step_overhead_seconds")
        | {
            "verify": _leaves("rows", "seconds"),
            "draft": DRAFT | _leaves("kind", "weights"),
            "draft_by_requests": DRAFT | _leaves("requests"),
        },
        "quality": _leaves("lane", "compared", "identical", "epsilon", "reason")
        | {"divergences": _leaves("id", "position", "margin", "near_tie")},
        "energy": _leaves("source", "reason"),
        "stack": _leaves("engine", "drafter", "verdict", "findings"),
        "answers": _leaves(
            *("question", "title", "verdict", "sentence", "figures", "headline", "detail")
        ),
    }


def check_fields(node: Node, shape: Shape) -> None:
    """Raises ConfigError for the first field that `shape` does not have, at any depth."""
    for name, value in node.fields.items():
        if name not in shape:
            raise node.unknown(name, tuple(shape))
        inner = shape[name]
        if inner is None or value is None:
            continue
        inside = node.nodes(name) if isinstance(value, list | tuple) else [node.node(name)]
        for one in inside:
            check_fields(one, inner)
