"""Percentiles and rates against a second way to compute them."""

import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.bench.chunks import Usage
from blockdraft.bench.latency import quantile, speed_of, spread_of
from blockdraft.bench.records import Failure, RequestRecord


def record(
    sent: float, chunks: tuple[float, ...], end: float, tokens: int | None, *, failed: bool = False
) -> RequestRecord:
    return RequestRecord(
        number=0,
        id="a",
        category="",
        sent_s=sent,
        first_s=chunks[0] if chunks else None,
        end_s=end,
        chunks_s=chunks,
        usage=Usage(3, None, tokens),
        finish_reason="stop",
        counts=None,
        failure=Failure("timeout", "late") if failed else None,
    )


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.floats(0, 1))
def test_quantiles_are_those_of_torch(values: list[float], share: float) -> None:
    found = quantile(sorted(values), share)
    expected = torch.tensor(values, dtype=torch.float64).quantile(share).item()
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_a_level_by_hand() -> None:
    records = [
        record(1.0, (1.5, 2.0, 3.0), 3.5, 6),
        record(2.0, (2.25,), 2.5, 1),
        record(2.0, (2.5, 2.75), 5.0, None, failed=True),
    ]
    speed = speed_of(records)
    assert speed.seconds == 4.0 and speed.requests_per_second == 0.5
    assert speed.tokens_per_second == 7 / 4
    assert speed.first_token is not None and speed.first_token.p50 == 0.375
    assert speed.inter_token is not None and speed.inter_token.num == 1
    assert speed.inter_token.mean == pytest.approx(0.3)
    assert speed.chunk_gap is not None and (speed.chunk_gap.min, speed.chunk_gap.max) == (0.5, 1.0)
    assert speed.end_to_end is not None and speed.end_to_end.mean == 1.5
    user = speed.tokens_per_second_per_user
    assert user is not None and (user.min, user.max) == (2.0, 2.4)


def test_what_is_not_known_is_none() -> None:
    assert speed_of([]).tokens_per_second is None and spread_of([None]) is None
    no_usage = speed_of([record(0.0, (1.0,), 2.0, None)])
    assert no_usage.tokens_per_second is None and no_usage.inter_token is None
    assert no_usage.end_to_end is not None
    failed = speed_of([record(0.0, (), 2.0, 3, failed=True)])
    assert failed.requests_per_second == 0 and failed.tokens_per_second is None
    spread = spread_of([2.0, 1.0, 4.0])
    assert spread is not None and spread.p50 == statistics.median([1, 2, 4])
