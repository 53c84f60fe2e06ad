"""The estimator against brute force, on made-up records."""

import random
from dataclasses import replace

import pytest

from blockdraft.bench.acceptance import Acceptance, SourceFigures
from blockdraft.bench.chunks import Usage
from blockdraft.bench.config import Arrival
from blockdraft.bench.figures import acceptance_figures, figures_of, step_figures
from blockdraft.bench.groups import groups_of, range_of
from blockdraft.bench.levels import LevelResult, StepTime
from blockdraft.bench.records import Failure, RequestRecord, StepRecord
from blockdraft.bench.response_fields import ResponseCounts
from blockdraft.decoding import AcceptanceStats
from blockdraft.evaluation.bootstrap import tau_interval

ONE = Arrival(concurrency=1)
Made = tuple[int, int, int]


def record(number: int, made: list[Made], *, scale: float = 1.0, **other: object) -> RequestRecord:
    """An answer sent at `number`; each step takes 0.1 s times `scale`."""
    sent = float(number)
    ends = [sent + scale * 0.1 * (idx + 2) for idx in range(len(made))]
    steps = tuple(StepRecord(*one, end) for one, end in zip(made, ends, strict=True))
    tokens = 1 + sum(step.committed for step in steps)
    first = sent + scale * 0.1
    return RequestRecord(
        number=number,
        id=str(other.get("id", f"p{number}")),
        category=str(other.get("category", "math")),
        sent_s=sent,
        first_s=first,
        end_s=ends[-1] if ends else first,
        chunks_s=(first, *ends),
        usage=Usage(int(str(other.get("prompt", 10))), 0, tokens),
        finish_reason=str(other.get("finish", "length")),
        counts=None,
        failure=None,
        steps=steps,
        token_ids=tuple(range(tokens)),
    )


def level(
    records: list[RequestRecord], lane: str = "dflash", repeat: int = 0, *, complete: bool = True
) -> LevelResult:
    return LevelResult(
        lane=lane,
        repeat=repeat,
        arrival=ONE,
        num_planned=len(records),
        num_distinct=len(records),
        started=0.0,
        records=tuple(records),
        acceptance=Acceptance(()),
        is_complete=complete,
        step_time=StepTime(4, 1.0, 2.0, 1.0),
        energy_joules=12.0,
    )


def made_steps(source: random.Random) -> list[Made]:
    steps: list[Made] = []
    for _ in range(source.randint(1, 9)):
        drafted = source.randint(0, 7)
        accepted = source.randint(0, drafted)
        steps.append((accepted + 1, drafted, accepted))
    return steps


@pytest.mark.parametrize("seed", range(5))
def test_acceptance_is_what_counting_gives(seed: int) -> None:
    source = random.Random(seed)
    many = [made_steps(source) for _ in range(6)]
    records = [record(number, made) for number, made in enumerate(many)]
    found = step_figures(records)
    flat = [step for made in many for step in made]
    assert found.tau == sum(committed for committed, _, _ in flat) / len(flat)
    for k, (rate, given) in enumerate(zip(found.by_position, found.conditional, strict=True)):
        drafted = [accepted > k for _, drafted, accepted in flat if drafted > k]
        reached = [accepted > k for _, drafted, accepted in flat if drafted > k <= accepted]
        assert rate == sum(drafted) / len(drafted)
        assert given == (sum(reached) / len(reached) if reached else None)
    assert sum(found.histogram) == len(flat)
    assert sum(n * count for n, count in enumerate(found.histogram)) / len(flat) == found.tau
    stats = [AcceptanceStats(tokens=sum(m[0] for m in made), steps=len(made)) for made in many]
    assert found.tau_interval == tau_interval(stats)
    assert found.tau_ended is None


def test_repeated_prompts_count_as_one_in_the_interval() -> None:
    """P07: asking one prompt again does not narrow it."""
    once = [record(0, [(2, 3, 1)] * 4, id="a"), record(1, [(1, 3, 0)] * 4, id="b")]
    twice = [*once, record(2, [(2, 3, 1)] * 4, id="a"), record(3, [(1, 3, 0)] * 4, id="b")]
    assert step_figures(twice).tau_interval == step_figures(once).tau_interval
    alone = [record(n, [(2, 3, 1)], id="a") for n in range(4)]
    assert step_figures(alone).tau_interval is None


def test_speed_ups_are_within_a_repeat() -> None:
    """The machine was half as fast in the second repeat, for both lanes: it changes nothing."""
    fast, slow = [(4, 3, 3)] * 3, [(1, 0, 0)] * 12
    drafted = [level([record(0, fast)]), level([record(0, fast, scale=2)], repeat=1)]
    plain = [
        level([record(0, slow)], "plain"),
        level([record(0, slow, scale=2)], "plain", repeat=1),
    ]
    found = figures_of(drafted, plain)
    assert found.speedup == pytest.approx(1.3 / 0.4)
    assert found.speedup_spread == pytest.approx((1.3 / 0.4, 1.3 / 0.4))
    assert found.latency_speedup == pytest.approx(1.3 / 0.4)
    assert found.tokens_per_second == pytest.approx((13 / 0.4 + 13 / 0.8) / 2)
    assert found.tokens_per_second_spread == pytest.approx((13 / 0.8, 13 / 0.4))
    assert found.user_fairness == pytest.approx(0.5)
    assert (found.draft_share, found.other_share) == (0.25, 0.25)
    assert found.joules_per_token == pytest.approx(24 / 26)
    itself = figures_of(plain, plain)
    assert itself.speedup == itself.latency_speedup == 1


