"""The prompts of a bench, from wherever they come, and the order in which they are sent.

It sends nothing. How a row is read is `rows.py`, of a data set `hub_prompts.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from blockdraft.bench.config import Arrival, RequestSettings
from blockdraft.bench.fields import ENDPOINT, FieldRules
from blockdraft.bench.hub_prompts import hub_source, read_table
from blockdraft.bench.prompt import BenchPrompt, Chat, JsonObject
from blockdraft.bench.rows import read_bench_row
from blockdraft.bench.sampling import sampling_of
from blockdraft.bench.set_files import LICENSE, MIXED, digest_of, read_set
from blockdraft.data.sources import SUFFIXES, PromptSource
from blockdraft.errors import ConfigError, RequestError
from blockdraft.evaluation import read_prompt_rows

TABLES = tuple(suffix for suffix, kind in SUFFIXES.items() if kind != "jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSource:
    """Where prompts come from: at most one of `name` (a built-in set), `path` and `dataset`.

    Without any it is the set "mixed". `config`, `split` and `column` are of a data set, `column`
    of a file that is a table too. `rules` say which fields of requests go along.
    """

    name: str | None = None
    path: Path | None = None
    dataset: str | None = None
    config: str | None = None
    split: str | None = None
    column: str | None = None
    limit: int | None = None
    rules: FieldRules = ENDPOINT

    def __post_init__(self) -> None:
        given = [one for one in (self.name, self.path, self.dataset) if one is not None]
        if len(given) > 1:
            raise ConfigError("give one of --workload, --prompts and --dataset")
        if self.dataset is None and (self.config is not None or self.split is not None):
            raise ConfigError("--config and --split choose a part of a --dataset; give one")
        if self.column is not None and self.dataset is None and not self.is_table:
            raise ConfigError(
                f"--column names a column of a --dataset or of a table ({', '.join(TABLES)})"
            )

    @property
    def is_table(self) -> bool:
        """Whether it is a file of rows that are no JSON lines."""
        return self.path is not None and self.path.suffix.lower() in TABLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Prompts in their order. `source` is a path, a set or a data set.

    `sha256` is the whole file's, or of the prompts where there is no file.
    `ignored` are the keys of its rows that ask for nothing here; `notes` is what else to say.
    """

    source: str
    sha256: str
    license: str | None
    prompts: tuple[BenchPrompt, ...]
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def categories(self) -> dict[str, int]:
        """How many prompts each has, in the order in which they first occur."""
        names = [prompt.category for prompt in self.prompts]
        return {name: names.count(name) for name in dict.fromkeys(names)}


class Job(NamedTuple):
    """One request to be sent; `number` counts from 0 within a level."""

    number: int
    prompt: BenchPrompt


def read_workload(source: WorkloadSource, settings: RequestSettings) -> Workload:
    """The prompts that `source` names. Raises ConfigError naming what can't be used, and where."""
    if source.dataset is not None or source.is_table:
        workload = _table(source)
    elif source.path is not None:
        file = read_prompt_rows(source.path)
        rows = [(f"{source.path}, line {number}", row) for number, row in file.rows]
        workload = _of_rows(str(source.path), file.sha256, None, rows, source)
    else:
        name = source.name or MIXED
        sha256, set_rows = read_set(name)
        workload = _of_rows(f"built-in {name}", sha256, LICENSE, set_rows, source)
    for prompt in workload.prompts:
        if settings.raw and prompt.needs_template:
            what = "a chat" if isinstance(prompt.content, Chat) else "its system text"
            raise ConfigError(f"{prompt.where}: {what} needs a chat template; drop --raw")
        if not source.rules.is_sent:
            _check_sampling(prompt, settings)
    return workload


def _check_sampling(prompt: BenchPrompt, settings: RequestSettings) -> None:
    """Before anything is loaded, and with the row's name."""
    try:
        sampling_of(settings.of(prompt.asks), prompt.asks, 0)
    except RequestError as error:
        raise ConfigError(f"{prompt.where}: {error}") from error


