"""Rows of every kind of file, with the numbers that people find them by."""

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest

from blockdraft.data.hub import parse_hub_name
from blockdraft.data.reading import BrokenRow, RawRow, read_rows
from blockdraft.data.sources import PromptSource
from blockdraft.errors import ConfigError

ROWS: list[dict[str, object]] = [{"prompt": "One"}, {"prompt": "Two\u2028lines\x85"}]


def read(name: Path | str) -> list[RawRow | BrokenRow]:
    return list(read_rows(PromptSource(name=str(name))))


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, bytes], Path]:
    def write_file(name: str, content: bytes) -> Path:
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return write_file


Write = Callable[[str, bytes], Path]


def test_lines_end_at_line_feeds_only(write: Write) -> None:
    lines = "\r\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS)
    path = write("a.jsonl", b"\xef\xbb\xbf" + lines.encode())
    assert read(path) == [RawRow(1, ROWS[0]), RawRow(2, ROWS[1])]


def test_broken_lines_have_a_number_and_blank_ones_none(write: Write) -> None:
    content = b'{"prompt": "One"}\n\n{"prompt": \n"\xff"\n' + b"[" * 100_000 + b"\n3\n"
    rows = read(write("a.jsonl", content))
    assert [row.number for row in rows] == [1, 3, 4, 5, 6]
    broken = [row for row in rows if isinstance(row, BrokenRow)]
    assert [row.detail[:8] for row in broken] == ["not JSON", "not UTF-", "nested t"]
    assert rows[-1] == RawRow(6, 3)


def test_a_list(write: Write) -> None:
    path = write("a.json", json.dumps(ROWS, indent=1).encode())
    assert read(path) == [RawRow(1, ROWS[0]), RawRow(2, ROWS[1])]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"prompt": "One"}\n{"prompt": "Two"}', r"name it \.jsonl"),
        (b'{"rows": []}', "no list"),
        (b"\xff", "not JSON"),
    ],
)
def test_files_that_are_no_list(content: bytes, message: str, write: Write) -> None:
    with pytest.raises(ConfigError, match=message):
        read(write("a.json", content))


def test_parquet(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    rows: list[dict[str, object]] = [
        {"id": number, "messages": [{"role": "user", "content": f"Say {number}\u2028."}]}
        for number in range(3000)
    ]
    write_parquet(tmp_path / "a.parquet", rows)
    assert read(tmp_path / "a.parquet") == [RawRow(n, row) for n, row in enumerate(rows, start=1)]


def test_damaged_parquet(write: Write) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(ConfigError, match="as Parquet"):
        read(write("a.parquet", b"PAR1 not really"))


def test_parquet_without_pyarrow(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ConfigError, match="needs pyarrow: pip install"):
        read(write("a.parquet", b""))


def write_parquet(path: Path, rows: list[dict[str, object]]) -> None:
    """Through importlib, since pyarrow is untyped and optional."""
    table_type = importlib.import_module("pyarrow").Table
    parquet = importlib.import_module("pyarrow.parquet")
    write_table = cast("Callable[[object, str], None]", parquet.write_table)
    from_pylist = cast("Callable[[object], object]", table_type.from_pylist)
    write_table(from_pylist(rows), str(path))


class FakeDatasets(ModuleType):
    """The library `datasets` as far as it is used: one data set, in one split."""

    def __init__(self) -> None:
        super().__init__("datasets")
        self.calls: list[tuple[str, str | None, str, bool, str | None]] = []

    def load_dataset(
        self, path: str, name: str | None, *, split: str, streaming: bool, revision: str | None
    ) -> Iterator[dict[str, object]]:
        self.calls.append((path, name, split, streaming, revision))
        if split != "train":
            raise ValueError(f"Unknown split {split}.\nSecond line")
        return iter(ROWS)


@pytest.fixture
def datasets(monkeypatch: pytest.MonkeyPatch) -> FakeDatasets:
    module = FakeDatasets()
    monkeypatch.setitem(sys.modules, "datasets", module)
    return module


def test_a_data_set_is_streamed(datasets: FakeDatasets) -> None:
    assert read("hf:owner/name:main") == [RawRow(1, ROWS[0]), RawRow(2, ROWS[1])]
    assert datasets.calls == [("owner/name", "main", "train", True, None)]
    assert read("hf:owner/name@v1::train") and datasets.calls[-1][-1] == "v1"


def test_what_the_library_says_is_passed_on(datasets: FakeDatasets) -> None:
    with pytest.raises(ConfigError, match=r"hf:owner/name::test \(Unknown split test\.\)"):
        read("hf:owner/name::test")


def test_a_data_set_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    # A folder of that name looks like a package without anything in it.
    for found in (None, ModuleType("datasets")):
        monkeypatch.setitem(sys.modules, "datasets", found)
        with pytest.raises(ConfigError, match=r"pip install 'blockdraft\[data\]'"):
            read("hf:owner/name")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("hf:owner/name", ("owner/name", None, "train", None)),
        ("hf:owner/name:main", ("owner/name", "main", "train", None)),
        ("hf:owner/name::test", ("owner/name", None, "test", None)),
        ("hf:owner/name@v1:main:test", ("owner/name", "main", "test", "v1")),
    ],
)
def test_names_of_data_sets(text: str, parts: tuple[str, str | None, str, str | None]) -> None:
    assert parse_hub_name(text) == parts


@pytest.mark.parametrize("text", ["hf::main", "hf:a:b:c:d", "hf:a/b@"])
def test_wrong_names_of_data_sets(text: str) -> None:
    with pytest.raises(ConfigError, match="no data set"):
        parse_hub_name(text)
