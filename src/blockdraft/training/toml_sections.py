"""Dataclasses from TOML tables, strictly: unknown keys, missing keys and wrong types are errors.

It knows no recipe; `config.py` names the sections.
"""

import json
import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Literal, NamedTuple, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from blockdraft.errors import ConfigError

T = TypeVar("T")


class _Word(NamedTuple):
    """A type for people: one value, several, and a list of two."""

    one: str
    many: str
    example: str


WORDS: Mapping[type, _Word] = {
    str: _Word("a text", "texts", '["a", "b"]'),
    int: _Word("an integer", "integers", "[1, 2]"),
    float: _Word("a number", "numbers", "[0.5, 1.0]"),
    bool: _Word("true or false", "true or false", "[true, false]"),
}


def read_section(section: type[T], table: object, where: str) -> T:
    """An instance of the dataclass `section` with the values of `table`.

    Sub-tables fill fields that are dataclasses. Raises ConfigError naming `where` and the key.
    """
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where} is {table!r}, expected a table")
    values = cast("Mapping[str, object]", table)
    assert is_dataclass(section)
    known = {field.name: field for field in fields(section)}
    for key in values:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}; known are {', '.join(known)}")
    hints = get_type_hints(section)
    given: dict[str, object] = {}
    for name, field in known.items():
        if name in values:
            given[name] = read_value(hints[name], values[name], f"{where}.{name}")
        elif _is_required(field):
            raise ConfigError(f"{where}: {name} is missing")
    return section(**given)


def read_value(kind: object, value: object, where: str) -> object:
    """`value` as a field of type `kind`; whole numbers are taken for floats, lists for tuples."""
    if isinstance(kind, type) and is_dataclass(kind):
        return read_section(kind, value, where)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        inner = [argument for argument in arguments if argument is not type(None)]
        return _first_that_fits(inner, value, where)
    if origin is Literal:
        if value in arguments:
            return value
        raise ConfigError(f"{where} is {value!r}; give one of {', '.join(map(str, arguments))}")
    if origin is tuple:
        inner = arguments[0]
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{where} is {value!r}, expected {_list_in_words(inner, value)}")
        items = cast("list[object] | tuple[object, ...]", value)
        return tuple(read_value(inner, item, f"{where}[{i}]") for i, item in enumerate(items))
    assert isinstance(kind, type)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool):
        return value
    raise ConfigError(f"{where} is {value!r}, expected {WORDS[kind].one}")


def _list_in_words(inner: object, value: object) -> str:
    """What would have been right; of a single text, that text as a list."""
    if get_origin(inner) is Literal:
        names = get_args(inner)
        return f"a list of {', '.join(map(str, names))}, like {json.dumps(names[:1])}"
    assert isinstance(inner, type)
    word = WORDS[inner]
    example = json.dumps([value]) if inner is str and isinstance(value, str) else word.example
    return f"a list of {word.many} like {example}"


def _first_that_fits(kinds: list[object], value: object, where: str) -> object:
    failures: list[ConfigError] = []
    for kind in kinds:
        try:
            return read_value(kind, value, where)
        except ConfigError as error:
            failures.append(error)
    if len(failures) == 1:
        raise failures[0]
    words = [WORDS[kind].one for kind in kinds if isinstance(kind, type)]
    raise ConfigError(f"{where} is {value!r}, expected {' or '.join(words)}")


def _is_required(field: "Field[object]") -> bool:
    return field.default is MISSING and field.default_factory is MISSING
