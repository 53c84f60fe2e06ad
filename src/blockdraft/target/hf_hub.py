"""Fetches a model folder from the Hugging Face hub, or finds it in the hub's own cache.

Only configuration, tokenizer and safetensors files are fetched: no code and no pickle. `Any` is
tolerated in this file because the hub client is only partly typed.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from blockdraft.errors import FetchError
from blockdraft.target.quiet import quiet

HUB_ID = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?")
FILES = ("*.json", "*.safetensors", "*.jinja", "*.txt", "*.model")


def fetch_from_hub(hub_id: str, revision: str | None, report: Callable[[str], None]) -> Path:
    """The folder of `owner/name[@revision]`. Raises FetchError saying what can be done."""
    parts = HUB_ID.fullmatch(hub_id)
    assert parts is not None, f"{hub_id} is no hub id"
    repo, revision = parts["repo"], parts["revision"] or revision
    report(f"Looking up {repo} on the Hugging Face hub (downloads it the first time)")
    hub: Any = huggingface_hub
    try:
        with quiet():
            return Path(hub.snapshot_download(repo, revision=revision, allow_patterns=list(FILES)))
    except GatedRepoError as error:
        raise FetchError(
            f"{repo} is gated: accept its terms on its hub page, then log in with `hf auth login`"
        ) from error
    except RevisionNotFoundError as error:
        raise FetchError(f"{repo} has no revision {revision} on the hub") from error
    except RepositoryNotFoundError as error:
        raise FetchError(
            f"{repo} is neither a folder here nor a model on the hub (or it is private: "
            "`hf auth login`)"
        ) from error
    except (LocalEntryNotFoundError, HfHubHTTPError, HFValidationError, OSError) as error:
        raise FetchError(
            f"{repo} is no folder here, and the hub can't be reached to fetch it "
            f"({type(error).__name__}): go online, or give a folder"
        ) from error
