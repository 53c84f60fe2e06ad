"""What was left out of prepared data, by reason, with the first places of each.

The reasons themselves belong to the parts that leave rows out.
"""

from collections import Counter
from typing import NamedTuple

FIRST_PLACES = 5


class Place(NamedTuple):
    """Where a row stands: the input's name, and the number of its line or row, from 1."""

    file: str
    line: int


class Example(NamedTuple):
    """One row that was left out, and why."""

    place: Place
    detail: str


class RowCounts:
    """Counts by reason, in the order in which the reasons first came up."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, list[Example]] = {}

    def add(self, reason: str, place: Place, detail: str = "") -> None:
        """Count one row; the first few of a reason are kept as examples."""
        self._counts[reason] += 1
        examples = self._examples.setdefault(reason, [])
        if len(examples) < FIRST_PLACES:
            examples.append(Example(place, detail))

    def to_json(self) -> dict[str, object]:
        """For each reason its count and first examples."""
        return {
            reason: {
                "rows": count,
                "first": [_example_to_json(example) for example in self._examples[reason]],
            }
            for reason, count in self._counts.items()
        }

    def to_text(self) -> str:
        """The counts in one line, each reason with its first place."""
        return ", ".join(map(self._in_words, self._counts)) or "none"

    def _in_words(self, reason: str) -> str:
        place, detail = self._examples[reason][0]
        text = f"{self._counts[reason]} {reason}, the first at {place.file}, line {place.line}"
        return f"{text}: {detail}" if detail else text


def _example_to_json(example: Example) -> dict[str, object]:
    record: dict[str, object] = {"file": example.place.file, "line": example.place.line}
    if example.detail:
        record["detail"] = example.detail
    return record
