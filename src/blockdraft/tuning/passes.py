"""Measures passes as an engine runs them: draft, then verify, every make-up in turn.

A machine's pace drifts within seconds, and a pass alone may find its weights in caches that the
other model's pass would have emptied. So all make-ups are measured in rounds, drafts between
verifications, and compared within a round. It decides nothing and keeps no file.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar, cast

import torch

from blockdraft.engine.costs import CostModel
from blockdraft.engine.sides import DraftRequest, DraftSide, Extension, Feed, TargetSide
from blockdraft.engine.width import candidate_widths
from blockdraft.errors import ConfigError
from blockdraft.tuning.replay import PairCosts
from blockdraft.tuning.row_costs import RowCosts

CONTEXT_LEN = 128
"""Tokens before each pass, where they fit."""

PROMPT_ROWS = (16, 32, 64)
"""Of one request, beside the blocks: what a prompt's rows cost."""

MOST_ROWS = 256
NUM_ROUNDS = 8
FEWEST_ROUNDS = 3
ENOUGH_SECONDS = 15.0
"""No more rounds are begun after that, beyond the fewest. The first one warms up."""

FORMAT = 1
Clock = Callable[[], float]
Shape = tuple[int, int]
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTable:
    """Seconds of verifications by (requests, rows in all), of drafts by (requests, width)."""

    verify: dict[Shape, float]
    draft: dict[Shape, float]

    def costs(self) -> PairCosts:
        """As a first belief: nothing besides the passes."""
        rows = RowCosts.of_shapes(self.verify)
        by_rows = rows.for_requests(max(number for number, _ in self.verify))
        passes = CostModel.fit(dict(by_rows.points), self.draft)
        return PairCosts(passes=passes, verify=rows)

    def to_json(self) -> str:
        tables = {"verify": self.verify, "draft": self.draft}
        rows = {
            name: [[*shape, seconds] for shape, seconds in sorted(table.items())]
            for name, table in tables.items()
        }
        return json.dumps({"format": FORMAT, **rows})

    @classmethod
    def of_json(cls, text: str) -> "PassTable":
        """What `to_json` wrote. Raises ConfigError for anything else."""
        try:
            fields = cast("dict[str, object]", json.loads(text))
            if set(fields) != {"format", "verify", "draft"} or fields["format"] != FORMAT:
                raise ValueError("other fields")
            verify, draft = (_read(fields[name]) for name in ("verify", "draft"))
        except (ValueError, TypeError) as error:
            raise ConfigError(
                f"the measured passes are damaged ({error}); measure into a new --out"
            ) from error
        return cls(verify=verify, draft=draft)


def _read(rows: object) -> dict[Shape, float]:
    read = cast("list[tuple[int, int, float]]", rows)
    return {(int(requests), int(size)): float(seconds) for requests, size, seconds in read}


@dataclass(frozen=True, slots=True, kw_only=True)
class PassLimits:
    """What an engine has room for. `pass_rows`: a batch-invariant target's rows a pass, else None.

    `features` is a row of the context features (taps * hidden), of their dtype.
    """

    num_slots: int
    num_rows: int
    max_context: int
    pass_rows: int | None
    features: torch.Tensor


def measure_passes(
    target: TargetSide, drafts: DraftSide, limits: PassLimits, clock: Clock
) -> PassTable:
    """Passes of plain steps, of blocks of every candidate width, and of longer prompts' rows.

    Uses the sides' rows from the first on, as requests 0, 1, ..; forgets them at the end.
    """
    rounds = _Rounds(target, drafts, limits, clock)
    rounds.fill()
    shapes = rounds.shapes()
    started = clock()
    seen: list[dict[tuple[str, Shape], float]] = []
    while len(seen) < NUM_ROUNDS:
        if len(seen) >= FEWEST_ROUNDS and clock() - started > ENOUGH_SECONDS:
            break
        ordered = shapes if len(seen) % 2 == 0 else shapes[::-1]
        seen.append({})
        for requests, rows in ordered:
            rounds.step(requests, rows, seen[-1])
    rounds.forget()
    found = at_one_pace(seen[1:])
    return PassTable(
        verify={shape: s for (kind, shape), s in found.items() if kind == "verify"},
        draft={shape: s for (kind, shape), s in found.items() if kind == "draft"},
    )


def at_one_pace(rounds: Sequence[dict[Key, float]]) -> dict[Key, float]:
    """The median over rounds of each one's seconds, rounds brought to the median round's length."""
    lengths = [sum(one.values()) for one in rounds]
    usual = median(lengths)
    return {
        key: median(one[key] * usual / length for one, length in zip(rounds, lengths, strict=True))
        for key in rounds[0]
    }


class _Rounds:
    def __init__(
        self, target: TargetSide, drafts: DraftSide, limits: PassLimits, clock: Clock
    ) -> None:
        self._target, self._drafts, self._limits, self._clock = target, drafts, limits, clock
        self._room = min(CONTEXT_LEN + PROMPT_ROWS[-1], limits.num_rows)
        self._context_len = min(
            max(self._room // 2, self._room - PROMPT_ROWS[-1]), limits.max_context // 2
        )
        self._slots = max(min(limits.num_slots, limits.num_rows // self._room), 1)

    def shapes(self) -> list[Shape]:
        """(requests, rows of each), for 1, 2, 4, .. and all slots."""
        numbers = [1 << k for k in range(self._slots.bit_length())]
        widths = [1, *candidate_widths(self._drafts.block_size)]
        most_each = min(self._room, self._limits.max_context) - self._context_len
        most = min(self._limits.pass_rows or MOST_ROWS, MOST_ROWS)
        blocks = [(n, width) for n in sorted({*numbers, self._slots}) for width in widths]
        prompts = [(1, rows) for rows in PROMPT_ROWS if rows > widths[-1]]
        return [(n, each) for n, each in blocks + prompts if each <= most_each and n * each <= most]

    def fill(self) -> None:
        ids = (1,) * self._context_len
        row = self._limits.features
        tapped = row.repeat(self._context_len, 1) if row.shape[-1] else None
        for key in range(self._slots):
            base = key * self._room
            self._target.run([Feed(key, base, 0, ids, is_prompt=True, wants_logits=False)])
            self._drafts.extend([Extension(key, base, 0, ids, tapped)])

    def step(self, requests: int, each: int, into: dict[tuple[str, Shape], float]) -> None:
        """Draft and verify once; a single row, or a prompt's rows, are not drafted."""
        context_len, room = self._context_len, self._room
        started = self._clock()
        if 1 < each <= self._drafts.block_size:
            self._drafts.draft(
                [DraftRequest(key, key * room, context_len, 1, each) for key in range(requests)]
            )
            drafted = self._clock()
            into["draft", (requests, each)] = drafted - started
            started = drafted
        feeds = [
            Feed(key, key * room, context_len, (1,) * each, is_prompt=False, wants_logits=True)
            for key in range(requests)
        ]
        self._target.run(feeds).logits.max(-1)
        for feed in feeds:
            self._target.commit(feed, ())
        into["verify", (requests, requests * each)] = self._clock() - started

    def forget(self) -> None:
        for key in range(self._slots):
            self._target.forget(key)
            self._drafts.forget(key)
