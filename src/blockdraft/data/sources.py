"""`PromptSource`: one input of prompts as it is named on a command line.

It reads nothing; that is `reading.py`.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from blockdraft.errors import ConfigError

HUB_PREFIX = "hf:"
FIELDS = ("license", "category", "limit", "key")
SUFFIXES: dict[str, Literal["jsonl", "json", "parquet"]] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSource:
    """A file or data set, and what is said of its rows.

    `license` and `category` are those of rows that name none. `limit` counts usable rows. `key` is
    the one that holds the prompt in rows of no known shape. Raises ConfigError for values that
    make no sense and for a file of an unknown kind.
    """

    name: str
    license: str | None = None
    category: str | None = None
    limit: int | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise ConfigError(f"limit={self.limit} of {self.name}: take at least 1 row")
        if not self.name.removeprefix(HUB_PREFIX):
            raise ConfigError("an input needs a name: a file, or hf:owner/name")
        if self.kind != "hub" and not self.path.is_file():
            what = "is a folder; name its files" if self.path.is_dir() else "does not exist"
            raise ConfigError(f"the input {self.name} {what}")

    @property
    def kind(self) -> Literal["jsonl", "json", "parquet", "hub"]:
        """How the rows are stored."""
        if self.name.startswith(HUB_PREFIX):
            return "hub"
        kind = SUFFIXES.get(self.path.suffix.lower())
        if kind is None:
            raise ConfigError(
                f"{self.name} is of an unknown kind; its name must end in {', '.join(SUFFIXES)}, "
                "or it is a data set like hf:owner/name"
            )
        return kind

    @property
    def path(self) -> Path:
        """The file; without meaning for a data set of the hub."""
        return Path(self.name)

    @property
    def short_name(self) -> str:
        """What a conversation names as its source."""
        return self.name if self.kind == "hub" else self.path.name

    @property
    def stem(self) -> str:
        """What the ids of rows without an id begin with."""
        text = self.name.removeprefix(HUB_PREFIX) if self.kind == "hub" else self.path.stem
        return re.sub(r"[^\w.-]+", "-", text).strip("-")


def parse_source(text: str) -> PromptSource:
    """The source of "FILE[,license=L][,category=C][,limit=N][,key=K]".

    A name may hold commas, as long as no field follows them. Raises ConfigError.
    """
    parts = re.split(r",(?=\w+=)", text)
    fields: dict[str, str] = {}
    for part in parts[1:]:
        key, _, value = part.partition("=")
        if key not in FIELDS:
            raise ConfigError(f"unknown field {key!r} of input {text!r}: use {', '.join(FIELDS)}")
        if key in fields or not value:
            raise ConfigError(f"the field {key!r} of input {text!r} needs one value")
        fields[key] = value
    limit = fields.get("limit")
    if limit is not None and not limit.isdecimal():
        raise ConfigError(f"limit={limit} of input {text!r} is not a whole number")
    return PromptSource(
        name=parts[0],
        license=fields.get("license"),
        category=fields.get("category"),
        limit=None if limit is None else int(limit),
        key=fields.get("key"),
    )
