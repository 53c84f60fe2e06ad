"""Lenient reading of JSON objects: what has another type than expected is noted, not raised.

It knows no key of any format.
"""

from collections.abc import Mapping
from typing import cast

from blockdraft.json_values import as_object, is_finite


class Loose:
    """Values of the first of several objects that has a key. Null means absent.

    `malformed` collects the keys whose value has another type than was asked for, `impossible` the
    keys and values of the right type that are out of range. Either is read as None.
    """

    def __init__(self, *levels: Mapping[str, object]) -> None:
        self._levels = levels
        self.malformed: list[str] = []
        self.impossible: list[str] = []

    def raw(self, name: str) -> object:
        """The value as it stands, None when absent."""
        for level in self._levels:
            if level.get(name) is not None:
                return level[name]
        return None

    def integer(
        self, name: str, *, least: int | None = None, most: int | None = None
    ) -> int | None:
        """A whole number of at least `least` and at most `most`."""
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            return self._note(name)
        if (least is not None and value < least) or (most is not None and value > most):
            return self._note_impossible(name, value)
        return value

    def number(self, name: str, *, above: float | None = None) -> float | None:
        """A finite number greater than `above`."""
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool) or not is_finite(value):
            return self._note(name)
        if above is not None and not value > above:
            return self._note_impossible(name, value)
        return float(value)

    def section(self, name: str) -> Mapping[str, object]:
        """The object under `name`, empty when it is absent or something else."""
        value = self.raw(name)
        found = as_object(value)
        if value is not None and found is not value:
            self._note(name)
        return found

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

    def _note_impossible(self, name: str, value: float) -> None:
        said = f"{name} {shortened(value)}"
        if said not in self.impossible:
            self.impossible.append(said)


def shortened(value: object) -> str:
    """`value` as errors show it."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