def test_an_incomplete_level_is_not_timed() -> None:
    plain = [level([record(0, [(1, 0, 0)] * 4)], "plain")]
    found = figures_of([level([record(0, [(2, 1, 1)] * 2)], complete=False)], plain)
    assert found.acceptance.tau == 2 and found.answers == 1
    assert found.speedup is None and found.tokens_per_second is None
    assert found.end_to_end is None


def test_groups() -> None:
    """P12: a step counts where it began in its answer."""
    records = [
        record(0, [(4, 3, 3)] * 5, category="math", prompt=20),
        record(1, [(1, 3, 0)] * 2, category="chat", prompt=100),
        record(2, [(2, 3, 1)] * 2, category="math", prompt=64),
    ]
    plain = [record(n, [(1, 0, 0)] * len(r.token_ids or ())) for n, r in enumerate(records)]
    found = groups_of([level(records)], [level(plain, "plain")])
    assert [(g.name, g.answers, g.tau) for g in found.category] == [
        ("math", 2, 24 / 7),
        ("chat", 1, 1.0),
    ]
    assert all(group.speedup is not None for group in found.category)
    assert [(g.start, g.end, g.answers) for g in found.context_len] == [(0, 64, 1), (64, 128, 2)]
    assert [(g.start, g.end, g.answers) for g in found.output_len] == [(0, 16, 2), (16, 32, 1)]
    begin = {(g.start, g.end): g for g in found.answer_position}
    assert begin[0, 16].steps == 8 and begin[16, 32].steps == 1
    assert begin[16, 32].tau == 4
    assert begin[16, 32].tokens_per_second == pytest.approx(40)


def test_ranges_double() -> None:
    assert [range_of(value, 16) for value in (0, 15, 16, 31, 32, 300)] == [
        (0, 16),
        (0, 16),
        (16, 32),
        (16, 32),
        (32, 64),
        (256, 512),
    ]


def test_a_failed_request_counts_nowhere() -> None:
    good = record(0, [(2, 1, 1)])
    bad = replace(record(1, []), failure=Failure("failed", "x"), usage=Usage(3, 0, 0))
    found = figures_of([level([good, bad])], [])
    assert found.answers == 1 and found.acceptance.tau == 2
    assert found.end_to_end is not None and found.end_to_end.num == 1


def told_by(
    number: int, tokens: int, counts: ResponseCounts | None, category: str
) -> RequestRecord:
    """An answer of an endpoint, which records no steps."""
    bare = record(number, [], category=category)
    return replace(bare, steps=None, usage=Usage(10, 0, tokens), counts=counts)


def test_groups_of_an_endpoint_are_counted_from_its_answers() -> None:
    counts = [(12, 20), (3, 10), (8, 8), (0, 5)]
    source = "metrics.speculative_decoding"
    records = [
        told_by(n, 40, ResponseCounts(source, kept, None, steps), "math" if n < 2 else "chat")
        for n, (kept, steps) in enumerate(counts)
    ]
    math, chat = groups_of([level(records)], []).category
    assert math.tau == pytest.approx(1 + 15 / 30) and chat.tau == pytest.approx(1 + 8 / 13)
    assert math.tau_interval is not None and math.tau_interval.low == pytest.approx(1.3)
    (context,) = groups_of([level(records)], []).context_len
    assert context.tau == pytest.approx(1 + 23 / 43)


def test_groups_of_llama_cpp_take_a_missing_count_for_no_draft() -> None:
    """Its timings tell accepted drafts, and nothing of an answer without one."""
    some = told_by(0, 21, ResponseCounts("timings", 10, 30), "math")
    none = told_by(1, 11, None, "math")
    (math,) = groups_of([level([some, none])], []).category
    assert math.tau == pytest.approx(30 / 20)
    assert groups_of([level([none])], []).category[0].tau is None


def test_a_broken_off_repeat_is_no_repeat() -> None:
    whole, part = level([record(0, [(2, 1, 1)])]), level([record(0, [(2, 1, 1)])], complete=False)
    assert figures_of([whole, part], [whole]).repeats == 1


def test_an_endpoint_tells_its_own_figures() -> None:
    """Pooled over levels by their steps."""

    def told(tau: float, steps: int) -> LevelResult:
        source = SourceFigures(
            name="x", definition="y", tau=tau, steps=steps, by_position=(tau - 1, 0.0)
        )
        bare = replace(record(0, []), steps=None, token_ids=None)
        return replace(level([bare]), acceptance=Acceptance((source,)))

    found = acceptance_figures([told(2.0, 30), told(1.0, 10)])
    assert found.tau == pytest.approx(1.75)
    assert found.by_position == pytest.approx((0.75, 0.0))
    assert found.conditional == pytest.approx((0.75, 0.0))
