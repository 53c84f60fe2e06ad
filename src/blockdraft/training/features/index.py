"""`index.json` of a feature cache: what it holds, and where each sample lies.

It is rewritten, in one piece, after every shard: what it lists is on disk. Shards are read and
written in `shards.py`.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from blockdraft.data.durable import sync
from blockdraft.errors import ConfigError
from blockdraft.training.features.format import FeatureKind, parse_feature_dtype

INDEX_FILE = "index.json"
FORMAT = "blockdraft-features-1"
AGAIN = "remove the folder and run `blockdraft data features` again"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardEntry:
    """One shard: sample `rows[i]` has its tokens in [offsets[i], offsets[i + 1])."""

    file: str
    num_bytes: int
    sha256: str
    rows: tuple[int, ...]
    offsets: tuple[int, ...]
    ids_hashes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureIndex:
    """The whole index. `digest` is that of all samples, also of those that are not written yet."""

    kind: FeatureKind
    num_samples: int
    num_tokens: int
    digest: str
    shards: tuple[ShardEntry, ...] = ()

    @property
    def num_written(self) -> int:
        """Samples on disk."""
        return sum(len(shard.rows) for shard in self.shards)

    @property
    def is_complete(self) -> bool:
        return self.num_written == self.num_samples


def write_index(folder: Path, index: FeatureIndex) -> None:
    """Replace the index, atomically."""
    value = {"format": FORMAT, **asdict(index)}
    text = json.dumps(value, separators=(",", ":")) + "\n"
    unfinished = folder / f".{INDEX_FILE}.tmp"
    with unfinished.open("w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(folder / INDEX_FILE)
    sync(folder)


def read_index(folder: Path) -> FeatureIndex | None:
    """The index in `folder`, None where there is none; ConfigError when it can't be understood."""
    path = folder / INDEX_FILE
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} can't be read ({error}): {AGAIN}") from error
    try:
        return _parse(cast(object, json.loads(text)))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"{path} is no index of this version ({type(error).__name__}: {error}): {AGAIN}"
        ) from error


def _parse(value: object) -> FeatureIndex:
    top = _fields(value, ("format", "kind", "num_samples", "num_tokens", "digest", "shards"))
    if top["format"] != FORMAT:
        raise ValueError(f"format {top['format']!r}, expected {FORMAT!r}")
    return FeatureIndex(
        kind=_parse_kind(top["kind"]),
        num_samples=_whole(top["num_samples"]),
        num_tokens=_whole(top["num_tokens"]),
        digest=_text(top["digest"]),
        shards=tuple(_parse_shard(shard) for shard in _list(top["shards"])),
    )


def _parse_kind(value: object) -> FeatureKind:
    names = ("target", "fingerprint", "hidden_size", "taps", "dtype", "final")
    kind = _fields(value, names)
    if not isinstance(kind["final"], bool):
        raise TypeError("final is not true or false")
    return FeatureKind(
        target=_text(kind["target"]),
        fingerprint=_text(kind["fingerprint"]),
        hidden_size=_whole(kind["hidden_size"]),
        taps=tuple(_whole(tap) for tap in _list(kind["taps"])),
        dtype=parse_feature_dtype(_text(kind["dtype"])),
        final=kind["final"],
    )


def _parse_shard(value: object) -> ShardEntry:
    shard = _fields(value, ("file", "num_bytes", "sha256", "rows", "offsets", "ids_hashes"))
    entry = ShardEntry(
        file=_text(shard["file"]),
        num_bytes=_whole(shard["num_bytes"]),
        sha256=_text(shard["sha256"]),
        rows=tuple(_whole(row) for row in _list(shard["rows"])),
        offsets=tuple(_whole(offset) for offset in _list(shard["offsets"])),
        ids_hashes=tuple(_text(ids_hash) for ids_hash in _list(shard["ids_hashes"])),
    )
    if not len(entry.rows) == len(entry.ids_hashes) == len(entry.offsets) - 1:
        raise ValueError(f"{entry.file} has another number of rows, hashes or offsets")
    if Path(entry.file).name != entry.file:
        raise ValueError(f"a shard {entry.file!r} outside the folder")
    return entry


def _fields(value: object, names: tuple[str, ...]) -> dict[str, object]:
    if not isinstance(value, dict):
        raise TypeError("an object is missing")
    found = cast(dict[str, object], value)
    if set(found) != set(names):
        raise ValueError(f"keys {sorted(found)}, expected {sorted(names)}")
    return found


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError("a list is missing")
    return cast(list[object], value)


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value
