"""What is asked, decided and told about the widths of one step, and the counts of all steps.

It decides nothing; `width.py` does.
"""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple


class Speculating(NamedTuple):
    """A request that could use a draft; `remaining` >= 1 is its widest block: the tokens it may
    still emit, or less where it asks for fewer drafts.
    """

    key: Hashable
    remaining: int


@dataclass(frozen=True, slots=True)
class WidthDecision:
    """Widths of one step, anchors counted; `verify` is aligned with the requests asked about.

    `draft_width` 1 = no drafter pass. A request whose verify width is 1 needs no draft. Reasons:
    "gain", "warming-up" (a gain by prior knowledge), "no-gain", "guard" (a gain is believed, but
    what speculation may lose is spent), "probe" (a try while plain decoding is believed best),
    "width-probe" (another width than the best), "fixed", "off", "last-token" (no
    request may take a draft), "idle".
    """

    draft_width: int
    verify: tuple[int, ...]
    reason: str

    @property
    def num_drafting(self) -> int:
        """Requests that take part in the drafter pass."""
        return sum(width > 1 for width in self.verify) if self.draft_width > 1 else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """What a decided step did. `keys`, `verify` and `accepted` are aligned with each other.

    They may leave out requests that ended meanwhile. `verify` are the rows really verified
    (anchor counted), so fewer than decided when the drafter drafted fewer; `accepted` are drafts
    accepted, also those that a stop cut off. Seconds are None when a pass was not timed or shared
    its time with other work. `catch_up_seconds` went into tokens that had waited for the drafter
    while nothing was drafted. `drafter_failed`: the drafter raised, the step went on plainly.
    """

    decision: WidthDecision
    keys: tuple[Hashable, ...]
    verify: tuple[int, ...]
    accepted: tuple[int, ...]
    num_other_rows: int = 0
    draft_seconds: float | None = None
    verify_seconds: float | None = None
    catch_up_seconds: float = 0.0
    drafter_failed: bool = False


class WidthStats:
    """Counts of what was chosen and why, since the start of the engine."""

    def __init__(self) -> None:
        self._reasons: Counter[str] = Counter()
        self._draft_widths: Counter[int] = Counter()
        self._pairs: Counter[tuple[int, int]] = Counter()

    def add(self, outcome: StepOutcome) -> None:
        """One step; a failed drafter counts as reason "drafter-failed" and as plain."""
        failed = outcome.drafter_failed
        draft_width = 1 if failed else outcome.decision.draft_width
        self._reasons["drafter-failed" if failed else outcome.decision.reason] += 1
        self._draft_widths[draft_width] += 1
        for width in outcome.verify:
            self._pairs[draft_width, width] += 1

    def as_dict(self) -> dict[str, dict[str, int]]:
        """For JSON: "reasons" and "draft_widths" count steps, "widths" counts requests of steps
        under "DRAFTxVERIFY" (anchors counted)."""
        return {
            "reasons": {reason: self._reasons[reason] for reason in sorted(self._reasons)},
            "draft_widths": {str(w): self._draft_widths[w] for w in sorted(self._draft_widths)},
            "widths": {f"{d}x{v}": self._pairs[d, v] for d, v in sorted(self._pairs)},
        }
