"""A folder that appears whole: what is refused before any work, and whose leftovers are removed."""

import os
import re
from pathlib import Path

import pytest

from blockdraft.errors import ConfigError
from blockdraft.interop.new_folder import new_folder, refuse_existing


def test_links_are_refused_wherever_they_lead(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for name, what in (("empty", "a folder"), ("file", "a file"), ("nowhere", "nothing")):
        link = tmp_path / f"link-{name}"
        link.symlink_to(tmp_path / name)
        with pytest.raises(ConfigError, match=rf"symbolic link to .*{name} \({what} is there\)"):
            refuse_existing(link)


@pytest.mark.parametrize("name", ["", ".", "/", ".."])
def test_what_has_no_name_of_its_own_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="give the name of a new one"):
        refuse_existing(Path(name))


def test_a_place_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = re.escape(f"{tmp_path / 'file'} is no folder")
    for below in (tmp_path / "file" / "out", tmp_path / "file" / "deeper" / "out"):
        with pytest.raises(ConfigError, match=said):
            refuse_existing(below)
    refuse_existing(tmp_path / "new" / "deeper" / "out")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_place_without_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match="no permission"):
        refuse_existing(tmp_path / "out")
    tmp_path.chmod(0o700)


def test_leftovers_of_the_same_name_are_removed_and_nothing_else(tmp_path: Path) -> None:
    left = tmp_path / ".out.blockdraft-abc"
    others = [tmp_path / n for n in (".out.backup", ".other.blockdraft-abc", "out.blockdraft-abc")]
    for folder in (left, *others):
        folder.mkdir()
        (folder / "file").touch()
    (tmp_path / ".out.blockdraft-link").symlink_to(others[0])
    with new_folder(tmp_path / "out") as scratch:
        assert scratch.is_dir() and not left.exists()
    assert all((folder / "file").exists() for folder in others)
    assert (tmp_path / ".out.blockdraft-link").is_symlink() and (tmp_path / "out").is_dir()


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    with new_folder(tmp_path / "out") as first:
        (first / "of").write_text("the first")
        with new_folder(tmp_path / "out") as second:
            assert first.is_dir() and first != second
        assert (tmp_path / "out").is_dir()
    assert (tmp_path / "out" / "of").read_text() == "the first"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
