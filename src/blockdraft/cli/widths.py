"""The widths that an engine chose and why, over a span of time, for people and as JSON.

It counts nothing itself; the engine's width control does.
"""

from collections.abc import Mapping

Widths = Mapping[str, Mapping[str, int]]
"""`EngineStats.widths`: counts of steps by reason and by draft width, among others."""


def widths_since(before: Widths, now: Widths) -> Widths:
    """What was counted after `before`."""
    return {
        name: {
            key: more
            for key, count in counts.items()
            if (more := count - before.get(name, {}).get(key, 0)) > 0
        }
        for name, counts in now.items()
    }


def widths_text(widths: Widths) -> str:
    """One line: how many steps drafted how wide, and why."""
    drafted, reasons = widths["draft_widths"], _by_count(widths["reasons"])
    steps = ", ".join(f"{_width_name(width)} {drafted[width]}x" for width in drafted) or "none"
    why = ", ".join(f"{reason} {count}" for reason, count in reasons.items())
    return f"widths drafted: {steps}" + (f"; steps by reason: {why}" if why else "")


def widths_json(widths: Widths) -> dict[str, object]:
    """Lists, since the keys that occur differ from run to run."""
    drafted, reasons = widths["draft_widths"], _by_count(widths["reasons"])
    return {
        "draft_widths": [{"width": int(w), "steps": count} for w, count in drafted.items()],
        "reasons": [{"reason": reason, "steps": count} for reason, count in reasons.items()],
    }


def _by_count(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def _width_name(width: str) -> str:
    return "plain" if width == "1" else width
