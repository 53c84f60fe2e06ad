"""`TrackedRequest`: the numbers that the scheduler keeps about one request.

It decides nothing and holds no text, sampling state or tensors.

Token ranges, `known` = prompt + emitted:

    [0, context_len)                       rows that hold keys and values of the target
    [0, reusable_len)                      .. and of the drafter too, so others may copy them
    [context_len, prefill_len)             rows that are still to be prefilled
    [len(known) - 1, len(known))           the anchor, while it decodes: row context_len
    [.., needed_rows)                      rows that the next pass may write
"""

from dataclasses import dataclass

# How many full blocks a request should be able to commit before it has to ask for rows again. It
# keeps a request that was just admitted from being preempted, or all rows from being moved, a few
# steps later.
NUM_SPARE_BLOCKS = 4


@dataclass(slots=True, eq=False, kw_only=True)
class TrackedRequest:
    """A mutable record; lengths in tokens, `rows_ahead` as in `SchedulerConfig`."""

    key: int
    prompt_len: int
    max_tokens: int
    rows_ahead: int
    known: list[int]
    prefill_len: int
    context_len: int = 0
    drafter_len: int = 0

    @property
    def num_emitted(self) -> int:
        return len(self.known) - self.prompt_len

    @property
    def is_prefilling(self) -> bool:
        return self.context_len < self.prefill_len

    @property
    def reusable_len(self) -> int:
        return min(self.context_len, self.drafter_len)

    @property
    def needed_rows(self) -> int:
        """What the request can't go on without."""
        return max(self.prefill_len, self.context_len) + self.rows_ahead

    @property
    def final_rows(self) -> int:
        """More than it can ever need."""
        return self.prompt_len + self.max_tokens + self.rows_ahead

    @property
    def comfortable_rows(self) -> int:
        """What keeps it going for some steps."""
        return min(self.final_rows, self.needed_rows + NUM_SPARE_BLOCKS * self.rows_ahead)

    def restart(self) -> None:
        """Forget all rows: everything known but the anchor has to be prefilled again."""
        self.context_len = 0
        self.drafter_len = 0
        self.prefill_len = len(self.known) - (1 if self.num_emitted else 0)
