"""`Node`: one object of a JSON document that knows where it stands, and checks what is read of it.

It knows no field's meaning.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import cast

from blockdraft.bench.latency import Spread
from blockdraft.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Node:
    """An object at `path` of `source`. A field that is null counts as one that is not there.

    Every read raises ConfigError for a value of another kind.
    """

    source: str
    path: str
    fields: dict[str, object]

    def fail(self, name: str, wanted: str) -> ConfigError:
        where = f"{self.path}.{name}" if self.path else name
        return ConfigError(
            f"{self.source}: {where} is not {wanted}; the file is damaged or was edited, "
            "so measure again"
        )

    def unknown(self, name: str, known: Sequence[str]) -> ConfigError:
        """For a field that nobody writes here."""
        where = f"{self.path}.{name}" if self.path else name
        near = get_close_matches(name, known, 1)
        meant = f" (meant: {near[0]})" if near else ""
        return ConfigError(
            f"{self.source}: {where!r} is no field of a bench's results{meant}; read the file with "
            "the Blockdraft that wrote it, or measure again"
        )

    def text(self, name: str) -> str:
        value = self.fields.get(name)
        if not isinstance(value, str):
            raise self.fail(name, "a text")
        return value

    def maybe_text(self, name: str) -> str | None:
        return None if self.fields.get(name) is None else self.text(name)

    def number(self, name: str) -> float:
        return _number(self, name, self.fields.get(name))

    def maybe_number(self, name: str) -> float | None:
        return None if self.fields.get(name) is None else self.number(name)

    def count(self, name: str) -> int:
        value = self.number(name)
        if value < 0 or value != int(value):
            raise self.fail(name, "a whole number of at least 0")
        return int(value)

    def maybe_count(self, name: str) -> int | None:
        return None if self.fields.get(name) is None else self.count(name)

    def flag(self, name: str) -> bool:
        value = self.fields.get(name)
        if not isinstance(value, bool):
            raise self.fail(name, "true or false")
        return value

    def numbers(self, name: str) -> tuple[float, ...]:
        """Empty where it is null; it ends before a first null in it."""
        found: list[float] = []
        for value in self._items(name):
            if value is None:
                break
            found.append(_number(self, name, value))
        return tuple(found)

    def pair(self, name: str) -> tuple[float, float] | None:
        values = self.numbers(name)
        if not values:
            return None
        if len(values) != 2 or values[0] > values[1]:
            raise self.fail(name, "a lower and an upper end")
        return values[0], values[1]

    def texts(self, name: str) -> tuple[str, ...]:
        """Empty where it is null."""
        values = self._items(name)
        if not all(isinstance(value, str) for value in values):
            raise self.fail(name, "a list of texts")
        return tuple(cast(str, value) for value in values)

    def node(self, name: str) -> "Node":
        """An empty one where it is null."""
        return self._node(name, self.fields.get(name, {}) or {})

    def has(self, name: str) -> bool:
        return self.fields.get(name) is not None

    def nodes(self, name: str) -> list["Node"]:
        """Empty where it is null."""
        return [self._node(f"{name}[{idx}]", one) for idx, one in enumerate(self._items(name))]

    def spread(self, name: str) -> Spread | None:
        if not self.has(name):
            return None
        node = self.node(name)
        return Spread(node.count("num"), *(node.number(part) for part in Spread._fields[1:]))

    def _node(self, name: str, value: object) -> "Node":
        if not isinstance(value, dict):
            raise self.fail(name, "an object")
        path = f"{self.path}.{name}" if self.path else name
        return Node(self.source, path, cast("dict[str, object]", value))

    def _items(self, name: str) -> list[object]:
        value = self.fields.get(name)
        if value is None:
            return []
        if not isinstance(value, list | tuple):
            raise self.fail(name, "a list")
        return list(cast("list[object]", value))


def _number(node: Node, name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise node.fail(name, "a finite number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise node.fail(name, "a finite number")
    return number
