"""Every verdict of every question, on documents whose figures are set by hand."""

import re
from typing import cast

import pytest
from sample_bench import (
    Document,
    figures_of,
    make_document,
    make_endpoint_document,
    parts,
    set_speedups,
)

from blockdraft.bench.report.answers import Answer, answer_questions, answers_json
from blockdraft.bench.report.evidence import Estimate
from blockdraft.bench.report.reading import parse_document
from blockdraft.bench.report.throughput_answer import judge_gains
from blockdraft.errors import ConfigError

FIXED = ("dflash fixed:4", "dflash fixed:8")


def answers(document: Document) -> tuple[Answer, ...]:
    return answer_questions(parse_document(document))


def verdict(document: Document, question: int) -> str:
    return answers(document)[question - 1].reply.verdict


def sentence(document: Document, question: int) -> str:
    return answers(document)[question - 1].reply.sentence


def only(*lanes: str) -> Document:
    return make_document(lanes=("plain", *lanes))


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        ([1.43, 2.6], "yes"),
        ([1.41, 2.6], "mixed"),
        ([1.0, 1.43], "mixed"),
        ([1.0, 1.41], "no"),
    ],
)
def test_tau_against_the_break_even(interval: list[float], expected: str) -> None:
    """A drafted step of auto costs 1.42 plain ones: 500 steps of 34.08 ms against 24 ms."""
    document = only("dflash auto")
    figures_of(document, "dflash auto", 1).update(
        tau=(interval[0] + interval[1]) / 2, tau_interval=interval
    )
    first = answers(document)[0].reply
    assert first.verdict == expected
    assert cast(float, first.figures["break_even"]) == pytest.approx(1.42)
    assert first.figures["break_even_source"] == "step times"
    assert "A drafted step costs 1.42 plain ones here" in first.sentence


def test_few_answers_are_not_sure() -> None:
    """Three prompts that happen to agree say little about others."""
    document = only("dflash auto")
    figures = figures_of(document, "dflash auto", 1)
    figures.update(tau=1.5, tau_interval=[1.49, 1.51], answers=5)
    assert verdict(document, 1) == "yes"
    figures["answers"] = 4
    assert verdict(document, 1) == "mixed"
    assert "4 answers only" in answers(document)[0].reply.detail


def test_the_break_even_by_hand_from_the_costs_of_passes() -> None:
    """Width 4: a draft of 3 tokens (4.86 ms), 4 rows (28.4 ms) and 1.1 ms, over 23.6 + 1.1 ms."""
    document = only("dflash fixed:4")
    for level in parts(document, "levels"):
        level["step_time"] = None
    figures = answers(document)[0].reply.figures
    assert figures["break_even_source"] == "costs of passes"
    assert cast(float, figures["break_even"]) == pytest.approx(34.36 / 24.7)


def test_the_break_even_from_the_speed_up() -> None:
    """An endpoint tells neither step times nor costs: tau 2.4 at a speed-up of 1.6 is 1.5."""
    document = make_endpoint_document(has_baseline=True)
    set_speedups(document, "endpoint", 1.6)
    figures_of(document, "endpoint", 1).update(tau=2.4, tau_interval=None)
    first = answers(document)[0].reply
    assert cast(float, first.figures["break_even"]) == pytest.approx(1.5)
    assert first.figures["tau_interval"] == pytest.approx([2.16, 2.64])
    assert first.verdict == "yes"


@pytest.mark.parametrize(
    ("speedup", "spread", "expected"),
    [
        (1.2, [1.15, 1.25], "yes"),
        (1.2, [0.99, 1.3], "mixed"),
        # Repeats that agree are not surer than 2%.
        (1.015, [1.01, 1.02], "mixed"),
        (0.985, [0.98, 0.99], "mixed"),
        (0.9, [0.88, 0.93], "no"),
    ],
)
def test_latency(speedup: float, spread: list[float], expected: str) -> None:
    document = only("dflash auto")
    figures = figures_of(document, "dflash auto", 1)
    figures.update(speedup=speedup, latency_speedup=speedup, speedup_spread=spread, repeats=2)
    cast(Document, figures["groups"])["category"] = []
    assert verdict(document, 2) == expected
    assert f"{speedup:.2f}x" in sentence(document, 2)


