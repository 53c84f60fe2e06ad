"""Dataclasses from TOML tables, strictly: unknown keys, missing keys and wrong types are errors.

It knows no recipe; `config.py` names the sections.
"""

import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from blockdraft.errors import ConfigError

T = TypeVar("T")


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
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{where} is {value!r}, expected a list")
        items = cast("list[object] | tuple[object, ...]", value)
        inner = arguments[0]
        return tuple(read_value(inner, item, f"{where}[{i}]") for i, item in enumerate(items))
    assert isinstance(kind, type)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool):
        return value
    raise ConfigError(f"{where} is {value!r}, expected {kind.__name__}")


def _first_that_fits(kinds: list[object], value: object, where: str) -> object:
    failure: ConfigError | None = None
    for kind in kinds:
        try:
            return read_value(kind, value, where)
        except ConfigError as error:
            failure = failure or error
    assert failure is not None
    raise failure


def _is_required(field: "Field[object]") -> bool:
    return field.default is MISSING and field.default_factory is MISSING
