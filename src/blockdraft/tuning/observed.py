"""`Observed`: a workload that was run at one setting, and its form in a file.

Running is `observe.py`; keeping files is `store.py`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from blockdraft.decoding import AcceptanceStats
from blockdraft.errors import ConfigError
from blockdraft.tuning.replay import ReplayRequest
from blockdraft.tuning.samples import StepSample

FIELDS = (
    "seconds",
    "latency_seconds",
    "requests",
    "steps",
    "drafted",
    "accepted",
    "digests",
    "samples",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """`requests`, `steps` (verifications) and `digests` (of the token ids) are one an answer.

    `latency_seconds` are an answer's, from its slot to its last token, on average. `drafted[k]` and
    `accepted[k]` count as `AcceptanceStats` does. `samples` is empty where the widths of steps are
    not known (`auto`).
    """

    seconds: float
    latency_seconds: float
    requests: tuple[ReplayRequest, ...]
    steps: tuple[int, ...]
    drafted: tuple[int, ...]
    accepted: tuple[int, ...]
    digests: tuple[str, ...]
    samples: tuple[StepSample, ...] = ()

    @property
    def tokens(self) -> int:
        return sum(request.answer_len for request in self.requests)

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds

    @property
    def answers(self) -> list[AcceptanceStats]:
        """What a tau and its interval need."""
        return [
            AcceptanceStats(requests=1, steps=steps, tokens=request.answer_len)
            for request, steps in zip(self.requests, self.steps, strict=True)
        ]

    def as_json(self) -> dict[str, object]:
        return {
            "seconds": self.seconds,
            "latency_seconds": self.latency_seconds,
            "requests": [list(request) for request in self.requests],
            "steps": list(self.steps),
            "drafted": list(self.drafted),
            "accepted": list(self.accepted),
            "digests": list(self.digests),
            "samples": [list(sample) for sample in self.samples],
        }

    @classmethod
    def of_json(cls, fields: Mapping[str, object], where: str) -> "Observed":
        """What `as_json` wrote. Raises ConfigError that says `where`."""
        damaged = f"{where}: a measured run is damaged; measure into a new --out"
        if set(fields) != set(FIELDS):
            raise ConfigError(damaged)
        seconds = [fields["seconds"], fields["latency_seconds"]]
        known = [x for x in seconds if isinstance(x, float) and math.isfinite(x) and x > 0]
        requests = [_whole(row) for row in _list(fields["requests"], damaged)]
        digests = [x for x in _list(fields["digests"], damaged) if isinstance(x, str)]
        steps = _whole(fields["steps"])
        if len(known) != 2 or not requests or not len(requests) == len(digests) == len(steps or ()):
            raise ConfigError(damaged)
        drafted, accepted = _whole(fields["drafted"]), _whole(fields["accepted"])
        if steps is None or drafted is None or accepted is None:
            raise ConfigError(damaged)
        triples = [ReplayRequest(*r) for r in requests if r is not None and len(r) == 3]
        if len(triples) != len(requests):
            raise ConfigError(damaged)
        rows = [_list(row, damaged) for row in _list(fields["samples"], damaged)]
        return cls(
            seconds=known[0],
            latency_seconds=known[1],
            requests=tuple(triples),
            steps=steps,
            drafted=drafted,
            accepted=accepted,
            digests=tuple(digests),
            samples=tuple(StepSample.of_row(row, where) for row in rows),
        )


def _list(value: object, damaged: str) -> Sequence[object]:
    if not isinstance(value, list):
        raise ConfigError(damaged)
    return cast("list[object]", value)


def _whole(value: object) -> tuple[int, ...] | None:
    """A list of whole numbers of at least 0; None for anything else."""
    if not isinstance(value, list):
        return None
    items = cast("list[object]", value)
    found = [x for x in items if isinstance(x, int) and not isinstance(x, bool) and x >= 0]
    return tuple(found) if len(found) == len(items) else None
