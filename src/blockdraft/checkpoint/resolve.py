"""Find a checkpoint's folder: a path, or a hub id with an optional pinned revision.

It reads no file of the checkpoint; `store.py` does.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from blockdraft.errors import CheckpointError, ConfigError
from blockdraft.target.hub import fetch_snapshot, parse_hub_id

DRAFTER_FILES = (
    "config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "mask_embedding.pt",
    "provenance.json",
    "README.md",
)
"""What is fetched of a drafter: never code, never pickled weights."""

_COMMIT = re.compile(r"[0-9a-f]{40}")


class Location(NamedTuple):
    """A checkpoint's folder and the name by which reports and errors call it."""

    folder: Path
    source: str


def resolve(
    where: str | Path, revision: str | None = None, files: Sequence[str] = DRAFTER_FILES
) -> Location:
    """The folder of `where`: an existing folder, or a hub id "owner/name" or "owner/name@revision".

    Of a hub source those files are fetched that match `files`, and it is reported with the commit
    that it resolved to. Raises CheckpointError when there is no such folder, FetchError when the
    hub can't or won't give it, ConfigError for two different revisions.
    """
    path = Path(where)
    if path.is_dir():
        if revision is not None:
            raise ConfigError(f"revision {revision} was given for a local folder, {path}; drop it")
        return Location(path, str(where))
    if path.exists():
        raise CheckpointError(f"{path} is a file; pass the folder that holds config.json")
    hub_id = parse_hub_id(str(where), revision)
    if hub_id is None:
        raise CheckpointError(
            f"{where}: there is no such folder, and it is not a hub id (owner/name or"
            " owner/name@revision); check the path"
        )
    folder = fetch_snapshot(hub_id, files)
    commit = folder.name if _COMMIT.fullmatch(folder.name) else hub_id.revision
    return Location(folder, hub_id.name if commit is None else f"{hub_id.name}@{commit}")
