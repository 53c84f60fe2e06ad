"""What the user asks of the width: `auto`, `off` or `fixed:N`.

It decides nothing; `width.py` does.
"""

from dataclasses import dataclass
from typing import Literal

from blockdraft.errors import ConfigError


@dataclass(frozen=True, slots=True)
class WidthMode:
    """`width` is set for "fixed" only, and counts the anchor, as the published block size does."""

    kind: Literal["auto", "off", "fixed"] = "auto"
    width: int | None = None

    def __post_init__(self) -> None:
        if (self.width is not None) != (self.kind == "fixed"):
            raise ConfigError("width: a number goes with fixed:N, and only with it")
        if self.width is not None and self.width < 1:
            raise ConfigError(
                f"width: fixed:{self.width} is below 1; N counts the anchor, so fixed:1 (or off) "
                "never drafts"
            )

    def __str__(self) -> str:
        return self.kind if self.width is None else f"fixed:{self.width}"


def parse_width(text: str) -> WidthMode:
    """`auto`, `off`, `fixed:N` or plain `N`; anything else raises ConfigError."""
    word = text.strip().lower()
    if word == "auto":
        return WidthMode("auto")
    if word == "off":
        return WidthMode("off")
    number = word.removeprefix("fixed:")
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        raise ConfigError(
            f"width: {text!r} is not a width; use auto, off or fixed:N, where N counts the anchor"
        )
    return WidthMode("fixed", int(number))