def test_a_latency_measured_once_may_be_off_by_5_percent() -> None:
    document = only("dflash auto")
    set_speedups(document, "dflash auto", 1.04)
    figures = figures_of(document, "dflash auto", 1)
    cast(Document, figures["groups"])["category"] = []
    assert verdict(document, 2) == "yes"
    figures["repeats"] = 1
    assert verdict(document, 2) == "mixed"


def test_a_category_that_gets_slower_makes_latency_mixed() -> None:
    document = only("dflash auto")
    set_speedups(document, "dflash auto", 1.5)
    groups = cast(Document, figures_of(document, "dflash auto", 1)["groups"])
    categories = parts(groups, "category")
    assert verdict(document, 2) == "yes"
    categories[2]["speedup"] = 0.94
    second = answers(document)[1].reply
    assert second.verdict == "mixed"
    assert "least in chat (0.94x)" in second.sentence
    assert "Slower than plain decoding in: chat." in second.detail
    categories[2]["speedup"] = 0.96
    assert verdict(document, 2) == "yes"


def test_latency_tells_the_first_token() -> None:
    """P06: what drafting does to the time to first token is said."""
    assert "first token 96.9 ms (+14%)" in sentence(make_document(), 2)


@pytest.mark.parametrize(
    ("speedups", "expected"),
    [
        ((1.6, 1.4, 1.2, 1.1), "yes"),
        ((1.6, 1.4, 1.2, 0.8), "mixed"),
        ((1.6, 1.4, 1.01, 1.1), "mixed"),
        ((1.6, 1.01, 0.99, 0.9), "no"),
        ((0.9, 0.9, 0.9, 0.9), "no"),
        ((0.9, 1.2, 1.2, 1.2), "yes"),
        ((1.6, 1.4, 0.9, 1.0), "mixed"),
    ],
)
def test_throughput(speedups: tuple[float, ...], expected: str) -> None:
    document = only("dflash auto")
    set_speedups(document, "dflash auto", *speedups)
    assert verdict(document, 3) == expected


@pytest.mark.parametrize(
    ("speedups", "told"),
    [
        ((1.6, 1.4, 1.2, 1.1), "the gain does not end before that"),
        ((1.6, 1.4, 1.2, 0.8), "the gain ends at concurrency 5.7"),
        ((0.9, 0.8, 0.8, 0.7), "slower at every load"),
        ((0.9, 1.2, 1.2, 1.2), "not a sure gain at every load"),
    ],
)
def test_the_course_of_throughput(speedups: tuple[float, ...], told: str) -> None:
    document = only("dflash auto")
    set_speedups(document, "dflash auto", *speedups)
    assert told in sentence(document, 3)


def test_throughput_at_one_load_is_not_known() -> None:
    document = make_document((1,))
    assert verdict(document, 3) == "unknown"
    assert "--concurrency 1 2 4 8" in sentence(document, 3)


def test_throughput_says_where_the_gain_ends_and_what_auto_does_there() -> None:
    """P02: fixed:8 goes from 1.2 at 4 to 0.8 at 8, so it crosses 1 at their geometric mean."""
    document = only("dflash fixed:8", "dflash auto")
    set_speedups(document, "dflash fixed:8", 1.6, 1.4, 1.2, 0.8)
    set_speedups(document, "dflash auto", 1.5, 1.4, 1.3, 1.05)
    third = answers(document)[2].reply
    assert "The best fixed width, dflash fixed:8, ends at 5.7" in third.sentence
    assert "auto is at 1.05x (concurrency 8)" in third.sentence
    crossings = cast("dict[str, float | None]", third.figures["crossings"])
    assert crossings["dflash fixed:8"] == pytest.approx(32**0.5)
    assert crossings["dflash auto"] is None


