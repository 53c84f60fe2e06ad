"""A run that goes on: what is kept, what is measured again, and what is refused."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from tiny_bench import CONFIG, plan, run_all

from blockdraft.bench.config import Arrival
from blockdraft.bench.in_process import BenchPlan, InProcessBench
from blockdraft.bench.in_process.energy import NoMeter
from blockdraft.bench.in_process.pass_costs import costs_document
from blockdraft.bench.in_process.store import Order, read_stored
from blockdraft.bench.level_documents import level_document
from blockdraft.bench.levels import LevelResult
from blockdraft.bench.report.answers import answer_questions
from blockdraft.bench.report.reading import read_results
from blockdraft.bench.results import ResultsFolder, Run, lane_document, run_document
from blockdraft.cli.bench_report import answers_text
from blockdraft.errors import ConfigError
from blockdraft.target import HFTarget
from blockdraft.testing.drafters import OracleDrafter
from blockdraft.testing.tiny import tiny_target

ARRIVALS = (Arrival(concurrency=1), Arrival(rate=500.0))


@pytest.fixture(scope="module")
def target() -> HFTarget:
    return tiny_target()


@pytest.fixture(scope="module")
def order(target: HFTarget) -> BenchPlan:
    drafter = OracleDrafter(target, 4, num_right=1)
    return plan(drafter, arrivals=ARRIVALS, repeats=(1, 1))


@pytest.fixture(scope="module")
def whole(target: HFTarget, order: BenchPlan) -> InProcessBench:
    return run_all(target, order)


def document_of(bench: InProcessBench) -> dict[str, object]:
    return run_document(
        Run(
            mode="in-process",
            preset=None,
            started=1e9,
            seconds=3.0,
            conditions={"target": "tiny"},
            workload={"sha256": "0"},
            settings={"max_tokens": 13},
            lanes=[lane.info for lane in bench.plan.lanes],
            levels=bench.levels,
            is_complete=bench.is_complete,
            costs=None if bench.costs is None else costs_document(bench.costs, 0.001),
            energy={"source": None, "reason": "none here"},
        )
    )


def order_of(plan: BenchPlan) -> Order:
    return Order(
        conditions={"target": "tiny"},
        workload={"sha256": "0"},
        settings={"max_tokens": 13},
        lanes=[lane_document(lane.info) for lane in plan.lanes],
    )


def test_what_is_written_is_what_is_read(
    whole: InProcessBench, order: BenchPlan, tmp_path: Path
) -> None:
    document = document_of(whole)
    ResultsFolder(tmp_path).write(document)
    stored = read_stored(tmp_path, order_of(order), ARRIVALS)
    assert stored is not None and stored.seconds == 3.0 and stored.started == 1e9
    assert stored.costs == whole.costs
    again = [level_document(level) for level in stored.levels]
    assert again == document["levels"]
    records = [sorted(level.records, key=lambda r: r.number) for level in whole.levels]
    assert [list(level.records) for level in stored.levels] == records


def test_going_on_gives_the_levels_of_a_straight_run(
    whole: InProcessBench, target: HFTarget, order: BenchPlan, tmp_path: Path
) -> None:
    part = InProcessBench(target, order, NoMeter("none here"))
    part.levels = [*whole.levels[:3], replace(whole.levels[3], is_complete=False)]
    ResultsFolder(tmp_path).write(document_of(part))
    stored = read_stored(tmp_path, order_of(order), ARRIVALS)
    assert stored is not None and len(stored.levels) == 3
    bench = InProcessBench(target, order, NoMeter("none here"))
    bench.resume(stored.levels)
    assert bench.remaining == order.turns[3:]
    bench.open(CONFIG)
    for turn in bench.remaining:
        bench.measure(turn, lambda record: None)
    assert bench.is_complete
    assert [without_times(level) for level in bench.levels] == [
        without_times(level) for level in whole.levels
    ]


def without_times(level: LevelResult) -> object:
    records = sorted(level.records, key=lambda record: record.number)
    steps = [[step[:3] for step in record.steps or ()] for record in records]
    return (level.lane, level.arrival, level.repeat, [r.token_ids for r in records], steps)


def test_another_order_is_refused(whole: InProcessBench, order: BenchPlan, tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path)
    folder.write(document_of(whole))
    wanted = order_of(order)
    for other, said in (
        (replace(wanted, settings={"max_tokens": 14}), "settings: max_tokens was 13 and is 14"),
        (replace(wanted, workload={"sha256": "1"}), "workload: sha256 was '0' and is '1'"),
        (replace(wanted, conditions={"target": "x"}), "conditions: target was 'tiny' and is 'x'"),
        (replace(wanted, lanes=wanted.lanes[:2]), "lanes were plain, prompt-lookup, dflash"),
    ):
        with pytest.raises(ConfigError, match="of another order") as caught:
            read_stored(tmp_path, other, ARRIVALS)
        assert said in str(caught.value) and "another --out" in str(caught.value)
    with pytest.raises(ConfigError, match="is of an earlier run"):
        ResultsFolder(tmp_path)


def test_other_files_are_refused(order: BenchPlan, tmp_path: Path) -> None:
    assert read_stored(tmp_path, order_of(order), ARRIVALS) is None
    path = tmp_path / "results.json"
    path.write_text('{"schema": "blockdraft.bench", "version": 1}')
    with pytest.raises(ConfigError, match="has version 1 of the schema"):
        read_stored(tmp_path, order_of(order), ARRIVALS)
    path.write_text("{")
    with pytest.raises(ConfigError, match="can't read"):
        read_stored(tmp_path, order_of(order), ARRIVALS)


def test_a_damaged_file_is_refused(whole: InProcessBench, order: BenchPlan, tmp_path: Path) -> None:
    document = json.loads(json.dumps(document_of(whole)))
    path = tmp_path / "results.json"
    path.write_text(json.dumps(document | {"more": 1}))
    with pytest.raises(ConfigError, match="more"):
        read_stored(tmp_path, order_of(order), ARRIVALS)
    stray = {"name": "nobody", "requests": 1, "tokens": 3, "seconds": 0.1}
    document["costs"]["draft_by_requests"].append(stray)
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=r"draft_by_requests.*damaged"):
        read_stored(tmp_path, order_of(order), ARRIVALS)


GONE = object()
GARBLES: tuple[object, ...] = (
    None,
    "x",
    -1,
    0,
    1.5,
    True,
    [],
    {},
    [None],
    ["x"],
    {"x": 1},
    [[1]],
    10**400,
)


def places(value: object, before: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The way to every key, and to the first entry of every list."""
    inner: Sequence[tuple[str | int, object]] = []
    if isinstance(value, dict):
        inner = list(cast("dict[str | int, object]", value).items())
    elif isinstance(value, list):
        inner = list(enumerate(cast("list[object]", value)))[:1]
    for key, one in inner:
        yield (*before, key)
        yield from places(one, (*before, key))


