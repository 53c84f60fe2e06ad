"""The recipes that come with Blockdraft can be found, read and understood."""

from pathlib import Path

import pytest

from blockdraft.errors import ConfigError
from blockdraft.recipes import find_recipe, list_builtin_recipes
from blockdraft.training.config import parse_recipe

NAMES = [recipe.name for recipe in list_builtin_recipes()]


def test_there_are_some() -> None:
    assert "smollm2-cpu" in NAMES and sorted(set(NAMES)) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_built_in_recipe_parses(name: str) -> None:
    recipe = find_recipe(name)
    config = parse_recipe(recipe.text, name)
    assert config.data.answers
    assert recipe.summary and not recipe.summary.startswith("#") and "=" not in recipe.summary
    # What a row holds has to hold the largest sample.
    assert config.data.samples.max_tokens <= config.packing.row_tokens
    assert config.anchors.per_sample <= config.packing.row_anchors


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('# my very own\n[data]\nanswers = ["x"]\n')
    recipe = find_recipe(str(path))
    assert (recipe.name, recipe.summary) == ("mine", "my very own")


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no recipe 'smollm3'.*smollm2-cpu"):
        find_recipe("smollm3")
    for name in ("", "../smollm2-cpu", "__init__"):
        with pytest.raises(ConfigError, match="no recipe"):
            find_recipe(name)
    with pytest.raises(ConfigError, match="can't read the recipe"):
        find_recipe(str(tmp_path / "none.toml"))
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="can't read the recipe"):
        find_recipe(str(tmp_path / "bad.toml"))
