"""Where a checkpoint comes from: folders and hub ids."""

from pathlib import Path

import huggingface_hub
import pytest

from blockdraft.checkpoint.resolve import DRAFTER_FILES, resolve
from blockdraft.errors import CheckpointError, ConfigError

_COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str | None]]:
    """What the hub was asked for; it has everything, at one commit."""
    calls: list[tuple[str, str | None]] = []

    def fetch(name: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        assert allow_patterns == list(DRAFTER_FILES)
        calls.append((name, revision))
        return str(tmp_path / _COMMIT)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    return calls


def test_a_folder_is_itself(tmp_path: Path, asked: list[tuple[str, str | None]]) -> None:
    assert resolve(tmp_path) == (tmp_path, str(tmp_path)) and not asked


@pytest.mark.parametrize(
    ("where", "revision", "wanted"),
    [
        ("owner/name", None, ("owner/name", None)),
        ("owner/name@v1.0", None, ("owner/name", "v1.0")),
        ("owner/name", "refs/pr/2", ("owner/name", "refs/pr/2")),
        ("owner/name@main", "main", ("owner/name", "main")),
    ],
)
def test_hub_ids_are_fetched_and_reported_with_their_commit(
    tmp_path: Path,
    asked: list[tuple[str, str | None]],
    where: str,
    revision: str | None,
    wanted: tuple[str, str | None],
) -> None:
    """Checkpoints are replaced in place upstream, so the report names the commit."""
    assert resolve(where, revision) == (tmp_path / _COMMIT, f"owner/name@{_COMMIT}")
    assert asked == [wanted]


def test_two_revisions_are_refused() -> None:
    with pytest.raises(ConfigError, match="two revisions"):
        resolve("owner/name@a", "b")


def test_a_revision_of_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="local folder"):
        resolve(tmp_path, "main")


@pytest.mark.parametrize("where", ["/no/such/folder", "./a/b", "a/b/c", "name", "a/../b"])
def test_paths_that_do_not_exist_never_reach_the_hub(
    where: str, asked: list[tuple[str, str | None]]
) -> None:
    with pytest.raises(CheckpointError, match="no such folder"):
        resolve(where)
    assert not asked


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.touch()
    with pytest.raises(CheckpointError, match="is a file; pass the folder"):
        resolve(file)
