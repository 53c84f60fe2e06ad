"""Measuring on a made-up clock and the cache of what was measured; free memory is a number."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from blockdraft.decoding import Draft, DraftIds
from blockdraft.engine.calibrate import CONTEXT_LEN, Limits, measure_costs
from blockdraft.engine.cost_cache import cost_file, read_costs, write_costs
from blockdraft.engine.costs import CostModel
from blockdraft.engine.extents import Move
from blockdraft.engine.memory import free_memory
from blockdraft.engine.sides import DraftRequest, Extension, Feed, PassResult


class Machine:
    """Both sides and the clock: a pass takes 10 s and 1 s a row; a draft 2 s and 0.5 s a slot."""

    can_copy = True
    bytes_per_token = 1
    block_size = 8
    taps = (0, 1)

    def __init__(self, *, can_batch: bool = True) -> None:
        self.can_batch = can_batch
        self.now = 0.0
        self.feeds: list[Sequence[Feed]] = []
        self.committed: list[list[int]] = []
        self.extended: list[Extension] = []
        self.drafted: list[Sequence[DraftRequest]] = []
        self.forgotten: list[int] = []

    def clock(self) -> float:
        return self.now

    def move(self, moves: Sequence[Move]) -> None:
        raise NotImplementedError

    def run(self, feeds: Sequence[Feed]) -> PassResult:
        self.feeds.append(feeds)
        rows = sum(len(feed.ids) for feed in feeds)
        self.now += 10.0 + rows
        return PassResult(torch.zeros(rows, 4), None)

    def commit(self, feed: Feed, rows: Sequence[int] | int) -> None:
        self.committed.append(list(range(rows)) if isinstance(rows, int) else list(rows))

    def extend(self, extensions: Sequence[Extension]) -> None:
        self.extended += extensions

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        self.drafted.append(requests)
        self.now += 2.0 + 0.5 * sum(request.width - 1 for request in requests)
        return [DraftIds(()) for _ in requests]

    def forget(self, key: int) -> None:
        self.forgotten.append(key)

    def measure(self, limits: Limits, *, drafts: bool = True) -> CostModel:
        return measure_costs(
            self,
            self if drafts else None,
            limits,
            feature_size=6,
            dtype=torch.float32,
            clock=self.clock,
        )


def test_what_is_measured_is_what_it_costs() -> None:
    machine = Machine()
    costs = machine.measure(Limits(num_slots=4, num_rows=2000, max_context=1000))
    for rows in (1, 2, 8, 64):
        assert costs.verify_seconds(rows) == pytest.approx(10.0 + rows)
    for num, width in ((1, 2), (4, 8), (2, 4)):
        assert costs.draft_seconds(num, width) == pytest.approx(2.0 + 0.5 * num * (width - 1))
    assert set(machine.forgotten) == {0, 1, 2, 3}
    assert all(kept == [] for kept in machine.committed)
    assert {e.start for e in machine.extended} == {0}
    features = machine.extended[0].features
    assert features is not None and features.shape == (CONTEXT_LEN, 6)


@pytest.mark.parametrize("can_batch", [True, False])
@pytest.mark.parametrize(
    "limits",
    [
        Limits(1, 64, 56),
        Limits(16, 64, 8),
        Limits(3, 100, 2),
        Limits(5, 5000, 4000, pass_rows=8),
        Limits(16, 1000, 30, pass_rows=2),
    ],
)
def test_measuring_stays_within_the_limits(limits: Limits, can_batch: bool) -> None:
    """Rows, slots, context, and the fixed width of batch-invariant passes."""
    machine = Machine(can_batch=can_batch)
    costs = machine.measure(limits)
    assert costs.verify_seconds(1) == pytest.approx(11.0)
    for feeds in machine.feeds:
        fed = sum(len(feed.ids) for feed in feeds)
        assert len(feeds) <= limits.num_slots
        if limits.pass_rows is not None and not feeds[0].is_prompt:
            assert fed <= limits.pass_rows
        for feed in feeds:
            assert feed.context_len + len(feed.ids) <= limits.max_context
            assert feed.base + feed.context_len + len(feed.ids) <= limits.num_rows
    for requests in machine.drafted:
        for request in requests:
            assert request.base + request.context_len + request.width <= limits.num_rows
    bases = {feed.key: feed.base for feeds in machine.feeds for feed in feeds}
    assert len(set(bases.values())) == len(bases)


def test_plain_decoding_measures_no_drafts() -> None:
    machine = Machine()
    machine.measure(Limits(2, 500, 400), drafts=False)
    assert machine.extended == [] and machine.drafted == []


COSTS = CostModel.fit({1: 0.01, 8: 0.02}, {(1, 2): 0.001, (1, 4): 0.002})


def test_costs_come_back_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = cost_file({"a": "1", "b": "2"})
    assert path.is_relative_to(tmp_path)
    assert path == cost_file({"b": "2", "a": "1"}) != cost_file({"a": "1", "b": "3"})
    assert read_costs(path) is None
    write_costs(path, COSTS)
    known = read_costs(path)
    assert known is not None and known.to_json() == COSTS.to_json()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"format": 99}', b"\xff\xfe"])
def test_a_damaged_cache_is_measured_again(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "costs.json"
    path.write_bytes(damage)
    assert read_costs(path) is None
    assert read_costs(tmp_path) is None


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    write_costs(blocked / "costs.json", COSTS)
    assert blocked.read_text() == ""


def test_free_memory_is_a_sensible_number() -> None:
    assert 1 << 20 < free_memory(torch.device("cpu")) < 1 << 50
