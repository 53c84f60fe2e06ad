"""Figures in the shapes that `--json` prints."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from blockdraft.cli.render import steps_by_width
from blockdraft.decoding import AcceptanceStats
from blockdraft.decoding.stats import StepCount


def counted(steps: Sequence[tuple[int, int]]) -> AcceptanceStats:
    """Steps given as (drafted, accepted)."""
    stats = AcceptanceStats().with_prefill_token()
    for drafted, accepted in steps:
        stats = stats.with_step(
            StepCount(num_committed=accepted + 1, num_drafted=drafted, num_accepted=accepted)
        )
    return stats


@given(st.lists(st.integers(0, 7)))
def test_steps_are_counted_by_what_was_verified(drafted: list[int]) -> None:
    found = steps_by_width(counted([(width, width // 2) for width in drafted]))
    most = max(drafted, default=-1)
    assert found == [drafted.count(width) for width in range(most + 1)]


def test_a_cut_step_counts_once() -> None:
    """Drafts accepted beyond the end of an answer leave no negative counts."""
    cut = StepCount(num_committed=2, num_drafted=7, num_accepted=2, num_cut=3)
    stats = counted([(7, 7), (0, 0)]).with_step(cut)
    found = steps_by_width(stats)
    assert sum(found) == stats.steps == 3 and min(found) >= 0
    assert found[0] == 1
