"""Find a checkpoint's folder: a path, or a hub id with an optional pinned revision.

It reads no file of the checkpoint; `store.py` does.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import (
    snapshot_download,  # pyright: ignore[reportUnknownVariableType]: it has bare generics
)
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    RevisionResolutionError,
)

from blockdraft.errors import CheckpointError, ConfigError

Download = Callable[[str, str | None], str]
"""Hub id and revision to the folder of a local copy."""

_HUB_ID = re.compile(r"(?P<name>[\w-][\w.-]*/[\w-][\w.-]*)(@(?P<revision>[\w./-]+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_PATTERNS = [
    "config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "mask_embedding.pt",
    "provenance.json",
    "README.md",
]


class Location(NamedTuple):
    """A checkpoint's folder and the name by which reports and errors call it."""

    folder: Path
    source: str


def download_from_hub(name: str, revision: str | None) -> str:
    """Fetch the files of a drafter (never code, never pickled weights) into the hub's cache."""
    return snapshot_download(name, revision=revision, allow_patterns=_PATTERNS)


def resolve(
    where: str | Path, revision: str | None = None, download: Download = download_from_hub
) -> Location:
    """The folder of `where`: an existing folder, or a hub id "owner/name" or "owner/name@revision".

    A hub source is reported with the commit that it resolved to. Raises CheckpointError when there
    is no such folder or the hub can't or won't give it, ConfigError for two different revisions.
    """
    path = Path(where)
    if path.is_dir():
        if revision is not None:
            raise ConfigError(f"revision {revision} was given for a local folder, {path}; drop it")
        return Location(path, str(where))
    if path.exists():
        raise CheckpointError(f"{path} is a file; pass the folder that holds config.json")
    match = _HUB_ID.fullmatch(str(where))
    if match is None:
        raise CheckpointError(
            f"{where}: there is no such folder, and it is not a hub id (owner/name or"
            " owner/name@revision); check the path"
        )
    name, pinned = match["name"], match["revision"]
    if pinned is not None and revision is not None and pinned != revision:
        raise ConfigError(f"two revisions were given for {name}: {pinned} and {revision}; keep one")
    pinned = revision if pinned is None else pinned
    folder = Path(_download(name, pinned, download))
    commit = folder.name if _COMMIT.fullmatch(folder.name) else pinned
    return Location(folder, name if commit is None else f"{name}@{commit}")


def _download(name: str, revision: str | None, download: Download) -> str:
    try:
        return download(name, revision)
    except GatedRepoError as error:
        raise CheckpointError(
            f"{name}: access is restricted (HTTP 401 or 403); ask for access on its hub page, then"
            " run `hf auth login`"
        ) from error
    except RepositoryNotFoundError as error:
        raise CheckpointError(
            f"{name}: no such folder, and the hub has no such repository or it is private (HTTP 401"
            " or 404); check the name, or run `hf auth login`"
        ) from error
    except RevisionNotFoundError as error:
        raise CheckpointError(
            f"{name}: the hub has no revision {revision} (HTTP 404); pass a branch, tag or commit"
            " that its hub page lists"
        ) from error
    except (LocalEntryNotFoundError, RevisionResolutionError) as error:
        raise CheckpointError(
            f"{name}: no such folder, not in the local hub cache, and the hub can't be reached;"
            " connect once to fetch it, or pass a local folder"
        ) from error
    except HFValidationError as error:
        raise CheckpointError(
            f"{name}: no such folder, and not a valid hub id; check the spelling"
        ) from error
    except (HfHubHTTPError, OSError) as error:
        raise CheckpointError(
            f"{name}: fetching from the hub failed ({type(error).__name__}); check the connection"
            " and the free disk space, or pass a local folder"
        ) from error