def damaged(document: object, place: tuple[str | int, ...], garble: object) -> dict[str, object]:
    copy = json.loads(json.dumps(document))
    at = copy
    for key in place[:-1]:
        at = at[key]
    if garble is GONE:
        del at[place[-1]]
    else:
        at[place[-1]] = garble
    return cast("dict[str, object]", copy)


def go_on_with(folder: Path, target: HFTarget, order: BenchPlan) -> None:
    """What --resume does with a file, up to its next document, and `report` with it."""
    stored = read_stored(folder, order_of(order), ARRIVALS)
    assert stored is not None
    bench = InProcessBench(target, order, NoMeter("none here"))
    bench.resume(stored.levels)
    bench.costs = stored.costs
    document_of(bench)


def report(folder: Path) -> None:
    read = read_results(folder)
    answer_questions(read)
    answers_text(read)


def test_every_key_that_is_damaged_is_survived_or_named(
    whole: InProcessBench, target: HFTarget, order: BenchPlan, tmp_path: Path
) -> None:
    """Each key of a real results.json is taken away and garbled in turn: the file is read all the
    same, or refused in one line that names it and the key."""
    document = json.loads(json.dumps(document_of(whole)))
    path = tmp_path / "results.json"
    # One of each is enough: what drafts, with a record of its own.
    document["levels"] = document["levels"][2:3]
    document["levels"][0]["records"] = document["levels"][0]["records"][:1]
    document["figures"] = document["figures"][-1:]
    for number, place in enumerate(places(document)):
        names = [str(key) for key in place if isinstance(key, str)]
        for garble in (GONE, GARBLES[number % len(GARBLES)]):
            path.write_text(json.dumps(damaged(document, place, garble)))
            for read in (partial(go_on_with, tmp_path, target, order), partial(report, tmp_path)):
                try:
                    read()
                except ConfigError as error:
                    told = str(error)
                    assert "\n" not in told and str(path) in told, (place, garble, told)
                    assert any(name in told for name in names), (place, garble, told)


def test_the_document_is_plain_json(whole: InProcessBench) -> None:
    document = document_of(whole)
    again = cast(dict[str, object], json.loads(json.dumps(document, allow_nan=False)))
    assert again["levels"] == document["levels"]
    assert again["complete"] is True and len(cast("list[object]", again["answers"])) == 5
