"""Acceptance as an engine tells it in an answer: `metrics`, `meta_info` or `timings`.

It pools nothing; that is `acceptance.py`. Each source's definition stands in docs/bench.md.
"""

from typing import Literal, NamedTuple

from blockdraft.bench.documents import (
    Document,
    as_list,
    as_object,
    count_in,
    counts_in,
    number_in,
    object_in,
)

ResponseSource = Literal["metrics.speculative_decoding", "meta_info", "timings", "engine"]


class ResponseCounts(NamedTuple):
    """Drafts of one answer. `steps` are None where the engine does not count them.

    `histogram[n]` counts steps that accepted n drafts.
    """

    source: ResponseSource
    accepted: int
    drafted: int | None = None
    steps: int | None = None
    histogram: tuple[int, ...] | None = None


def read_counts(document: Document) -> ResponseCounts | None:
    """The counts of a response or of a chunk of one; None where it has none."""
    choice = next((as_object(choice) for choice in as_list(document.get("choices"))), None)
    for info in (object_in(document, "meta_info"), object_in(choice, "meta_info")):
        if (found := _meta_info(info)) is not None:
            break
    else:
        found = None
    own = _speculative_decoding(object_in(object_in(document, "metrics"), "speculative_decoding"))
    return own or found or _timings(object_in(document, "timings"))


def _speculative_decoding(fields: Document | None) -> ResponseCounts | None:
    """vLLM's, and ours: steps are verifications with a draft."""
    steps = count_in(fields, "num_spec_steps")
    accepted = count_in(fields, "num_accepted_draft_tokens")
    if steps is None or accepted is None:
        return None
    return ResponseCounts(
        source="metrics.speculative_decoding",
        accepted=accepted,
        drafted=count_in(fields, "num_draft_tokens"),
        steps=steps,
        histogram=counts_in(fields, "acceptance_histogram"),
    )


def _meta_info(fields: Document | None) -> ResponseCounts | None:
    """SGLang's: steps are all verifications."""
    steps = count_in(fields, "spec_verify_ct")
    if steps is None:
        return None
    accepted = count_in(fields, "spec_num_correct_drafts")
    if accepted is None:
        length = number_in(fields, "spec_accept_length")
        if length is None:
            return None
        accepted = max(0, round((length - 1) * steps))
    return ResponseCounts(
        source="meta_info",
        accepted=accepted,
        drafted=count_in(fields, "spec_num_proposed_drafts"),
        steps=steps,
        histogram=counts_in(fields, "spec_correct_drafts_histogram"),
    )


def _timings(fields: Document | None) -> ResponseCounts | None:
    """llama.cpp's, there only where something was drafted; steps are not told."""
    drafted = count_in(fields, "draft_n")
    accepted = count_in(fields, "draft_n_accepted")
    if drafted is None or accepted is None:
        return None
    return ResponseCounts(source="timings", accepted=accepted, drafted=drafted)
