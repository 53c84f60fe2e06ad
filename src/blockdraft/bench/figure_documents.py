"""The figures of one lane under one arrival pattern as their part of the document.

It computes none of them.
"""

from collections.abc import Sequence

from blockdraft.bench.figures import Figures
from blockdraft.bench.groups import Group, Groups, RangeGroup
from blockdraft.bench.level_documents import arrival_document, pair_document, spread_document


def figure_document(figures: Figures, groups: Groups) -> dict[str, object]:
    """Names as in docs/measuring.md."""
    acceptance = figures.acceptance
    return {
        "lane": figures.lane,
        "arrival": arrival_document(figures.arrival),
        "repeats": figures.repeats,
        "answers": figures.answers,
        "tau": acceptance.tau,
        "tau_interval": pair_document(acceptance.tau_interval),
        "tau_ended": acceptance.tau_ended,
        "by_position": list(acceptance.by_position),
        "conditional": list(acceptance.conditional),
        "histogram": list(acceptance.histogram),
        "tokens_per_second": figures.tokens_per_second,
        "tokens_per_second_spread": pair_document(figures.tokens_per_second_spread),
        "user_tokens_per_second": spread_document(figures.user_tokens_per_second),
        "user_fairness": figures.user_fairness,
        "first_token_seconds": spread_document(figures.first_token),
        "inter_token_seconds": spread_document(figures.inter_token),
        "end_to_end_seconds": spread_document(figures.end_to_end),
        "speedup": figures.speedup,
        "speedup_spread": pair_document(figures.speedup_spread),
        "latency_speedup": figures.latency_speedup,
        "draft_share": figures.draft_share,
        "other_share": figures.other_share,
        "joules_per_token": figures.joules_per_token,
        "groups": {
            "category": [{"name": one.name} | _told(one) for one in groups.category],
            "context_len": _ranges(groups.context_len),
            "output_len": _ranges(groups.output_len),
            "answer_position": [
                {
                    "from": one.start,
                    "to": one.end,
                    "steps": one.steps,
                    "tau": one.tau,
                    "tokens_per_second": one.tokens_per_second,
                }
                for one in groups.answer_position
            ],
        },
    }


def _ranges(groups: Sequence[RangeGroup]) -> list[dict[str, object]]:
    return [{"from": one.start, "to": one.end} | _told(one) for one in groups]


def _told(group: Group | RangeGroup) -> dict[str, object]:
    return {
        "answers": group.answers,
        "tau": group.tau,
        "tau_interval": pair_document(group.tau_interval),
        "speedup": group.speedup,
    }