def workload_document(
    workload: Workload, num_requests: int | None, num_warm_ups: int
) -> dict[str, object]:
    """What the results say of the prompts."""
    return {
        "source": workload.source,
        "sha256": workload.sha256,
        "license": workload.license,
        "prompts": len(workload.prompts),
        "categories": workload.categories,
        "requests": num_requests,
        "warm_ups": num_warm_ups,
        "ignored_keys": list(workload.ignored),
    }


def _table(source: WorkloadSource) -> Workload:
    if source.path is not None:
        table = PromptSource(name=str(source.path), key=source.column)
    else:
        assert source.dataset is not None
        table = hub_source(source.dataset, source.config, source.split, source.column)
    read = read_table(table, source.limit)
    asked = ([prompt.id, prompt.system, prompt.content] for prompt in read.prompts)
    return Workload(
        source=table.name,
        sha256=digest_of(asked),
        license=None,
        prompts=read.prompts,
        notes=read.notes,
    )


def _of_rows(
    name: str,
    sha256: str,
    license: str | None,
    rows: Sequence[tuple[str, JsonObject]],
    source: WorkloadSource,
) -> Workload:
    prompts: dict[str, BenchPrompt] = {}
    ignored: dict[str, None] = {}
    for number, (where, row) in enumerate(rows, start=1):
        line = int(where.rpartition(" ")[2])
        read = read_bench_row(row, line, where, source.rules)
        if read.prompt.id in prompts:
            raise ConfigError(
                f"{where}: id {read.prompt.id!r} was used in {prompts[read.prompt.id].where}; give "
                "each prompt its own"
            )
        prompts[read.prompt.id] = read.prompt
        ignored.update(dict.fromkeys(read.ignored))
        if number == source.limit:
            break
    if not prompts:
        raise ConfigError(
            f"{name} holds no prompts; each line is one like "
            '{"prompt": "text"}, {"messages": [..]} or a logged request'
        )
    return Workload(
        source=name,
        sha256=sha256,
        license=license,
        prompts=tuple(prompts.values()),
        ignored=tuple(ignored),
    )


def logged_arrival(prompts: Sequence[BenchPrompt]) -> Arrival:
    """Requests at the times that their rows name, from the first one on; prompts in that order.

    Raises ConfigError for a row without a time, and where all came at once.
    """
    times: list[float] = []
    for prompt in prompts:
        if prompt.at_s is None:
            raise ConfigError(
                f'{prompt.where}: no "timestamp" or "created", so --arrivals logged does not know '
                "when it came; give --concurrency or --rate instead"
            )
        times.append(prompt.at_s)
    first, last = min(times), max(times)
    if last <= first:
        raise ConfigError(
            f"{prompts[0].where}: all requests came at the same time, so there are no arrivals to "
            "replay; give --concurrency or --rate"
        )
    offsets = tuple(sorted(at - first for at in times))
    return Arrival(rate=(len(times) - 1) / (last - first), times=offsets)


def make_jobs(
    prompts: Sequence[BenchPrompt], arrival: Arrival, num_requests: int | None
) -> list[Job]:
    """`num_requests` jobs, the prompts in turn; those of a log once each, by their times.

    Without a number: every prompt once, and at least two requests for each that runs at a time, so
    that a level is really reached.
    """
    if arrival.times is not None:
        in_order = sorted(prompts, key=lambda prompt: prompt.at_s or 0.0)
        return [Job(number, prompt) for number, prompt in enumerate(in_order)]
    if num_requests is None:
        num_requests = max(len(prompts), 2 * (arrival.concurrency or 0))
    return [Job(number, prompts[number % len(prompts)]) for number in range(num_requests)]


def warm_up_prompt(prompts: Sequence[BenchPrompt], number: int) -> BenchPrompt:
    """A prompt that is not in the workload, so that none of it is cached before it is measured."""
    first = prompts[0]
    if isinstance(first.content, tuple):
        content: str | tuple[int, ...] = first.content[::-1]
    else:
        content = f"Write one sentence about the number {number}."
    return BenchPrompt(where="warm-up", id=f"warm-up {number}", content=content, raw=first.raw)
