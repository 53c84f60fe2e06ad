"""Folders that appear whole or not at all."""

import resource
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from blockdraft.data.folders import new_folder, writing
from blockdraft.data.manifest import MANIFEST_FILE
from blockdraft.errors import ConfigError


def make(folder: Path, *names: str) -> None:
    folder.mkdir()
    for name in names:
        (folder / name).write_text("old")


@contextmanager
def small_disk() -> Generator[None]:
    """No file of this process may grow beyond 4 KB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_the_disk_refuses_is_said_in_one_line(tmp_path: Path) -> None:
    words = f"can't write to {tmp_path}: File too large; nothing was written; make room"
    with (
        pytest.raises(ConfigError, match=words),
        new_folder(tmp_path / "out") as unfinished,
        small_disk(),
    ):
        (unfinished / "a").write_bytes(bytes(9000))
    assert list(tmp_path.iterdir()) == [], "nothing half-written"
    (tmp_path / "file").touch()
    within = tmp_path / "file" / "x"
    with (
        pytest.raises(ConfigError, match=r"x: Not a directory; go away$"),
        writing(within, "go away"),
    ):
        within.mkdir()
    with pytest.raises(ConnectionError), writing(tmp_path, "that is no disk"):
        raise ConnectionRefusedError


@pytest.mark.parametrize("exists", [False, True])
def test_a_folder_appears_when_it_is_complete(exists: bool, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "out"
    if exists:
        folder.mkdir(parents=True)
    with new_folder(folder) as unfinished:
        (unfinished / "a").write_text("new")
        assert not (folder / "a").exists()
    assert (folder / "a").read_text() == "new"
    assert [path.name for path in folder.parent.iterdir()] == ["out"]


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "out") as unfinished:
        (unfinished / "a").write_text("new")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_full_folder_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "out", MANIFEST_FILE)
    with pytest.raises(ConfigError, match="--overwrite"), new_folder(tmp_path / "out"):
        pass


def test_a_folder_of_ours_is_replaced(tmp_path: Path) -> None:
    make(tmp_path / "out", MANIFEST_FILE, "old")
    with new_folder(tmp_path / "out", overwrite=True) as unfinished:
        (unfinished / "a").write_text("new")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_error_keeps_what_was_to_be_replaced(tmp_path: Path) -> None:
    make(tmp_path / "out", MANIFEST_FILE, "old")
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "out", overwrite=True):
        raise ZeroDivisionError
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [MANIFEST_FILE, "old"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_of_others_is_never_replaced(tmp_path: Path) -> None:
    make(tmp_path / "out", "thesis.txt")
    folder = tmp_path / "out"
    with pytest.raises(ConfigError, match="other things"), new_folder(folder, overwrite=True):
        pass
    assert (tmp_path / "out" / "thesis.txt").exists()


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(ConfigError, match="is a file"), new_folder(tmp_path / "out"):
        pass
    with pytest.raises(ConfigError, match="can't write"), new_folder(tmp_path / "out" / "below"):
        pass
