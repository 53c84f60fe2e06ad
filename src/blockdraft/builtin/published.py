"""The registry of published drafters, and which of them is taken for a target by default.

It fetches nothing and looks at no cache; `published.toml` holds what is known.
"""

import re
import tomllib
import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from importlib.resources import files
from typing import Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from blockdraft.builtin.published_entry import PublishedDrafter
from blockdraft.errors import ConfigError

AUTHORS = "z-lab"
"""The organization of DFlash's authors, whose drafters go first."""

T = TypeVar("T")

_CACHE_FOLDER = re.compile(r"models--(?P<owner>[\w.-]+?)--(?P<name>[\w.-]+)")


@dataclass(frozen=True, slots=True)
class DefaultDrafter:
    """The drafter taken for a target where none is given, the other published ones, and why."""

    chosen: PublishedDrafter
    others: tuple[PublishedDrafter, ...]

    @property
    def reason(self) -> str:
        """Why it was chosen, and what else there is; empty when there is no choice."""
        if not self.others:
            return ""
        why = "loads as it is"
        if self.chosen.id.startswith(f"{AUTHORS}/"):
            why += " and is by the authors of DFlash"
        others = ", ".join(dict.fromkeys(f"{one.id} ({one.format})" for one in self.others))
        return f"chosen because it {why}; also published: {others}"


@cache
def published_drafters() -> tuple[PublishedDrafter, ...]:
    """All entries, in the order of the file."""
    text = (files(__package__ or "blockdraft.builtin") / "published.toml").read_text("utf-8")
    document = cast("Mapping[str, list[Mapping[str, object]]]", tomllib.loads(text))
    return tuple(read_entry(PublishedDrafter, table) for table in document["drafter"])


def published_for(target: str) -> list[PublishedDrafter]:
    """The entries of the target `owner/name[@revision]`, replaced ones too; best ones first."""
    name = target.partition("@")[0].lower()
    found = [one for one in published_drafters() if one.target.lower() == name and one.weights]
    return sorted(found, key=_rank)


def find_published(drafter: str) -> PublishedDrafter | None:
    """What is known of the drafter `owner/name[@revision]`: of that revision, else of today's."""
    name, _, revision = drafter.partition("@")
    found = [one for one in published_drafters() if name in (one.id, *one.mirrors) and one.weights]
    if revision:
        for one in found:
            if one.revision is not None and revision.startswith(one.revision[:7]):
                return one
    return next((one for one in found if not one.replaced), None)


def default_drafter(target: str) -> DefaultDrafter | None:
    """The drafter to take for the hub id `target`; None when none is published that loads.

    None also for the short name of a target whose hub id is not known: anything may be called so.
    """
    return best_published(target) if "/" in target else None


def best_published(target: str) -> DefaultDrafter | None:
    """The best drafter of a target by its hub id or its short name; None when none loads."""
    current = [one for one in published_for(target) if not one.replaced]
    if not current or not current[0].is_loadable:
        return None
    return DefaultDrafter(current[0], tuple(current[1:]))


def likely_targets(names: Iterable[str]) -> list[str]:
    """Targets with a drafter that loads, of which one of `names` may speak: ids, folders, paths.

    Owners are left out of the comparison, so the result is a suggestion and never a choice.
    """
    wanted = {part.lower() for name in names for part in _meant(name)}
    targets = dict.fromkeys(one.target for one in published_drafters() if one.is_loadable)
    return [target for target in targets if target.rpartition("/")[2].lower() in wanted]


def _meant(name: str) -> list[str]:
    """The model names that a path or hub id may stand for."""
    parts = [part for part in re.split(r"[/\\]", name.partition("@")[0]) if part]
    cached = [match["name"] for part in parts if (match := _CACHE_FOLDER.fullmatch(part))]
    return [*parts[-1:], *cached]


def _rank(one: PublishedDrafter) -> tuple[bool, bool, bool]:
    return (not one.is_loadable, one.gated is True, not one.id.startswith(f"{AUTHORS}/"))


def read_entry(kind: type[T], table: Mapping[str, object]) -> T:
    """An instance of the flat dataclass `kind`. Raises ConfigError for unknown or wrong values."""
    hints = get_type_hints(kind)
    name = table.get("id", "an entry without id")
    for key, value in table.items():
        if key not in hints:
            raise ConfigError(f"published.toml: {name} has an unknown key {key!r}; correct it")
        if not _fits(value, hints[key]):
            raise ConfigError(f"published.toml: {name}: {key} is {value!r}, another type")
    absent = [key for key in _required(kind) if key not in table]
    if absent:
        raise ConfigError(f"published.toml: {name} lacks {', '.join(absent)}; add it")
    given = {
        key: tuple(cast("list[object]", value)) if isinstance(value, list) else value
        for key, value in table.items()
    }
    return kind(**given)


def _required(kind: type) -> list[str]:
    assert is_dataclass(kind)
    return [field.name for field in fields(kind) if field.default is MISSING]


def _fits(value: object, kind: object) -> bool:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in arguments)
    if origin is Literal:
        return value in arguments
    if origin is tuple:
        items = cast("list[object]", value) if isinstance(value, list) else None
        return items is not None and all(_fits(item, arguments[0]) for item in items)
    if kind is type(None) or not isinstance(kind, type):
        return False
    return type(value) is kind
