"""Settings of a run that can be continued: recorded once, and the same every time after.

It knows none of them.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from blockdraft.data.durable import read_json, write_json
from blockdraft.errors import ConfigError


def record_settings(
    path: Path, settings: Mapping[str, object], *, begun: bool, remedy: str
) -> None:
    """Write `settings`, or check that those of an earlier run in `path` are equal.

    `begun`: there are results already, so settings must be too; `remedy` is what can be done where
    they are not. Raises ConfigError naming the
    first that differs.
    """
    wanted = cast("dict[str, object]", json.loads(json.dumps(settings)))
    if not path.exists():
        if begun:
            raise ConfigError(
                f"{path.parent} holds results without {path.name}, so nobody knows how they were "
                f"made: {remedy}"
            )
        write_json(path, wanted)
        return
    difference = first_difference(read_json(path), wanted)
    if difference is not None:
        raise ConfigError(
            f"{path} was made with other settings: {difference}; give the same ones to continue, "
            "or another folder"
        )


def first_difference(recorded: object, wanted: object, name: str = "") -> str | None:
    """Where two JSON values part, in words; None when they are equal."""
    if isinstance(recorded, dict) and isinstance(wanted, dict):
        old, new = cast("dict[str, object]", recorded), cast("dict[str, object]", wanted)
        for key in dict.fromkeys([*new, *old]):
            path = f"{name}.{key}" if name else key
            if key not in old or key not in new:
                holder = "now" if key in new else "then"
                return f"{path} is set {holder} only"
            difference = first_difference(old[key], new[key], path)
            if difference is not None:
                return difference
        return None
    if recorded == wanted:
        return None
    return f"{name} was {_short(cast(object, recorded))}, is {_short(wanted)} now"


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
