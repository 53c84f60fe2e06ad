"""Where workloads come from: built-in sets, files, tables and data sets; arrivals of a log."""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Protocol, cast

import pytest

from blockdraft.bench import (
    IN_PROCESS,
    SETS,
    Arrival,
    RequestSettings,
    Workload,
    WorkloadSource,
    logged_arrival,
    make_jobs,
    read_workload,
    workload_document,
)
from blockdraft.bench.hub_prompts import DEFAULT_LIMIT
from blockdraft.bench.set_files import KINDS
from blockdraft.errors import ConfigError


def workload(source: WorkloadSource, settings: RequestSettings | None = None) -> Workload:
    return read_workload(source, settings or RequestSettings())


def write(folder: Path, *rows: object) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("name", KINDS)
def test_the_sets_of_the_package(name: str) -> None:
    read = workload(WorkloadSource(name=name))
    assert (read.source, read.license) == (f"built-in {name}", "CC0-1.0")
    assert list(read.categories) == [name] and len(read.prompts) >= 10
    texts = [prompt.content for prompt in read.prompts]
    assert len(set(texts)) == len(texts) == len({prompt.id for prompt in read.prompts})
    assert read.ignored == () and all(isinstance(text, str) and text.strip() for text in texts)


def test_long_prompts_come_in_several_lengths_and_five_of_each() -> None:
    """P07: prompts vary at equal length, so one of each length shows false precision."""
    prompts = workload(WorkloadSource(name="long")).prompts
    sizes: dict[str, list[int]] = {}
    for prompt in prompts:
        sizes.setdefault(prompt.id.rpartition("-")[2], []).append(len(str(prompt.content)))
    assert list(sizes) == ["500", "1000", "1500"]
    assert all(len(lengths) == 5 for lengths in sizes.values())
    assert max(sizes["500"]) < min(sizes["1000"]) and max(sizes["1000"]) < min(sizes["1500"])


def test_mixed_has_some_of_each_in_turn() -> None:
    read = workload(WorkloadSource())
    assert read.source == "built-in mixed"
    assert read.categories == {kind: 2 for kind in KINDS}
    six = workload(WorkloadSource(name="mixed", limit=6))
    assert list(six.categories) == list(KINDS[:6]) and six.sha256 == read.sha256


def test_a_set_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="no workload is called 'maths'; there are math, code"):
        workload(WorkloadSource(name="maths"))
    assert list(SETS) == [*KINDS, "mixed"]


def test_a_file_of_all_kinds_of_rows(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"prompt": "one", "answer": 1},
        {"turns": ["two", "never asked"], "category": "math"},
        {"prompt_ids": [1, 2]},
        {"messages": [{"role": "user", "content": "four"}]},
        {"custom_id": "five", "body": {"model": "m", "prompt": "raw text", "max_tokens": 5}},
    )
    read = workload(WorkloadSource(path=path))
    assert [prompt.content for prompt in read.prompts] == ["one", "two", (1, 2), "four", "raw text"]
    assert [prompt.id for prompt in read.prompts][-2:] == ["line 4", "five"]
    assert read.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert workload_document(read, None, 1) == {
        "source": str(path),
        "sha256": read.sha256,
        "license": None,
        "prompts": 5,
        "categories": {"": 4, "math": 1},
        "requests": None,
        "warm_ups": 1,
        "ignored_keys": ["answer"],
    }
    assert len(workload(WorkloadSource(path=path, limit=2)).prompts) == 2


def test_mistakes_of_files_name_file_and_line(tmp_path: Path) -> None:
    chat = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}
    cases: list[tuple[tuple[object, ...], str]] = [
        ((), "holds no prompts; each line is one like"),
        (({"prompt": "a", "id": "x"}, {"prompt": "b", "id": "x"}), "line 2: id 'x' was used in"),
        (({"prompt": "a"}, [1]), "line 2: not an object"),
        (({"prompt": "a"}, {"model": "m", "prompt": "a", "magic": 1}), "line 2: the field 'magic'"),
    ]
    for rows, message in cases:
        with pytest.raises(ConfigError, match=message):
            workload(WorkloadSource(path=write(tmp_path, *rows)))
    path = write(tmp_path, chat)
    with pytest.raises(ConfigError, match=r"line 1: its system text needs a chat template"):
        workload(WorkloadSource(path=path), RequestSettings(raw=True))
    with pytest.raises(ConfigError, match="can't read prompts from"):
        workload(WorkloadSource(path=tmp_path / "none.jsonl"))


def test_values_that_our_own_sampling_refuses_are_told_before_anything_is_loaded(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, {"prompt": "a"}, {"prompt": "b", "top_p": 7})
    assert len(workload(WorkloadSource(path=path)).prompts) == 2  # a server judges by itself
    with pytest.raises(ConfigError, match="line 2: top_p"):
        workload(WorkloadSource(path=path, rules=IN_PROCESS))


def test_sources_that_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one of --workload, --prompts and --dataset"):
        WorkloadSource(name="math", dataset="a/b")
    with pytest.raises(ConfigError, match="choose a part of a --dataset"):
        WorkloadSource(split="test")
    with pytest.raises(ConfigError, match="--column names a column of a --dataset"):
        WorkloadSource(path=tmp_path / "a.jsonl", column="q")


