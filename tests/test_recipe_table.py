"""The reference of recipe settings in docs/training.md agrees with the dataclasses."""

import tomllib
from dataclasses import MISSING, fields, is_dataclass
from typing import Literal, NamedTuple, cast, get_args, get_origin, get_type_hints

import recipe_table
from blockdraft.training.config import RunConfig


class Real(NamedTuple):
    """A setting as Python knows it; `default` is MISSING where there is none."""

    kind: object
    default: object


def real_settings(section: type, table: str = "") -> dict[str, Real]:
    """Dotted name to setting, from the dataclasses themselves."""
    assert is_dataclass(section)
    hints = get_type_hints(section)
    found: dict[str, Real] = {}
    for field in fields(section):
        kind: object = hints[field.name]
        if isinstance(kind, type) and is_dataclass(kind):
            found |= real_settings(kind, f"{table}{field.name}.")
        else:
            found[f"{table}{field.name}"] = Real(kind, field.default)
    return found


def plain(value: object) -> object:
    return list(cast("tuple[object, ...]", value)) if isinstance(value, tuple) else value


def test_the_page_is_up_to_date() -> None:
    text = recipe_table.PAGE.read_text()
    assert text == recipe_table.with_table(text), "run `make docs`"


def test_defaults_are_those_of_the_dataclasses() -> None:
    """T09: no setting is told of that is not read, and none is left out."""
    expected = {name: plain(real.default) for name, real in real_settings(RunConfig).items()}
    found: dict[str, object] = {}
    for one in recipe_table.settings():
        value: object = MISSING
        if one.default is not None:
            value = tomllib.loads(f"value = {one.default}")["value"] if one.default else None
        found[f"{one.table}.{one.key}"] = value
    assert found == expected


def test_choices_are_those_of_the_dataclasses() -> None:
    expected = {
        name: ", ".join(f'"{choice}"' for choice in get_args(real.kind))
        for name, real in real_settings(RunConfig).items()
        if get_origin(real.kind) is Literal
    }
    found = {f"{one.table}.{one.key}": one.kind for one in recipe_table.settings()}
    assert len(expected) >= 10
    assert {name: found[name] for name in expected} == expected
