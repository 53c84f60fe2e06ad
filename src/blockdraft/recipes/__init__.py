"""Recipes: trainings that come with Blockdraft, as TOML files beside this one.

Finding and reading their text only; what the settings mean is `training/config.py`.
"""

from dataclasses import dataclass
from pathlib import Path

from blockdraft.errors import ConfigError

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A recipe's name, the first comment of its file, and its text."""

    name: str
    summary: str
    text: str


def list_builtin_recipes() -> list[Recipe]:
    """All that come with Blockdraft, by name."""
    paths = sorted(_FOLDER.glob("*.toml"), key=lambda path: path.stem)
    return [_read(path) for path in paths]


def find_recipe(source: str) -> Recipe:
    """The recipe of that name, or in that file. Raises ConfigError when there is neither."""
    path = Path(source)
    if path.suffix == ".toml":
        return _read(path)
    built_in = _FOLDER / f"{source}.toml"
    if path.name == source and built_in.exists():
        return _read(built_in)
    names = ", ".join(recipe.name for recipe in list_builtin_recipes())
    raise ConfigError(f"no recipe {source!r}: give a TOML file, or one of {names}")


def _read(path: Path) -> Recipe:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"can't read the recipe {path}: {error}") from error
    first = text.partition("\n")[0]
    return Recipe(name=path.stem, summary=first.removeprefix("#").strip(), text=text)