class FakeDatasets(ModuleType):
    """The library `datasets` as far as it is used: one data set of a cache, in one split."""

    def __init__(self, rows: list[dict[str, object]]) -> None:
        super().__init__("datasets")
        self.rows = rows
        self.calls: list[tuple[str, str | None, str, str | None]] = []

    def load_dataset(
        self, path: str, name: str | None, *, split: str, streaming: bool, revision: str | None
    ) -> Iterator[dict[str, object]]:
        self.calls.append((path, name, split, revision))
        if path != "owner/name":
            raise FileNotFoundError(f"Dataset '{path}' doesn't exist on the Hub.\nMore")
        if split != "train":
            raise ValueError(f'Unknown split "{split}".')
        return iter(self.rows)


Install = Callable[[list[dict[str, object]]], FakeDatasets]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Install:
    def install(rows: list[dict[str, object]]) -> FakeDatasets:
        module = FakeDatasets(rows)
        monkeypatch.setitem(sys.modules, "datasets", module)
        return module

    return install


def test_a_data_set_of_the_hub(hub: Install) -> None:
    chat = [{"role": "user", "content": "a?"}, {"role": "assistant", "content": "a!"}]
    module = hub([{"messages": chat}, {"question": "b?", "answer": "b"}, {"question": " "}])
    read = workload(WorkloadSource(dataset="owner/name@v1", config="main"))
    assert module.calls == [("owner/name", "main", "train", "v1")]
    assert [prompt.content for prompt in read.prompts] == ["a?", "b?"]
    assert [prompt.id for prompt in read.prompts] == ["row 1", "row 2"]
    assert read.source == "hf:owner/name@v1:main"
    (note,) = read.notes
    assert note.startswith("1 rows hold no prompt and are left out; hf:owner/name@v1:main, row 3")
    again = workload(WorkloadSource(dataset="owner/name"))
    assert (
        again.sha256
        == read.sha256
        != workload(WorkloadSource(dataset="owner/name", limit=1)).sha256
    )


def test_a_column_of_a_data_set(hub: Install) -> None:
    hub([{"text": f"t{n}", "other": "x"} for n in range(100)])
    read = workload(WorkloadSource(dataset="owner/name", column="text"))
    assert len(read.prompts) == DEFAULT_LIMIT and "--limit says how many" in read.notes[0]
    assert read.prompts[1].content == "t1"
    with pytest.raises(ConfigError, match=r"the row has no key 'q'.*columns: text, other"):
        workload(WorkloadSource(dataset="owner/name", column="q"))
    with pytest.raises(ConfigError, match=r"no known shape .*columns: text, other; say --column"):
        workload(WorkloadSource(dataset="owner/name"))


def test_data_sets_that_are_not_there(hub: Install) -> None:
    hub([])
    cases = [
        (WorkloadSource(dataset="owner/other"), "can't read the data set hf:owner/other.*exist"),
        (WorkloadSource(dataset="owner/name", split="test"), "Unknown split"),
        (WorkloadSource(dataset="owner/name"), "holds no prompts; choose another --column"),
        (WorkloadSource(dataset="owner/name:main"), "what follows with --config and --split"),
        (WorkloadSource(dataset="owner/name@"), "no data set"),
    ]
    for source, message in cases:
        with pytest.raises(ConfigError, match=message) as caught:
            workload(source)
        assert "\n" not in str(caught.value)


def test_a_data_set_in_the_librarys_own_cache(tmp_path: Path) -> None:
    """The real library, on a folder as the hub keeps it: no network is needed."""
    if not hasattr(pytest.importorskip("datasets"), "load_dataset"):
        pytest.skip("the library datasets is not installed")
    (tmp_path / "train.jsonl").write_text('{"question": "one?"}\n{"question": "two?"}\n')
    read = workload(WorkloadSource(dataset=str(tmp_path), column="question"))
    assert [prompt.content for prompt in read.prompts] == ["one?", "two?"]


class _Table(Protocol):
    def from_pylist(self, rows: list[dict[str, object]]) -> object: ...


class _Arrow(Protocol):
    Table: _Table


class _Parquet(Protocol):
    def write_table(self, table: object, where: str) -> None: ...


def test_tables(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    rows: list[dict[str, object]] = [{"q": "one"}, {"q": "two"}]
    arrow = cast(_Arrow, import_module("pyarrow"))
    path = tmp_path / "rows.parquet"
    parquet = cast(_Parquet, import_module("pyarrow.parquet"))
    parquet.write_table(arrow.Table.from_pylist(rows), str(path))
    as_json = tmp_path / "rows.json"
    as_json.write_text(json.dumps(rows))
    for table in (path, as_json):
        read = workload(WorkloadSource(path=table, column="q"))
        assert [prompt.content for prompt in read.prompts] == ["one", "two"]
    with pytest.raises(ConfigError, match="the row has no key 'p'"):
        workload(WorkloadSource(path=path, column="p"))


def test_arrivals_of_a_log(tmp_path: Path) -> None:
    at = ("2025-11-30T09:00:02Z", "2025-11-30T09:00:00Z", "2025-11-30T09:00:08Z")
    path = write(tmp_path, *({"prompt": f"p{n}", "created": time} for n, time in enumerate(at)))
    prompts = workload(WorkloadSource(path=path)).prompts
    arrival = logged_arrival(prompts)
    assert arrival == Arrival(rate=0.25, times=(0.0, 2.0, 8.0))
    assert arrival.title == "as logged, 0.25/s"
    jobs = make_jobs(prompts, arrival, None)
    assert [job.prompt.content for job in jobs] == ["p1", "p0", "p2"]
    with pytest.raises(ConfigError, match=r"line 2: no .*so --arrivals logged does not know"):
        logged_arrival(
            workload(
                WorkloadSource(path=write(tmp_path, {"prompt": "a", "created": 1}, {"prompt": "b"}))
            ).prompts
        )
    with pytest.raises(ConfigError, match="all requests came at the same time"):
        logged_arrival(prompts[:1])
