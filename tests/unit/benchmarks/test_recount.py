"""The independent recount agrees with the bench's estimator, and finds what was changed."""

import copy
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blockdraft.bench import Arrival, LaneInfo, LevelResult, RequestRecord, run_document
from blockdraft.bench.acceptance import Acceptance
from blockdraft.bench.chunks import Usage
from blockdraft.bench.records import Failure, StepRecord
from blockdraft.bench.results import Run
from recount import main, recount, shown

Object = dict[str, object]
WIDTH = 4
CATEGORIES = ("math", "chat", "")


def record(
    number: int, source: random.Random, chance: float, *, failed: bool = False
) -> RequestRecord:
    """An answer whose drafts are each right by `chance`; some steps are narrower, one has none."""
    sent = source.random()
    now = first = sent + source.random()
    steps: list[StepRecord] = []
    for _ in range(source.randint(0, 12)):
        drafted = source.choice((0, 2, WIDTH))
        accepted = next((k for k in range(drafted) if source.random() > chance), drafted)
        now += 0.01 + source.random()
        steps.append(StepRecord(1 + accepted, drafted, accepted, now))
    return RequestRecord(
        number=number,
        id=f"p{number % 7}",
        category=CATEGORIES[number % 3],
        sent_s=sent,
        first_s=first,
        end_s=now,
        chunks_s=(first, *(step.end_s for step in steps)),
        usage=Usage(source.randint(1, 300), 0, 1 + sum(step.committed for step in steps)),
        finish_reason=source.choice(("stop", "length")),
        counts=None,
        failure=Failure("refused", "no") if failed else None,
        steps=tuple(steps),
    )


def synthetic(seed: int, num_answers: int, chance: float = 0.6) -> Object:
    """A run of two lanes, two arrivals and two repeats; one level is not complete."""
    source = random.Random(seed)
    levels = [
        LevelResult(
            lane=lane,
            repeat=repeat,
            arrival=Arrival(concurrency=concurrency),
            num_planned=num_answers,
            num_distinct=min(7, num_answers),
            started=float(repeat),
            records=tuple(
                record(number, source, chance * (lane != "plain"), failed=number == 5)
                for number in range(num_answers)
            ),
            acceptance=Acceptance(()),
            is_complete=(repeat, concurrency, lane) != (1, 4, "plain"),
        )
        for repeat in range(2)
        for concurrency in (1, 4)
        for lane in ("plain", "dflash")
    ]
    run = Run(
        mode="in-process",
        preset=None,
        started=0.0,
        seconds=1.0,
        conditions={},
        workload={},
        settings={},
        lanes=[LaneInfo(name="plain", kind="plain"), LaneInfo(name="dflash", kind="block")],
        levels=levels,
        is_complete=False,
    )
    return cast(Object, json.loads(json.dumps(run_document(run))))


@given(st.integers(0, 10**6), st.integers(1, 15), st.floats(0, 1))
@settings(max_examples=8, deadline=None)
def test_the_estimator_is_right(seed: int, num_answers: int, chance: float) -> None:
    lines = recount(synthetic(seed, num_answers, chance), draws=400)
    assert len(lines) > 40
    assert [line for line in lines if not line.agrees] == []


def figures_of(document: Object) -> list[Object]:
    return cast("list[Object]", document["figures"])


def group(figures: Object, name: str) -> Object:
    return cast("dict[str, list[Object]]", figures["groups"])[name][0]


def add(name: str, more: float) -> Callable[[Object], None]:
    def change(figures: Object) -> None:
        figures[name] = cast(float, figures[name]) + more

    return change


def change_list(name: str) -> Callable[[Object], None]:
    def change(figures: Object) -> None:
        cast("list[float]", figures[name])[1] += 1e-6

    return change


def widen(figures: Object) -> None:
    """An interval of another level than 95%: its ends move by less than its width."""
    low, high = cast("list[float]", figures["tau_interval"])
    figures["tau_interval"] = [low - (high - low) / 4, high]


CHANGES: dict[str, Callable[[Object], None]] = {
    "tau": add("tau", 1e-6),
    "tau_ended": add("tau_ended", 1e-6),
    "tau_interval": widen,
    "by_position": change_list("by_position"),
    "conditional": change_list("conditional"),
    "histogram": change_list("histogram"),
    "tokens_per_second": add("tokens_per_second", 1e-3),
    "speedup": add("speedup", 1e-6),
    "category math: tau": lambda figures: add("tau", 0.1)(group(figures, "category")),
    "context_len": lambda figures: add("answers", 1)(group(figures, "context_len")),
    "output_len": lambda figures: add("to", 1000)(group(figures, "output_len")),
    "answer_position": lambda figures: add("steps", -1)(group(figures, "answer_position")),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_figure_that_was_changed_is_found(name: str) -> None:
    document = copy.deepcopy(DOCUMENT)
    CHANGES[name](figures_of(document)[2])
    wrong = [line.name for line in recount(document, draws=400) if not line.agrees]
    assert wrong and all(line.startswith("dflash at 1: ") for line in wrong)
    assert any(name in line for line in wrong)


DOCUMENT = synthetic(3, 14)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It needs nothing but Python: it runs with no package in sight."""
    path = tmp_path / "results.json"
    path.write_text(json.dumps(DOCUMENT))
    script = Path(__file__).parents[3] / "benchmarks" / "recount.py"
    ran = subprocess.run(
        [sys.executable, "-I", "-S", str(script), str(path)], capture_output=True, text=True
    )
    assert ran.returncode == 0 and "figures counted again, 0 differ" in ran.stdout
    changed = copy.deepcopy(DOCUMENT)
    add("tau", 0.01)(figures_of(changed)[3])
    path.write_text(json.dumps(changed))
    assert main([str(path)]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("DIFFERS  dflash at 4: tau: ") and "1 differ" in printed
    path.write_text(json.dumps({**DOCUMENT, "figures": []}))
    assert main([str(path)]) == 1 and "no answers with their steps" in capsys.readouterr().out
    assert shown([1.5, None]) == "[1.5, None]"
