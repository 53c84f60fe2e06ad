"""Costs and acceptance from the results.json of a bench.

It predicts nothing; the document is checked by the package `bench`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from blockdraft.bench.report.document import BenchDocument
from blockdraft.bench.report.reading import FILE_NAME, parse_document, read_value
from blockdraft.engine.costs import CostModel
from blockdraft.errors import ConfigError
from blockdraft.tuning.survival import Survival

BLOCK = "block"


class BenchFigures:
    """What a bench in process found, for the what-if model."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError for a file that can't be read, or of another kind or version."""
        path = path / FILE_NAME if path.is_dir() else path
        self._path = path
        value = read_value(path)
        self._document: BenchDocument = parse_document(value, str(path))
        self._fields = cast("Mapping[str, object]", value)

    def costs(self) -> CostModel:
        """Of target passes, and of the first block drafter. Raises ConfigError where it has none.

        Drafts for several requests are taken as they were measured where they were, else by rows.
        """
        costs = self._document.costs
        if costs is None or not costs.verify:
            raise ConfigError(
                f"{self._path} has no costs of passes; run blockdraft bench in process, without "
                "--endpoint"
            )
        drafts = [one for one in costs.draft if one.kind == BLOCK]
        if not drafts:
            raise ConfigError(
                f"{self._path} has no costs of a block drafter; run bench with a DFlash drafter"
            )
        name = drafts[0].name
        draft = self._by_requests(name) or {
            (one.tokens + 1, 1): one.seconds for one in drafts if one.name == name
        }
        verify = {one.rows: one.seconds for one in costs.verify}
        return CostModel.fit(verify, draft, max(costs.step_overhead or 0.0, 0.0))

    def survival(self) -> Survival | None:
        """Of its fixed widths, each at the fewest requests at a time; None without such a lane."""
        rows: dict[int, tuple[float, ...]] = {}
        for load in self._document.loads:
            for lane in self._document.lanes:
                width = lane.fixed_width if lane.kind == BLOCK else None
                figures = self._document.find(lane.name, load)
                if width is None or width < 2 or width in rows or figures is None:
                    continue
                rates = tuple(min(rate, 1.0) for rate in figures.conditional[: width - 1])
                if rates:
                    rows[width] = rates + rates[-1:] * (width - 1 - len(rates))
        return Survival(tuple(sorted(rows.items()))) if rows else None

    def _by_requests(self, name: str) -> dict[tuple[int, int], float]:
        """Seconds by requests and width, empty where the document does not tell."""
        costs = cast("Mapping[str, object]", self._fields["costs"])
        rows = costs.get("draft_by_requests")
        found: dict[tuple[int, int], float] = {}
        for row in cast("Sequence[object]", rows) if isinstance(rows, list) else ():
            if not isinstance(row, dict):
                continue
            fields = cast("Mapping[str, object]", row)
            requests, tokens, seconds = (fields.get(k) for k in ("requests", "tokens", "seconds"))
            if fields.get("name") != name:
                continue
            if not (type(requests) is int and type(tokens) is int and isinstance(seconds, float)):
                raise ConfigError(
                    f"{self._path}: costs.draft_by_requests is damaged; run bench again"
                )
            found[requests, tokens + 1] = seconds
        return found
