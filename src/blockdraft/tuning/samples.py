"""`StepSample`: what one step of an engine was made of, and how long it took.

A value with its compact form in a file; measuring is `observe.py`, fitting is `fit.py`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from blockdraft.errors import ConfigError


class StepSample(NamedTuple):
    """`num_drafting` requests drafted `draft_width` tokens (0 and 1: nobody did).

    `decode_rows` are the rows verified, anchors included; `num_requests` had rows in the pass, of
    a prompt or to be verified. `num_taken_in` tokens of context went into the drafter first.
    """

    num_requests: int
    prompt_rows: int
    decode_rows: int
    num_drafting: int
    draft_width: int
    num_taken_in: int
    seconds: float

    @classmethod
    def of_row(cls, row: Sequence[object], where: str) -> "StepSample":
        """From the list that a file holds. Raises ConfigError that says `where`."""
        numbers = [x for x in row if isinstance(x, int | float) and not isinstance(x, bool)]
        sizes = [x for x in numbers[:6] if isinstance(x, int) and x >= 0]
        if len(row) != 7 or len(numbers) != 7 or len(sizes) != 6 or not numbers[6] > 0:
            raise ConfigError(
                f"{where}: step {list(row)!r:.60} is damaged; measure into a new --out"
            )
        requests, prompt_rows, decode_rows, num_drafting, draft_width, num_taken_in = sizes
        seconds = float(numbers[6])
        return cls(
            requests, prompt_rows, decode_rows, num_drafting, draft_width, num_taken_in, seconds
        )
