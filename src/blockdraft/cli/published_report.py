"""The registry of published drafters as text and as JSON, grouped by target.

It knows nothing that the registry does not.
"""

from collections.abc import Sequence

from blockdraft.builtin.published import default_drafter, likely_targets, published_drafters
from blockdraft.builtin.published_entry import PublishedDrafter
from blockdraft.errors import ConfigError


def select(target: str | None) -> list[PublishedDrafter]:
    """The entries of a target, or all. Raises ConfigError for a target that has none."""
    entries = list(published_drafters())
    if target is None:
        return entries
    name = target.partition("@")[0].lower()
    found = [one for one in entries if one.target.lower() == name]
    if found:
        return found
    likely = likely_targets([target])
    hint = f"; there are some for {', '.join(likely)}" if likely else ""
    raise ConfigError(
        f"no published drafter is known for {target}{hint}: `blockdraft models --published` lists "
        "all targets"
    )


def published_json(entries: Sequence[PublishedDrafter]) -> dict[str, object]:
    """All fields of all entries, and the default of each target."""
    targets = by_target(entries)
    defaults = {target: default_drafter(target) for target in targets}
    return {
        "published": [one.as_json() for one in entries],
        "default": {
            target: None if default is None else default.chosen.id
            for target, default in defaults.items()
        },
    }


def published_text(entries: Sequence[PublishedDrafter], *, in_full: bool) -> str:
    """A paragraph a target, a few lines an entry."""
    lines: list[str] = []
    for target, group in by_target(entries).items():
        default = default_drafter(target)
        lines.append(target if "/" in target else f"{target} (hub id not known)")
        for one in group:
            is_default = default is not None and one is default.chosen
            lines += entry_lines(one, is_default=is_default, in_full=in_full)
        lines.append("")
    return "\n".join(lines).rstrip("\n")


def by_target(entries: Sequence[PublishedDrafter]) -> dict[str, list[PublishedDrafter]]:
    """The entries of each target, targets and entries in their order."""
    targets = dict.fromkeys(one.target for one in entries)
    return {target: [one for one in entries if one.target == target] for target in targets}


def entry_lines(one: PublishedDrafter, *, is_default: bool, in_full: bool) -> list[str]:
    """An entry, indented: name and state, then facts, then (in full) the rest."""
    lines = [f"  {one.id}{_state(one, is_default=is_default)}", f"    {facts(one)}"]
    if not in_full:
        return lines
    if one.mirrors:
        lines.append(f"    also as: {', '.join(one.mirrors)}")
    if one.unknown or one.missing_shape:
        lines.append(f"    not known: {', '.join((*one.missing_shape, *one.unknown))}")
    return [*lines, f"    {one.notes}", f"    source: {one.source}"]


def facts(one: PublishedDrafter) -> str:
    """Layout, block, layers, taps, size and mode, those that are known."""
    parts = [one.format]
    if one.block_size is not None:
        parts.append(f"blocks of {one.block_size}")
    if one.layers_text is not None:
        parts.append(f"layers {one.layers_text}")
    if one.taps is not None:
        parts.append(f"taps {','.join(map(str, one.taps))}")
    elif one.num_taps is not None:
        parts.append(f"{one.num_taps} taps")
    parts.append(one.size_text)
    if one.thinking is not None:
        parts.append(f"thinking {one.thinking}")
    return ", ".join(parts)


def _state(one: PublishedDrafter, *, is_default: bool) -> str:
    words = [
        (is_default, "default"),
        (one.replaced, "replaced on the hub"),
        (one.revision is not None, f"revision {(one.revision or '')[:7]}"),
        (one.gated is True, "gated"),
        (not one.weights, "no weights"),
        (one.weights and not one.has_hub_id, "hub id not known"),
    ]
    said = [word for holds, word in words if holds]
    return f" ({', '.join(said)})" if said else ""
