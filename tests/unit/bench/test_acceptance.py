"""Acceptance from answers and counters: known values, and sources that disagree."""

import pytest

from blockdraft.bench.acceptance import (
    Acceptance,
    MetricsRead,
    acceptance_of,
    counts_differ,
)
from blockdraft.bench.chunks import Usage
from blockdraft.bench.engine_metrics import DraftCounters, EngineMetrics
from blockdraft.bench.records import RequestRecord
from blockdraft.bench.response_fields import ResponseCounts, read_counts

NONE = MetricsRead(None, "there is no page")


def record(
    counts: ResponseCounts | None, tokens: int | None = None, name: str = "a"
) -> RequestRecord:
    return RequestRecord(
        number=0,
        id=name,
        category="",
        sent_s=0,
        first_s=0,
        end_s=1,
        chunks_s=(0,),
        usage=Usage(1, None, tokens),
        finish_reason="stop",
        counts=counts,
        failure=None,
    )


def reading(drafts: int, drafted: int, accepted: int, *positions: int) -> MetricsRead:
    counters = DraftCounters("vllm:", drafts, drafted, accepted, positions)
    return MetricsRead(EngineMetrics(counters, None, None, True))


def told(steps: int, accepted: int, histogram: tuple[int, ...]) -> ResponseCounts:
    drafted = steps * (len(histogram) - 1)
    return ResponseCounts("metrics.speculative_decoding", accepted, drafted, steps, histogram)


def figures(acceptance: Acceptance) -> list[tuple[str, float | None]]:
    return [(source.name, source.tau) for source in acceptance.sources]


def test_answers_and_counters_agree_by_hand() -> None:
    # Steps accept 0, 2, 2 and 1, 0: tau is 1 + 5 / 5, and draft 1 is kept in 3 of 5 steps.
    records = [record(told(3, 4, (1, 0, 2))), record(told(2, 1, (1, 1, 0)), name="b")]
    acceptance = acceptance_of(records, reading(7, 14, 7, 5, 2), reading(12, 24, 12, 8, 4))
    assert figures(acceptance) == [("metrics.speculative_decoding", 2.0), ("vllm: counters", 2.0)]
    for source in acceptance.sources:
        assert source.by_position == (3 / 5, 2 / 5) and source.acceptance_rate == 0.5
    assert not acceptance.warnings and not acceptance.reason and not counts_differ(acceptance)
    interval = acceptance.sources[0].tau_interval
    assert interval is not None and interval.low == 1.5 and interval.high == pytest.approx(7 / 3)


def test_a_repeated_prompt_makes_no_interval_narrower() -> None:
    """P07: what one prompt says again says nothing of other prompts."""
    once = [record(told(3, 4, (1, 0, 2))), record(told(2, 1, (1, 1, 0)), name="b")]
    (first,) = acceptance_of(once, NONE, NONE).sources
    (again,) = acceptance_of(once * 8, NONE, NONE).sources
    assert again.tau_interval == first.tau_interval is not None and again.tau == first.tau
    (single,) = acceptance_of(once[:1] * 8, NONE, NONE).sources
    assert single.tau_interval is None


def test_others_in_the_counters_are_told() -> None:
    records = [record(told(3, 4, (1, 0, 2)))]
    acceptance = acceptance_of(records, reading(0, 0, 0), reading(13, 26, 4))
    assert counts_differ(acceptance) is False  # as many were accepted, in more steps
    (warning,) = acceptance.warnings
    assert "tau 2.333 against 1.308, 4 against 4 drafts accepted" in warning


def test_answers_without_fields() -> None:
    acceptance = acceptance_of([record(None), record(told(1, 1, (0, 1)))], NONE, NONE)
    assert acceptance.warnings == (
        "only 1 of 2 answers carry metrics.speculative_decoding; its figures are of those",
    )
    assert acceptance.best is not None and acceptance.best.tau == 2


def test_llamacpp_leaves_out_answers_without_a_draft() -> None:
    """9 tokens after the first, 4 of them accepted; 5 more of an answer without drafts."""
    records = [record(ResponseCounts("timings", 4, 12), 10), record(None, 6)]
    (source,) = acceptance_of(records, NONE, NONE).sources
    assert (source.tau, source.steps, source.accepted) == (14 / 10, 10, 4)
    assert source.acceptance_rate == 4 / 12
    (unknown,) = acceptance_of([record(ResponseCounts("timings", 4, 12))], NONE, NONE).sources
    assert unknown.tau is None


def test_reasons_for_no_tau() -> None:
    empty = MetricsRead(EngineMetrics(None, None, None, True))
    cases: list[tuple[list[RequestRecord], MetricsRead, MetricsRead, str]] = [
        ([record(None)], NONE, NONE, "the answers carry no counts of drafts, and there is no page"),
        ([record(None)], empty, empty, "its metrics have no counts of drafts"),
        ([record(None)], reading(5, 5, 5), reading(4, 4, 4), "started anew in the middle"),
        ([record(told(0, 0, (0, 0)))], NONE, NONE, "no draft was verified in this run"),
        ([record(None)], reading(5, 5, 5), reading(5, 5, 5), "no draft was verified in this run"),
        ([], NONE, NONE, "no request was answered"),
    ]
    for records, before, after, reason in cases:
        acceptance = acceptance_of(records, before, after)
        assert acceptance.best is None and reason in acceptance.reason


def test_fields_of_each_engine() -> None:
    own = {"num_spec_steps": 2, "num_accepted_draft_tokens": 3, "acceptance_histogram": [0, 1, 1]}
    read = read_counts({"metrics": {"speculative_decoding": own}, "timings": {"draft_n": 1}})
    assert read == ResponseCounts("metrics.speculative_decoding", 3, None, 2, (0, 1, 1))
    info = {"spec_verify_ct": 4, "spec_num_correct_drafts": 6, "spec_num_proposed_drafts": 12}
    for document in ({"meta_info": info}, {"choices": [{"meta_info": info}]}):
        assert read_counts(document) == ResponseCounts("meta_info", 6, 12, 4)
    old = {"spec_verify_ct": 3, "spec_accept_length": 2.3333}
    assert read_counts({"meta_info": old}) == ResponseCounts("meta_info", 4, None, 3)
    timings = {"draft_n": 10, "draft_n_accepted": 7}
    assert read_counts({"timings": timings}) == ResponseCounts("timings", 7, 10)
    for document in ({}, {"metrics": None}, {"timings": {"draft_n": -1}}, {"choices": "x"}):
        assert read_counts(document) is None
