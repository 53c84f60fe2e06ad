"""Typed reading of a JSON object, where every key is either used or accounted for.

It knows no key of any format; `format.py` and `rope_dialects.py` do.
"""

from collections.abc import Mapping
from typing import TypeVar, cast

from blockdraft.errors import CheckpointError
from blockdraft.json_values import is_finite

_T = TypeVar("_T")


class Fields:
    """The keys of one JSON object. Null means absent.

    `fallback` is looked up when a key is absent here; reading marks the key as read in both.
    Every getter raises CheckpointError naming file, key, value and what was expected.
    """

    def __init__(
        self,
        values: Mapping[str, object],
        where: str,
        *,
        prefix: str = "",
        fallback: "Fields | None" = None,
    ) -> None:
        self.where = where
        self._values = values
        self.prefix = prefix
        self._fallback = fallback
        self._read: set[str] = set()

    def raw(self, name: str) -> object:
        """The value as it stands; None when absent."""
        self._read.add(name)
        below = None if self._fallback is None else self._fallback.raw(name)
        value = self._values.get(name)
        return below if value is None else value

    def optional_integer(self, name: str) -> int | None:
        value = self.raw(name)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        raise self.wrong(name, value, "an integer")

    def integer(self, name: str) -> int:
        return self._present(name, self.optional_integer(name))

    def optional_number(self, name: str) -> float | None:
        value = self.raw(name)
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool) and is_finite(value):
            return float(value)
        raise self.wrong(name, value, "a finite number")

    def number(self, name: str) -> float:
        return self._present(name, self.optional_number(name))

    def optional_flag(self, name: str) -> bool | None:
        value = self.raw(name)
        if value is None or isinstance(value, bool):
            return value
        raise self.wrong(name, value, "true or false")

    def optional_text(self, name: str) -> str | None:
        value = self.raw(name)
        if value is None or isinstance(value, str):
            return value
        raise self.wrong(name, value, "a string")

    def optional_integers(self, name: str) -> tuple[int, ...] | None:
        items = self._items(name)
        if items is None:
            return None
        if not all(isinstance(item, int) and not isinstance(item, bool) for item in items):
            raise self.wrong(name, items, "a list of integers")
        return cast("tuple[int, ...]", items)

    def optional_texts(self, name: str) -> tuple[str, ...] | None:
        items = self._items(name)
        if items is None:
            return None
        if not all(isinstance(item, str) for item in items):
            raise self.wrong(name, items, "a list of strings")
        return cast("tuple[str, ...]", items)

    def section(self, name: str, *, fallback: "Fields | None" = None) -> "Fields":
        """The object under `name`, empty when absent."""
        value = self.raw(name)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self.wrong(name, value, "an object")
        inner = cast("dict[str, object]", value)
        return Fields(inner, self.where, prefix=f"{self.prefix}{name}.", fallback=fallback)

    def refuse_unread(self, harmless: frozenset[str]) -> None:
        """Raise for the first key that nothing has read and that is not known to be harmless."""
        for name, value in self.items():
            if name not in self._read and name not in harmless:
                raise CheckpointError(
                    f"{self.where}: unknown key '{self.prefix}{name}' = {_short(value)}, which may"
                    " change what the drafter computes; remove it from the file if it does not"
                )

    def wrong(self, name: str, value: object, expected: str) -> CheckpointError:
        """The error for a value that can't be used."""
        return CheckpointError(
            f"{self.where}: key '{self.prefix}{name}' is {_short(value)}, expected {expected};"
            " correct the file or fetch the checkpoint again"
        )

    def items(self) -> list[tuple[str, object]]:
        """The keys that are present, with their values; reads none of them."""
        return [(name, value) for name, value in self._values.items() if value is not None]

    def is_empty(self) -> bool:
        return not self.items()

    def _present(self, name: str, value: _T | None) -> _T:
        if value is None:
            raise CheckpointError(
                f"{self.where}: key '{self.prefix}{name}' is missing; add it (the drafter's"
                " training configuration has it) or fetch the checkpoint again"
            )
        return value

    def _items(self, name: str) -> tuple[object, ...] | None:
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.wrong(name, value, "a list")
        return tuple(cast("list[object]", value))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
