"""Whether a drafter lies complete in the hub's cache on this machine; the hub is never asked."""

from pathlib import Path

from huggingface_hub import try_to_load_from_cache

from blockdraft.checkpoint.tensors import INDEX_FILE, WEIGHTS_FILE
from blockdraft.json_values import as_object, read_object

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
        shards = as_object(read_object(folder / INDEX_FILE).get("weight_map"))
    except (OSError, ValueError):
        return False
    names = {str(name) for name in shards.values()}
    return bool(names) and all((folder / name).exists() for name in names)
