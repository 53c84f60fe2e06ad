"""Whether a drafter lies complete in the hub's cache on this machine; the hub is never asked."""

import json
from pathlib import Path
from typing import cast

from huggingface_hub import try_to_load_from_cache

from blockdraft.checkpoint.tensors import INDEX_FILE, WEIGHTS_FILE

CONFIG_FILE = "config.json"


def cached_folder(hub_id: str, revision: str | None = None) -> Path | None:
    """The local copy of `owner/name[@revision]`, None when any of its files is not there."""
    name, _, pinned = hub_id.partition("@")
    found = try_to_load_from_cache(name, CONFIG_FILE, revision=revision or pinned or None)
    if not isinstance(found, str):
        return None
    folder = Path(found).parent
    return folder if _has_weights(folder) else None


def _has_weights(folder: Path) -> bool:
    if (folder / WEIGHTS_FILE).exists():
        return True
    try:
        index = cast("object", json.loads((folder / INDEX_FILE).read_text("utf-8")))
    except (OSError, ValueError):
        return False
    if not isinstance(index, dict):
        return False
    shards = cast("dict[str, object]", index).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        return False
    names = set(cast("dict[str, str]", shards).values())
    return all((folder / name).exists() for name in names)
