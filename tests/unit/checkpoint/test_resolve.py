"""Where a checkpoint comes from: folders, hub ids, and the hub's refusals."""

from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    RevisionResolutionError,
)

from blockdraft.checkpoint.resolve import resolve
from blockdraft.errors import CheckpointError, ConfigError

_COMMIT = "0123456789abcdef0123456789abcdef01234567"


def _refuses(name: str, revision: str | None) -> str:
    raise AssertionError(f"the hub was asked for {name} {revision}")


def test_a_folder_is_itself(tmp_path: Path) -> None:
    assert resolve(tmp_path, download=_refuses) == (tmp_path, str(tmp_path))


@pytest.mark.parametrize(
    ("where", "revision", "asked"),
    [
        ("owner/name", None, ("owner/name", None)),
        ("owner/name@v1.0", None, ("owner/name", "v1.0")),
        ("owner/name", "refs/pr/2", ("owner/name", "refs/pr/2")),
        ("owner/name@main", "main", ("owner/name", "main")),
    ],
)
def test_hub_ids_are_fetched_and_reported_with_their_commit(
    tmp_path: Path, where: str, revision: str | None, asked: tuple[str, str | None]
) -> None:
    """Checkpoints are replaced in place upstream, so the report names the commit."""
    folder = tmp_path / _COMMIT
    calls: list[tuple[str, str | None]] = []

    def download(name: str, revision: str | None) -> str:
        calls.append((name, revision))
        return str(folder)

    location = resolve(where, revision, download)
    assert location == (folder, f"owner/name@{_COMMIT}")
    assert calls == [asked]


def test_two_revisions_are_refused() -> None:
    with pytest.raises(ConfigError, match="two revisions"):
        resolve("owner/name@a", "b", _refuses)


def test_a_revision_of_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="local folder"):
        resolve(tmp_path, "main", _refuses)


@pytest.mark.parametrize("where", ["/no/such/folder", "./a/b", "a/b/c", "name", "a/../b"])
def test_paths_that_do_not_exist_never_reach_the_hub(where: str) -> None:
    with pytest.raises(CheckpointError, match="no such folder"):
        resolve(where, download=_refuses)


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.touch()
    with pytest.raises(CheckpointError, match="is a file; pass the folder"):
        resolve(file, download=_refuses)


def _refused(kind: type[HfHubHTTPError]) -> HfHubHTTPError:
    """An error of the hub client without the HTTP response that its constructor wants."""
    error = kind.__new__(kind)
    error.args = ("several\nlines",)
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (lambda: _refused(GatedRepoError), "access is restricted"),
        (lambda: _refused(RepositoryNotFoundError), "no such repository or it is private"),
        (lambda: _refused(RevisionNotFoundError), "no revision v9"),
        (lambda: LocalEntryNotFoundError("x"), "the hub can't be reached"),
        (lambda: RevisionResolutionError("x"), "the hub can't be reached"),
        (lambda: HFValidationError("x"), "not a valid hub id"),
        (lambda: _refused(HfHubHTTPError), "failed (HfHubHTTPError)"),
        (lambda: OSError("disk\nfull"), "failed (OSError)"),
    ],
)
def test_the_hubs_refusals_say_what_to_do(error: Callable[[], Exception], said: str) -> None:
    """L25: gated, private, missing and offline repositories."""

    def download(name: str, revision: str | None) -> str:
        raise error()

    with pytest.raises(CheckpointError) as raised:
        resolve("owner/name", "v9", download)
    message = str(raised.value)
    assert message.startswith("owner/name: ") and said in message and "\n" not in message


def test_offline_and_not_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L25, through the hub client itself: the tests run with the hub switched off."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(CheckpointError, match="the hub can't be reached"):
        resolve("blockdraft-tests/never-fetched")
