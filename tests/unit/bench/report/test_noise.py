"""What is assumed of figures that were measured once: what the run itself shows, at least 5%."""

import pytest
from sample_bench import Document, figures_of, make_document, parts, set_speedups, spread

from blockdraft.bench.report.answers import answer_questions
from blockdraft.bench.report.evidence import noisy, speedup_of
from blockdraft.bench.report.noise import OnceNoise, speedup_noise, total_noise
from blockdraft.bench.report.reading import parse_document


def without_repeats() -> Document:
    document = make_document()
    for one in parts(document, "figures"):
        one |= {"repeats": 1, "speedup_spread": None, "tokens_per_second_spread": None}
        one["inter_token_seconds"] = spread(0.02) | {"p90": 0.0202}
    return document


def test_repeats_that_agree_leave_the_least() -> None:
    assert speedup_noise(parse_document(make_document())) == OnceNoise(0.05, "repeats")


def test_repeats_of_any_lane_count_where_a_load_was_measured_once() -> None:
    raw = make_document()
    # 1.5x once and 1.8x once: 20% apart.
    figures_of(raw, "dflash fixed:4", 1)["speedup_spread"] = [1.5, 1.8]
    document = parse_document(raw)
    assert speedup_noise(document) == (pytest.approx(0.2), "repeats")
    gain = speedup_of(document, document.find("dflash auto", document.loads[1]))
    assert gain is not None
    assert (gain.low, gain.high) == pytest.approx((0.8 * gain.value, 1.2 * gain.value))


def test_totals_hold_what_slowed_all_lanes() -> None:
    """The machine was 25% slower in the second repeat: ratios stay, tokens a second don't."""
    raw = make_document()
    for one in parts(raw, "figures"):
        if one["repeats"] == 2:
            one["tokens_per_second_spread"] = [40.0, 50.0]
    document = parse_document(raw)
    assert total_noise(document) == (pytest.approx(0.25), "repeats")
    assert speedup_noise(document).share == 0.05


def test_without_repeats_plain_answers_tell() -> None:
    raw = without_repeats()
    assert speedup_noise(parse_document(raw)) == OnceNoise(0.05, "answers")
    times = spread(0.02) | {"p90": 0.023}
    figures_of(raw, "plain", 1)["inter_token_seconds"] = times
    assert speedup_noise(parse_document(raw)) == (pytest.approx(0.15), "answers")
    # Few answers, and answers beside others, say nothing about it.
    figures_of(raw, "plain", 1)["inter_token_seconds"] = times | {"num": 4}
    figures_of(raw, "plain", 4)["inter_token_seconds"] = times
    assert speedup_noise(parse_document(raw)) == OnceNoise(0.05, "assumed")


def test_a_noisy_run_is_not_sold_as_a_gain() -> None:
    """1.10x at every load, measured once: sure at 5% either way, not at 15%."""
    raw = without_repeats()
    for one in parts(raw, "lanes"):
        set_speedups(raw, str(one["name"]), 1.1, 1.1, 1.1, 1.1)
    for one in parts(raw, "figures"):
        one |= {"repeats": 1, "speedup_spread": None}
    replies = [answer.reply for answer in answer_questions(parse_document(raw))]
    assert replies[2].verdict == "yes" and "Measured once: 5%" in replies[2].detail
    figures_of(raw, "plain", 1)["inter_token_seconds"] = spread(0.02) | {"p90": 0.023}
    replies = [answer.reply for answer in answer_questions(parse_document(raw))]
    assert replies[2].verdict == "mixed"
    assert "Measured once: 15% either way is assumed, as far as plain answers" in replies[2].detail


def test_the_remark_says_where_it_is_from() -> None:
    raw = make_document()
    figures_of(raw, "dflash fixed:4", 1)["speedup_spread"] = [1.5, 1.8]
    detail = answer_questions(parse_document(raw))[2].reply.detail
    assert "20% either way is assumed there, as far as repeats lie apart" in detail


def test_no_range_falls_below_zero() -> None:
    """The slowest tenth of answers may have taken more than twice the median."""
    assert noisy(2.0, None, 1, 1.5) == (2.0, 0.0, 5.0)
