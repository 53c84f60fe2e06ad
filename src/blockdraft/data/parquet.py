"""Rows of a Parquet file, a batch at a time; the one place that knows pyarrow.

It is imported when the first file is opened, since it is an optional dependency.
"""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, cast

from blockdraft.errors import ConfigError

ROWS_AT_ONCE = 1024


class _Batch(Protocol):
    def to_pylist(self) -> list[object]: ...


class _File(Protocol):
    def iter_batches(self, batch_size: int) -> Iterator[_Batch]: ...

    def close(self) -> None: ...


class _Parquet(Protocol):
    """The part of the untyped `pyarrow.parquet` that is used here."""

    def ParquetFile(self, source: str) -> _File: ...


def read_parquet(path: Path) -> Iterator[object]:
    """The rows as dicts of plain Python values, nested ones included.

    Raises ConfigError without pyarrow, and for a file that is damaged.
    """
    try:
        parquet = cast(_Parquet, importlib.import_module("pyarrow.parquet"))
    except ImportError as error:
        raise ConfigError(
            f"reading {path} needs pyarrow: pip install 'blockdraft[train]', or give the rows as "
            "JSON lines"
        ) from error
    try:
        file = parquet.ParquetFile(str(path))
        try:
            for batch in file.iter_batches(batch_size=ROWS_AT_ONCE):
                yield from batch.to_pylist()
        finally:
            file.close()
    except (OSError, ValueError, NotImplementedError) as error:  # pyarrow's own derive from these
        first_line = str(error).partition("\n")[0]
        raise ConfigError(f"can't read {path} as Parquet ({first_line}): fetch it again") from error
