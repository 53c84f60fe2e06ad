"""What is said and looked up of the drafter that a target has where none is given.

It chooses nothing for a target that is not named by its hub id, and downloads nothing.
"""

from pathlib import Path

from blockdraft.builtin.published import (
    DefaultDrafter,
    best_published,
    default_drafter,
    likely_targets,
    published_for,
)
from blockdraft.builtin.published_entry import PublishedDrafter
from blockdraft.checkpoint.hub_cache import cached_folder
from blockdraft.json_values import read_object

_THINKING = {
    "on": ", trained on answers with thinking",
    "off": ", trained on answers without thinking",
    None: ", its thinking mode is not known",
}


def known_default(target: str) -> DefaultDrafter | None:
    """The published drafter of the hub id `target`; None for paths and where none is published."""
    return None if Path(target).exists() else default_drafter(target)


def local_id(entry: PublishedDrafter, revision: str | None = None) -> str | None:
    """The id, its own or a mirror's, whose files are in the hub's cache; None when none is.

    Without a `revision` the cached commit is part of it ("owner/name@commit"): files are replaced
    in place on the hub, and loading by the bare name would download the new ones unasked.
    """
    for name in (entry.id, *entry.mirrors):
        folder = cached_folder(name, revision)
        if folder is not None:
            return name if revision is not None else f"{name}@{folder.name}"
    return None


def drafter_text(entry: PublishedDrafter) -> str:
    """Its id, target, size, block and thinking mode in one line."""
    block = "block size not known" if entry.block_size is None else f"blocks of {entry.block_size}"
    access = ", gated" if entry.gated else ""
    return (
        f"{entry.id}, published for {entry.target} ({entry.size_text}, {block}"
        f"{_THINKING[entry.thinking]}{access})"
    )


def without_default(target: str) -> str:
    """The one-line error where no drafter is taken: what may be meant, and what can be given."""
    give = "a folder or hub id (--drafter), prompt-lookup, or none for plain decoding"
    for name, by in _names(target):
        for likely in likely_targets([name]):
            best = best_published(likely)
            if best is not None:
                return (
                    f"no drafter is taken for {target} unasked: by its {by} it may be {likely}, for"
                    f" which {best.chosen.id} is published; if it is, give --drafter"
                    f" {best.chosen.id}, else {give}"
                )
    unread = [f"{one.id} ({one.format})" for one in published_for(target) if one.has_hub_id]
    if unread:
        return (
            f"no drafter that loads as it is is published for {target}, only {', '.join(unread)}: "
            f"`blockdraft models --published --target {target}` says more; give {give}"
        )
    return f"no drafter is known for {target}: give {give}"


def _names(target: str) -> list[tuple[str, str]]:
    """Names that say which model `target` is, and where each was found."""
    path = Path(target)
    names = [] if _recorded_name(path) is None else [(str(_recorded_name(path)), "config.json")]
    resolved = str(path.resolve()) if path.exists() else target
    return [*names, (target, "name"), (resolved, "folder")]


def _recorded_name(folder: Path) -> str | None:
    """`_name_or_path` of the folder's config.json."""
    try:
        name = read_object(folder / "config.json").get("_name_or_path")
    except (OSError, ValueError):
        return None
    return name if isinstance(name, str) and name else None
