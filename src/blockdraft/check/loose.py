"""Lenient reading of JSON objects: what has another type than expected is noted, not raised.

It knows no key of any format.
"""

import math
from collections.abc import Mapping
from typing import cast


class Loose:
    """Values of the first of several objects that has a key. Null means absent.

    `malformed` collects the keys whose value has another type than was asked for.
    """

    def __init__(self, *levels: Mapping[str, object]) -> None:
        self._levels = levels
        self.malformed: list[str] = []

    def raw(self, name: str) -> object:
        """The value as it stands, None when absent."""
        for level in self._levels:
            if level.get(name) is not None:
                return level[name]
        return None

    def integer(self, name: str) -> int | None:
        value = self.raw(name)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        return self._note(name)

    def number(self, name: str) -> float | None:
        value = self.raw(name)
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
        return self._note(name)

    def flag(self, name: str) -> bool | None:
        value = self.raw(name)
        return value if value is None or isinstance(value, bool) else self._note(name)

    def text(self, name: str) -> str | None:
        value = self.raw(name)
        return value if value is None or isinstance(value, str) else self._note(name)

    def integers(self, name: str) -> tuple[int, ...] | None:
        items = self._items(name)
        if items is None:
            return None
        whole = tuple(i for i in items if isinstance(i, int) and not isinstance(i, bool))
        return whole if len(whole) == len(items) else self._note(name)

    def texts(self, name: str) -> tuple[str, ...]:
        items = self._items(name) or ()
        return tuple(str(item) for item in items)

    def _items(self, name: str) -> tuple[object, ...] | None:
        value = self.raw(name)
        if value is None or isinstance(value, list):
            return None if value is None else tuple(cast("list[object]", value))
        return self._note(name)

    def _note(self, name: str) -> None:
        if name not in self.malformed:
            self.malformed.append(name)


def as_object(value: object) -> Mapping[str, object]:
    """`value` if it is a JSON object, else an empty one."""
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}