def test_growth_is_judged_without_the_first_load() -> None:
    sure = Estimate(1.2, 1.1, 1.3)
    loss = Estimate(0.8, 0.7, 0.9)
    open_end = Estimate(1.0, 0.9, 1.1)
    assert judge_gains([loss, sure]) == "yes"
    assert judge_gains([sure, loss]) == "no"
    assert judge_gains([sure, open_end]) == "mixed"
    assert judge_gains([sure, open_end, loss]) == "no"
    assert judge_gains([sure, loss, open_end]) == "mixed"


@pytest.mark.parametrize(
    ("speedups", "expected", "told"),
    [
        ((1.6, 1.4), "yes", "Width 4 (1.60x, tau 2.05, a step costs 1.32) wins, 14% over 8"),
        ((1.4, 1.6), "yes", "Width 8 (1.60x, tau 2.44, a step costs 1.68) wins, 14% over 4"),
        ((1.5, 1.47), "mixed", "can't be told apart"),
        ((0.9, 0.8), "no", "None: plain decoding wins over every width; closest is 4 (0.90x"),
        ((1.01, 0.8), "mixed", "is ahead of the others, but not surely of plain decoding"),
    ],
)
def test_block_size(speedups: tuple[float, float], expected: str, told: str) -> None:
    document = make_document()
    for lane, speedup in zip(FIXED, speedups, strict=True):
        set_speedups(document, lane, speedup)
    assert verdict(document, 4) == expected
    assert told in sentence(document, 4)
    assert "Auto reaches 1.60x." in sentence(document, 4)


def test_one_width_is_not_a_sweep() -> None:
    assert verdict(only("dflash fixed:8"), 4) == "unknown"
    assert "blockdraft tune" in sentence(only("dflash fixed:8"), 4)


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (("ready", "ready"), "yes"),
        (("ready", "problems"), "mixed"),
        (("ready", "unknown"), "mixed"),
        (("problems", "problems"), "no"),
        (("unknown", "problems"), "no"),
        (("unknown", "unknown"), "unknown"),
    ],
)
def test_stack(verdicts: tuple[str, str], expected: str) -> None:
    document = make_document()
    document["stack"] = [
        {"engine": engine, "verdict": one, "findings": [] if one == "ready" else ["BD101 error"]}
        for engine, one in zip(("vllm", "sglang"), verdicts, strict=True)
    ]
    assert verdict(document, 5) == expected


@pytest.mark.parametrize(
    ("verdicts", "expected", "headline", "said"),
    [
        (("ready", "ready", "ready", "ready"), "yes", "2 of 2 drafters", "b: ready for all 2"),
        (
            ("ready", "ready", "ready", "problems"),
            "mixed",
            "1 of 2 drafters",
            "a: ready for all 2 engines. b: ready for vllm, problems with sglang.",
        ),
        (("ready", "ready", "problems", "problems"), "mixed", "1 of 2", "b: problems with all 2"),
        (("problems",) * 4, "no", "0 of 2 drafters", "a: problems with all 2 engines."),
        (("unknown",) * 4, "unknown", "0 of 2 drafters", "b: not told for all 2 engines."),
        (("ready", "ready", "unknown", "unknown"), "mixed", "1 of 2", "b: not told for all"),
    ],
)
def test_each_of_several_drafters_is_judged(
    verdicts: tuple[str, ...], expected: str, headline: str, said: str
) -> None:
    document = make_document()
    pairs = [(drafter, engine) for drafter in ("a", "b") for engine in ("vllm", "sglang")]
    document["stack"] = [
        {"engine": engine, "drafter": drafter, "verdict": one, "findings": ["DFL1 error: so"]}
        for (drafter, engine), one in zip(pairs, verdicts, strict=True)
    ]
    reply = answers(document)[4].reply
    assert reply.verdict == expected
    assert reply.headline.startswith(headline) and said in reply.sentence
    assert ("b, sglang (DFL1 error: so)." in reply.detail) == (verdicts[3] != "ready")
    assert reply.figures["a"] == {"vllm": verdicts[0], "sglang": verdicts[1]}


def test_one_reason_for_all_engines_is_told_once() -> None:
    document = make_document()
    document["stack"] = [
        {"engine": engine, "drafter": "a", "verdict": "unknown", "findings": ["it is EAGLE-3"]}
        for engine in ("vllm", "sglang")
    ]
    assert sentence(document, 5) == "Not told for any engine: it is EAGLE-3."


