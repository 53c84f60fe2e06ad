"""Models of the Hugging Face hub: what a hub id names, and a local copy of its files.

Which files are fetched is the caller's business; it reads none of them.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import huggingface_hub
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    RevisionResolutionError,
)

from blockdraft.errors import ConfigError, FetchError

_HUB_ID = re.compile(r"(?P<name>[\w-][\w.-]*/[\w-][\w.-]*)(@(?P<revision>[\w./-]+))?")


class HubId(NamedTuple):
    """A repository, and the branch, tag or commit of it that was asked for."""

    name: str
    revision: str | None


def parse_hub_id(source: str, revision: str | None) -> HubId | None:
    """What "owner/name" or "owner/name@revision" names; None for what is written otherwise.

    Raises ConfigError when `revision` is another than the one in `source`. Whether there is a
    folder of that name is not looked at.
    """
    match = _HUB_ID.fullmatch(source)
    if match is None:
        return None
    name, pinned = match["name"], match["revision"]
    if pinned is not None and revision is not None and pinned != revision:
        raise ConfigError(f"two revisions were given for {name}: {pinned} and {revision}; keep one")
    return HubId(name, revision if pinned is None else pinned)


def fetch_snapshot(hub_id: HubId, patterns: Sequence[str]) -> Path:
    """The folder in the hub's cache with those files that match `patterns`, fetched if need be.

    Raises FetchError, in one line, that says what can be done.
    """
    name, revision = hub_id
    try:
        return Path(
            huggingface_hub.snapshot_download(
                name, revision=revision, allow_patterns=list(patterns)
            )
        )
    except GatedRepoError as error:
        raise FetchError(
            f"{name}: access is restricted (HTTP 401 or 403); ask for access on its hub page, then"
            " run `hf auth login`"
        ) from error
    except RepositoryNotFoundError as error:
        raise FetchError(
            f"{name}: no such folder, and the hub has no such repository or it is private (HTTP 401"
            " or 404); check the name, or run `hf auth login`"
        ) from error
    except RevisionNotFoundError as error:
        raise FetchError(
            f"{name}: the hub has no revision {revision} (HTTP 404); pass a branch, tag or commit"
            " that its hub page lists"
        ) from error
    except (LocalEntryNotFoundError, RevisionResolutionError) as error:
        raise FetchError(
            f"{name}: no such folder, not in the local hub cache, and the hub can't be reached;"
            " connect once to fetch it, or pass a local folder"
        ) from error
    except HFValidationError as error:
        raise FetchError(
            f"{name}: no such folder, and not a valid hub id; check the spelling"
        ) from error
    except (HfHubHTTPError, OSError) as error:
        raise FetchError(
            f"{name}: fetching from the hub failed ({type(error).__name__}); check the connection"
            " and the free disk space, or pass a local folder"
        ) from error
