"""What a hub id names, and the hub's refusals."""

from collections.abc import Callable
from pathlib import Path

import huggingface_hub
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

from blockdraft.check.locate import locate_drafter, locate_target
from blockdraft.checkpoint import load_checkpoint
from blockdraft.errors import CheckpointError, ConfigError, FetchError
from blockdraft.target import load_target
from blockdraft.target.hub import HubId, fetch_snapshot, parse_hub_id


def test_a_hub_id_and_its_revision() -> None:
    assert parse_hub_id("owner/name", None) == ("owner/name", None)
    assert parse_hub_id("owner/name@v1.0", None) == ("owner/name", "v1.0")
    assert parse_hub_id("owner/na.me", "refs/pr/2") == ("owner/na.me", "refs/pr/2")
    with pytest.raises(ConfigError, match="two revisions"):
        parse_hub_id("owner/name@a", "b")


@pytest.mark.parametrize("path", ["/a/b", "./a", "../a", "a/b/c", "name", "a/../b", "owner/name@"])
def test_paths_are_no_hub_ids(path: str) -> None:
    assert parse_hub_id(path, None) is None


def test_a_missing_path_of_a_target_is_not_looked_for_on_the_hub() -> None:
    with pytest.raises(CheckpointError, match=r"no target '\./no-such-model'"):
        load_target("./no-such-model")


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
def test_the_hubs_refusals_say_what_to_do_l25(
    error: Callable[[], Exception], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L25: gated, private, missing and offline repositories."""

    def refuse(repo: str, **options: object) -> str:
        raise error()

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(FetchError) as raised:
        fetch_snapshot(HubId("owner/name", "v9"), ["*.json"])
    message = str(raised.value)
    assert message.startswith("owner/name: ") and said in message and "\n" not in message


def test_offline_and_not_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L25, through the hub client itself: the tests run with the hub switched off.

    A command that could not fetch a model ends with 1; of `check`, 1 says that it found something.
    """
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    name = "blockdraft-tests/never-fetched"
    for load in (load_target, load_checkpoint):
        with pytest.raises(FetchError, match=f"^{name}: .*the hub can't be reached"):
            load(name)
    with pytest.raises(CheckpointError, match=f"^--target {name}: .*the hub can't be reached"):
        locate_target(name)
    with pytest.raises(CheckpointError, match=f"^--drafter {name}: .*the hub can't be reached"):
        locate_drafter(name)
