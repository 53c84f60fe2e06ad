"""`manifest.json`: what a folder of training data holds and how it was made.

It is shared by all stages that make data and knows the keys of none of them.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from blockdraft.errors import ConfigError
from blockdraft.json_values import read_object

MANIFEST_FILE = "manifest.json"
SCHEMA = 1


def write_manifest(folder: Path, document: Mapping[str, object]) -> None:
    """Write `document` beside the data in `folder`, whole or not at all.

    The schema version is put in front. The same document gives the same bytes.
    """
    text = json.dumps({"schema": SCHEMA, **document}, indent=2, allow_nan=False)
    unfinished = folder / f".{MANIFEST_FILE}.{os.getpid()}"
    try:
        with unfinished.open("w", encoding="utf-8", newline="\n") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(folder / MANIFEST_FILE)
    finally:
        unfinished.unlink(missing_ok=True)


def read_manifest(folder: Path) -> dict[str, object]:
    """The document that `write_manifest` wrote, its schema version included.

    Raises ConfigError for a manifest that is missing, damaged or of another schema version.
    """
    path = folder / MANIFEST_FILE
    try:
        document = read_object(path)
    except OSError as error:
        raise ConfigError(
            f"can't read {path} ({error.strerror}): name a folder that `blockdraft data` made"
        ) from error
    except ValueError as error:  # of UTF-8 and of JSON
        raise ConfigError(f"{path} is damaged ({error}): make the data again") from error
    if document.get("schema") != SCHEMA:
        raise ConfigError(
            f"{path} has schema {document.get('schema')!r}, this version reads {SCHEMA}: make the "
            "data again, or use the version of Blockdraft that made it"
        )
    return document


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
