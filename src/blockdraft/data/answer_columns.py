"""Answers as Arrow columns: a few thousand a chunk, from rows or from Parquet files.

The one module of answers that touches pyarrow, which comes without types: what is used of it is
written down here. Folders and what they mean are in `answer_files.py`.
"""

from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Literal, Protocol, cast

from blockdraft.data.answer_row import Answer
from blockdraft.errors import ConfigError

CHUNK_ROWS = 8192
"""Answers of a row group in a file, and of a chunk in memory."""

COMPRESSION_LEVEL = 19
NUM_SHORT_IDS = 1 << 16
ID_BYTES = {"H": 2, "i": 4}
"""Bytes of an id, by the format codes of `memoryview`: uint16 and int32."""


class _Scalar(Protocol):
    def as_py(self) -> object: ...


class _Array(Protocol):
    offset: int

    @property
    def values(self) -> "_Array": ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> _Scalar: ...
    def buffers(self) -> list[object]: ...


class _Batch(Protocol):
    num_rows: int

    def column(self, name: str) -> _Array: ...


class _ListType(Protocol):
    value_type: object


class _Schema(Protocol):
    names: list[str]

    def field(self, name: str) -> "_Field": ...


class _Field(Protocol):
    type: _ListType


class _Types(Protocol):
    def string(self) -> object: ...
    def int32(self) -> object: ...
    def uint16(self) -> object: ...
    def float64(self) -> object: ...
    def list_(self, value_type: object) -> object: ...
    def schema(self, fields: list[tuple[str, object]]) -> _Schema: ...
    def array(self, values: Sequence[object], type: object) -> _Array: ...


class _BatchMaker(Protocol):
    def from_arrays(self, arrays: list[_Array], *, schema: _Schema) -> _Batch: ...


class _Writer(Protocol):
    def write_batch(self, batch: _Batch, row_group_size: int) -> None: ...
    def close(self) -> None: ...


class _Reader(Protocol):
    schema_arrow: _Schema

    def iter_batches(self, batch_size: int) -> Iterator[_Batch]: ...
    def close(self) -> None: ...


class _Parquet(Protocol):
    def ParquetWriter(
        self, where: str, schema: _Schema, *, compression: str, compression_level: int
    ) -> _Writer: ...
    def ParquetFile(self, source: str) -> _Reader: ...


class TokenLists:
    """A column of id lists, read in place from Arrow's buffers."""

    def __init__(self, column: _Array, format: Literal["H", "i"]) -> None:
        offsets, values = column.buffers()[1], column.values.buffers()[1]
        self._offsets = _view(offsets, "i")[column.offset :]
        self._values = _view(values, format)[column.values.offset :]
        self.num_ids = self._offsets[len(column)] - self._offsets[0]

    @property
    def largest(self) -> int:
        return max(self._values, default=-1)

    def __getitem__(self, row: int) -> tuple[int, ...]:
        return tuple(self._values[self._offsets[row] : self._offsets[row + 1]])


def _view(buffer: object, format: Literal["H", "i"]) -> "memoryview[int]":
    """A buffer of Arrow as numbers; its padding, whatever its length, is not among them."""
    if buffer is None:  # a column of no ids at all has none
        return memoryview(b"").cast(format)
    raw = memoryview(cast(bytes, buffer)).cast("B")
    return raw[: len(raw) // ID_BYTES[format] * ID_BYTES[format]].cast(format)


class AnswerChunk:
    """Answers in memory as columns; row i becomes an `Answer` when asked for."""

    def __init__(self, batch: _Batch, format: Literal["H", "i"]) -> None:
        self._batch = batch
        self.prompts = TokenLists(batch.column("prompt_ids"), format)
        self.answers = TokenLists(batch.column("answer_ids"), format)

    def __len__(self) -> int:
        return self._batch.num_rows

    def __getitem__(self, row: int) -> Answer:
        category = self._value("category", row)
        return Answer(
            id=cast(str, self._value("id", row)),
            turn=cast(int, self._value("turn", row)),
            category=cast("str | None", category),
            prompt_ids=self.prompts[row],
            answer_ids=self.answers[row],
            finish_reason="stop" if self._value("finish_reason", row) == "stop" else "length",
            temperature=cast(float, self._value("temperature", row)),
        )

    @property
    def largest_id(self) -> int:
        return max(self.prompts.largest, self.answers.largest)

    def _value(self, name: str, row: int) -> object:
        return self._batch.column(name)[row].as_py()


def chunk_answers(answers: Iterable[Answer], *, short: bool) -> Iterator[AnswerChunk]:
    """The answers as chunks in their order; `short`: all ids are under 65536."""
    rows = iter(answers)
    while some := list(islice(rows, CHUNK_ROWS)):
        yield AnswerChunk(_batch(some, short=short), "H" if short else "i")


def write_parquet(path: Path, answers: Iterable[Answer], *, short: bool) -> None:
    """Write answers to `path`, a row group for each chunk; what is there before is replaced."""
    parquet = _parquet()
    writer = parquet.ParquetWriter(
        str(path), _schema(short=short), compression="zstd", compression_level=COMPRESSION_LEVEL
    )
    rows = iter(answers)
    try:
        while some := list(islice(rows, CHUNK_ROWS)):
            writer.write_batch(_batch(some, short=short), CHUNK_ROWS)
    finally:
        writer.close()


def read_parquet(path: Path) -> Iterator[AnswerChunk]:
    """The chunks of a file of answers. Raises ConfigError for another or a damaged file."""
    try:
        reader = _parquet().ParquetFile(str(path))
    except (OSError, ValueError) as error:  # pyarrow's own errors derive from these
        raise ConfigError(f"{path} is no complete Parquet file ({error}); make it again") from error
    try:
        schema = reader.schema_arrow
        if schema == _schema(short=True):
            format = "H"
        elif schema == _schema(short=False):
            format = "i"
        else:
            raise ConfigError(
                f"{path} has the columns {', '.join(schema.names)} and is no file of answers"
            )
        for batch in reader.iter_batches(CHUNK_ROWS):
            yield AnswerChunk(batch, format)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is damaged ({error}); make it again") from error
    finally:
        reader.close()


def _schema(*, short: bool) -> _Schema:
    arrow = _arrow()
    ids = arrow.list_(arrow.uint16() if short else arrow.int32())
    return arrow.schema(
        [
            ("id", arrow.string()),
            ("turn", arrow.int32()),
            ("category", arrow.string()),
            ("prompt_ids", ids),
            ("answer_ids", ids),
            ("finish_reason", arrow.string()),
            ("temperature", arrow.float64()),
        ]
    )


def _batch(answers: Sequence[Answer], *, short: bool) -> _Batch:
    arrow, schema = _arrow(), _schema(short=short)
    columns = [
        arrow.array([getattr(answer, name) for answer in answers], schema.field(name).type)
        for name in schema.names
    ]
    make = cast(_BatchMaker, vars(arrow)["RecordBatch"])
    return make.from_arrays(columns, schema=schema)


def _arrow() -> _Types:
    return cast(_Types, _imported("pyarrow"))


def _parquet() -> _Parquet:
    return cast(_Parquet, _imported("pyarrow.parquet"))


def _imported(name: str) -> object:
    """An optional package, imported when first needed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigError(
            "packed answers need pyarrow: install it with pip install 'blockdraft[train]'"
        ) from error
