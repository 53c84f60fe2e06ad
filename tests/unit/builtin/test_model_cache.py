"""Folders of the cache directory are complete or absent, whoever builds them."""

import threading
import time
from pathlib import Path

import pytest

from blockdraft.builtin.model_cache import cache_root, make_once
from blockdraft.errors import FetchError


def test_cache_root_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_root() == tmp_path / "blockdraft"
    for value in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert cache_root() == Path.home() / ".cache" / "blockdraft"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_root() == Path.home() / ".cache" / "blockdraft"


def test_builds_once_and_then_never_again(tmp_path: Path) -> None:
    calls: list[Path] = []

    def build(empty: Path) -> None:
        assert list(empty.iterdir()) == []
        calls.append(empty)
        (empty / "weights").write_text("w")

    folder = tmp_path / "deep" / "model"
    assert make_once(folder, build) == make_once(folder, build) == folder
    assert (folder / "weights").read_text() == "w"
    assert len(calls) == 1 and calls[0] != folder


def test_a_failed_build_leaves_nothing_and_can_be_tried_again(tmp_path: Path) -> None:
    folder = tmp_path / "model"

    def fail(empty: Path) -> None:
        (empty / "half").touch()
        raise FetchError("no network")

    with pytest.raises(FetchError):
        make_once(folder, fail)
    assert [path for path in tmp_path.iterdir() if path.suffix != ".lock"] == []
    make_once(folder, lambda empty: (empty / "whole").touch())
    assert (folder / "whole").exists()


def test_four_at_once_build_one(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    calls: list[int] = []

    def build(empty: Path) -> None:
        calls.append(1)
        time.sleep(0.1)
        (empty / "weights").touch()

    def want() -> None:
        make_once(folder, build)
        assert (folder / "weights").exists()

    threads = [threading.Thread(target=want) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == [1]


def test_a_cache_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    def deny(empty: Path) -> None:
        raise PermissionError(13, "denied")

    with pytest.raises(FetchError, match="XDG_CACHE_HOME"):
        make_once(tmp_path / "model", deny)
