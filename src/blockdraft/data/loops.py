"""Answers that say the same over and over until the limit ends them.

Small models do so when they are greedy. It only recognizes them; what becomes of them is a policy.
"""

from collections.abc import Sequence

MAX_PERIOD = 128
MIN_REPEATS = 3
MIN_LOOP_LEN = 32


def ends_in_loop(ids: Sequence[int]) -> bool:
    """Whether the end of `ids` is one cycle, at least three times and at least 32 ids long.

    A cycle has at most 128 ids. What changes from round to round (a counter) is no cycle.
    """
    tail = ids[-max(MIN_LOOP_LEN, MIN_REPEATS * MAX_PERIOD) :]
    for period in range(1, MAX_PERIOD + 1):
        loop_len = max(MIN_LOOP_LEN, MIN_REPEATS * period)
        if loop_len > len(tail):
            return False
        if all(tail[-i] == tail[-i - period] for i in range(1, loop_len - period + 1)):
            return True
    return False
