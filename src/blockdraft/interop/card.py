"""The README.md of an exported drafter: what it is, what it was measured at, how to serve it.

It renders facts that are handed in; commands with all settings come from `blockdraft launch`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from blockdraft.checkpoint.card import CARD_FILE, LENGTH, made_by_lines, measured_lines
from blockdraft.drafter.config import DrafterConfig
from blockdraft.interop.provenance import Conversion
from blockdraft.interop.serving_lines import serving_lines
from blockdraft.target.hub import parse_hub_id

_MOST_CARD_BYTES = 200_000
_BEFORE = "It was measured before this conversion."


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """What a card says. `original` is the source's own card, None where it had none."""

    config: DrafterConfig
    parameters: int
    conversion: Conversion
    provenance: Mapping[str, object]
    original: str | None
    notes: tuple[str, ...]


def read_card(folder: Path) -> str | None:
    """The text of a card, None where there is none or it is no text of a card's size."""
    path = folder / CARD_FILE  # `folder` may be a GGUF file, which has no card
    try:
        if not path.is_file() or path.stat().st_size > _MOST_CARD_BYTES:
            return None
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def render_card(facts: CardFacts) -> str:
    """The card as Markdown, with the metadata block that model hubs read."""
    conversion = facts.conversion
    lines = [
        *_front_matter(conversion.target),
        f"# DFlash drafter for {conversion.target} ({conversion.to_format}, {conversion.outtype})",
        "",
        _shape(facts),
        "",
        *_measured(facts),
        *_serving(facts),
        *_made_by(facts),
        *_converted(facts),
    ]
    return "\n".join(lines)


def is_hub_id(target: str) -> bool:
    """Whether a model is named by owner and repository, and is no folder here."""
    hub_id = parse_hub_id(target, None)
    return hub_id is not None and hub_id.revision is None and not Path(target).exists()


def section_of(card: str, title: str) -> list[str]:
    """The lines below a heading `title`, up to the next heading of its level or above."""
    kept: list[str] = []
    level = 0
    for line in card.splitlines():
        heading = re.match(r"(#+)\s+(.*?)\s*$", line)
        if heading is not None:
            if level and len(heading[1]) <= level:
                break
            if not level and heading[2] == title:
                level = len(heading[1])
                continue
        if level:
            kept.append(line)
    return _trimmed(kept)


def _front_matter(target: str) -> list[str]:
    lines = ["---", "tags:", "- speculative-decoding", "- dflash"]
    if is_hub_id(target):
        lines.append(f"base_model: {target}")
    return [*lines, "---", ""]


def _shape(facts: CardFacts) -> str:
    config = facts.config
    drafted = config.draft_vocab_size
    vocabulary = "the target's whole vocabulary" if drafted is None else f"{drafted:,} draft ids"
    kinds = {
        f"{'causal' if rule.causal else 'non-causal'}"
        + ("" if rule.window is None else f", window {rule.window}")
        for rule in (config.mask_rule(layer) for layer in range(config.num_layers))
    }
    return (
        f"{config.num_layers} layers ({'; '.join(sorted(kinds))}), {facts.parameters:,} parameters"
        f" of its own, blocks of {config.block_size} (the anchor and {config.block_size - 1}"
        f" drafts), output of target layers {', '.join(str(tap) for tap in config.taps)}"
        f" (zero-based), mask token {config.mask_token_id}, {vocabulary}."
    )


def _measured(facts: CardFacts) -> list[str]:
    lines = ["## Measured", ""]
    kept = section_of(facts.original or "", "Measured") or measured_lines(facts.provenance)
    if not kept:
        return [
            *lines,
            "Nothing is recorded. `blockdraft eval` measures the acceptance length of the",
            "original, and `blockdraft bench --endpoint` what an engine makes of this folder.",
            "",
        ]
    said = [line for line in (LENGTH, _BEFORE) if line not in kept]
    return [*lines, *kept, *(["", *said] if said else []), ""]


def _serving(facts: CardFacts) -> list[str]:
    conversion = facts.conversion
    lines = ["## Serve", ""]
    # A folder's path would be that of the machine it was exported on.
    target = conversion.target if is_hub_id(conversion.target) else "TARGET"
    lines += serving_lines(conversion.to_format, target, facts.config)
    return [*lines, ""]


def _made_by(facts: CardFacts) -> list[str]:
    kept = section_of(facts.original or "", "Made by") or made_by_lines(facts.provenance)
    return ["## Made by", "", *(kept or ["Not recorded."]), ""]


def _converted(facts: CardFacts) -> list[str]:
    conversion = facts.conversion
    changes: Sequence[str] = (*conversion.changes, *facts.notes)
    lines = [
        "## Converted",
        "",
        f"By `blockdraft export` from {conversion.from_format} ({conversion.source}). Everything"
        " recorded is in `provenance.json`.",
        "",
    ]
    return [*lines, *(f"- {change}" for change in changes), *([""] if changes else [])]


def _trimmed(lines: list[str]) -> list[str]:
    text = "\n".join(lines).strip("\n")
    return text.split("\n") if text else []
