"""Counts and extras of a whole response: usage, metrics, meta_info.

Pure: from the readers of its choices to JSON objects.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from blockdraft.decoding import AcceptanceStats
from blockdraft.serving.answers.choice import ChoiceReader
from blockdraft.serving.answers.options import Shown
from blockdraft.serving.answers.speculation import spec_details, speculative_decoding


@dataclass(frozen=True, slots=True)
class Asked:
    """One prompt and the readers of its choices."""

    prompt_len: int
    readers: tuple[ChoiceReader, ...]


def usage(asked: Sequence[Asked]) -> dict[str, object]:
    """OpenAI's usage object. A prompt counts once, however many choices it has."""
    readers = [reader for each in asked for reader in each.readers]
    prompt_tokens = sum(each.prompt_len for each in asked)
    completion_tokens = sum(len(reader.ids) for reader in readers)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {
            "cached_tokens": sum(each.readers[0].num_cached for each in asked)
        },
        "completion_tokens_details": {
            "reasoning_tokens": sum(reader.num_reasoning for reader in readers)
        },
    }


def extras(asked: Sequence[Asked], shown: Shown, num_spec_tokens: int) -> dict[str, object]:
    """The optional objects at a response's root; several choices are pooled."""
    readers = [reader for each in asked for reader in each.readers]
    stats = reduce(AcceptanceStats.merge, (reader.stats for reader in readers))
    only = readers[0] if len(readers) == 1 else None
    made: dict[str, object] = {}
    if shown.metrics != "none":
        steps = only.steps if only is not None and shown.metrics == "detailed" else None
        metrics: dict[str, object] = {
            "speculative_decoding": speculative_decoding(stats, num_spec_tokens, steps)
        }
        if only is not None:
            metrics.update(_times(only))
        made["metrics"] = metrics
    if shown.meta_info:
        counts = usage(asked)
        made["meta_info"] = {
            "prompt_tokens": counts["prompt_tokens"],
            "completion_tokens": counts["completion_tokens"],
            "cached_tokens": sum(each.readers[0].num_cached for each in asked),
            **spec_details(stats),
        }
    if shown.spec_tokens_details:
        made["sglext"] = {"spec_tokens_details": spec_details(stats)}
    return made


def _times(reader: ChoiceReader) -> dict[str, object]:
    stats = reader.stats
    queue = reader.queue_seconds or 0.0
    decoding = stats.seconds - stats.prefill_seconds
    later = stats.tokens - 1
    return {
        "time_to_first_token_ms": 1000 * (queue + stats.prefill_seconds),
        "generation_time_ms": 1000 * decoding,
        "queue_time_ms": 1000 * queue,
        "mean_itl_ms": 1000 * decoding / later if later > 0 else None,
        "tokens_per_second": stats.tokens_per_second,
    }
