"""Inputs as they are named on a command line."""

from pathlib import Path

import pytest

from blockdraft.data.sources import PromptSource, parse_source
from blockdraft.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my prompts, v=2.jsonl"
    path.touch()
    return path


def test_fields(file: Path) -> None:
    source = parse_source(f"{file},license=MIT,limit=10,key=text,category=math")
    assert source == PromptSource(
        name=str(file), license="MIT", limit=10, key="text", category="math"
    )
    assert (source.kind, source.short_name, source.stem) == ("jsonl", file.name, "my-prompts-v-2")


def test_a_bare_name(file: Path) -> None:
    assert parse_source(str(file)) == PromptSource(name=str(file))


def test_a_data_set() -> None:
    source = parse_source("hf:owner/name:main:test,license=MIT")
    assert (source.kind, source.short_name) == ("hub", "hf:owner/name:main:test")
    assert source.stem == "owner-name-main-test"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (",limit=0", "at least 1 row"),
        (",limit=many", "not a whole number"),
        (",color=red", "unknown field 'color'"),
        (",license=", "needs one value"),
        (",license=MIT,license=MIT", "needs one value"),
    ],
)
def test_wrong_fields(fields: str, message: str, file: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_source(f"{file}{fields}")


def test_wrong_names(tmp_path: Path) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "notes.txt").touch()
    for name, message in [
        ("nowhere.jsonl", "does not exist"),
        ("folder.jsonl", "is a folder"),
        ("notes.txt", "unknown kind"),
    ]:
        with pytest.raises(ConfigError, match=message):
            parse_source(str(tmp_path / name))
    with pytest.raises(ConfigError, match="needs a name"):
        parse_source("hf:")