def test_of_an_endpoint_only_its_own_engine_counts() -> None:
    document = make_endpoint_document(has_baseline=True)
    document["stack"] = make_document()["stack"]
    assert verdict(document, 5) == "yes"
    cast(Document, document["conditions"])["engine"] = "llamacpp"
    assert verdict(document, 5) == "no"
    assert "Problems: llamacpp (BD201: its conversion" in sentence(document, 5)


def test_an_unchecked_stack_gives_the_command() -> None:
    document = make_document()
    document["stack"] = None
    assert verdict(document, 5) == "unknown"
    assert "`blockdraft check --target smollm2 --drafter smollm2-dflash`" in sentence(document, 5)


def test_an_endpoint_without_a_baseline_says_what_to_do() -> None:
    """It has a tau, but nothing to compare times with."""
    document = make_endpoint_document(has_baseline=False)
    told = answers(document)
    assert [answer.reply.verdict for answer in told] == ["unknown"] * 5
    assert "tau is 2.31" in told[0].reply.sentence
    assert "--baseline" in told[0].reply.detail
    for answer in told[1:3]:
        assert "--baseline URL" in answer.reply.sentence
    assert "in process" in told[3].reply.sentence
    assert "The vllm engine did draft here" in told[4].reply.sentence


def test_an_endpoint_with_a_baseline_is_judged() -> None:
    document = make_endpoint_document(has_baseline=True)
    set_speedups(document, "endpoint", 1.5)
    assert [a.reply.verdict for a in answers(document)][:3] == ["yes", "yes", "yes"]


def test_without_any_drafts_nothing_is_claimed() -> None:
    told = answers(only())
    assert [answer.reply.verdict for answer in told[:4]] == ["unknown"] * 4
    assert all("No lane drafted" in answer.reply.sentence for answer in told[:4])


def test_a_run_that_was_broken_off_at_once() -> None:
    document = make_document()
    document |= {"complete": False, "levels": [], "figures": [], "costs": None, "stack": None}
    told = answers(document)
    assert [answer.reply.verdict for answer in told] == ["unknown"] * 5


def test_prompt_lookup_counts_only_where_there_is_no_drafter() -> None:
    document = make_document()
    set_speedups(document, "prompt-lookup", 3.0, 3.0, 3.0, 3.0)
    assert "(dflash auto)" in sentence(document, 2)
    assert "prompt-lookup, which needs no drafter, reaches" in answers(document)[1].reply.detail
    assert "(prompt-lookup)" in sentence(only("prompt-lookup"), 2)


def test_each_of_several_drafters_is_told() -> None:
    document = make_document()
    lanes = parts(document, "lanes")
    lanes[2]["drafter"] = "other"
    first = answers(document)[0].reply
    others = cast("list[Document]", first.figures["others"])
    assert first.figures["drafter"] == "smollm2-dflash"
    assert [other["drafter"] for other in others] == ["other"]
    assert "dflash fixed:4" in first.detail


def test_rates_are_loads_too() -> None:
    document = make_document((1,))
    for one in parts(document, "figures") + parts(document, "levels"):
        one["arrival"] = {"concurrency": None, "rate": 0.5}
    assert "at 0.5 requests a second" in sentence(document, 2)
    assert verdict(document, 3) == "unknown"


def test_answers_as_part_of_the_document() -> None:
    told = answers_json(make_document())
    assert [answer["question"] for answer in told] == [1, 2, 3, 4, 5]
    assert list(told[0]) == [
        *("question", "title", "verdict", "sentence", "figures", "headline", "detail")
    ]
    assert told == answers_json(make_document())
    with pytest.raises(ConfigError, match="version 1 of the schema"):
        answers_json(make_document() | {"version": 1})


def test_sentences_are_short_and_ascii() -> None:
    """Five of them have to fit the first screen of a phone."""
    for document in (make_document(), make_endpoint_document(has_baseline=False)):
        for answer in answers(document):
            text = answer.reply.sentence + answer.reply.detail
            assert len(answer.reply.sentence) < 220
            assert re.fullmatch(r"[ -~]+", text)
