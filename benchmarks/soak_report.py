"""What a soak came to: figures, and a table of them.

Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from soak_process import Sample

WARM_UP_SHARE = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFigures:
    """Resident memory in MiB. `warm` and `last` are medians of the first and the last quarter after
    warm-up, `slope` is MiB an hour by least squares over all samples after it; `children` is what
    the process that compiles grammars held at the end."""

    first: float
    warm: float
    last: float
    peak: float
    slope: float
    children: float

    @property
    def growth(self) -> float:
        return self.last - self.warm


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`orders` by kind, `statuses` of them, `choices` by status, `ended` as the server counts.
    `rss` has seconds and MiB."""

    seconds: float
    clients: int
    orders: dict[str, int]
    statuses: dict[str, int]
    choices: dict[str, int]
    num_compared: int
    ended: dict[str, int]
    tokens: int
    acceptance_length: float | None
    preemptions: int
    prefix_hits: int
    probes: int
    slowest_probe: float
    memory: MemoryFigures
    files: tuple[int, int]
    threads: tuple[int, int]
    rss: list[tuple[float, float]]
    complaints: list[str]


def memory_figures(samples: Sequence[Sample]) -> MemoryFigures:
    """The figures of samples in order of time, at least one."""
    begin = samples[-1].seconds * WARM_UP_SHARE
    warm = [sample for sample in samples if sample.seconds >= begin] or list(samples)
    quarter = max(1, len(warm) // 4)
    return MemoryFigures(
        first=samples[0].rss,
        warm=median(sample.rss for sample in warm[:quarter]),
        last=median(sample.rss for sample in warm[-quarter:]),
        peak=max(sample.rss for sample in samples),
        slope=3600 * _slope(warm),
        children=samples[-1].children_rss,
    )


def _slope(samples: Sequence[Sample]) -> float:
    mean_x = sum(s.seconds for s in samples) / len(samples)
    mean_y = sum(s.rss for s in samples) / len(samples)
    spread = sum((s.seconds - mean_x) ** 2 for s in samples)
    if not spread:
        return 0.0
    return sum((s.seconds - mean_x) * (s.rss - mean_y) for s in samples) / spread


def thinned(samples: Sequence[Sample], count: int = 60) -> list[tuple[float, float]]:
    """Seconds and resident memory of about `count` of the samples."""
    step = max(1, len(samples) // count)
    return [(round(s.seconds, 1), round(s.rss, 2)) for s in samples[::step]]


def render(report: Report) -> str:
    """The report as a Markdown table, complaints behind it."""
    memory, tau = report.memory, report.acceptance_length
    rows = {
        "load": f"{report.seconds:g} s, {report.clients} clients",
        "requests": _counts(report.orders),
        "they ended": _counts(report.statuses),
        "compared with offline answers": str(report.num_compared),
        "choices, as clients saw them": _counts(report.choices),
        "engine requests, as the server counts": _counts(report.ended),
        "tokens": f"{report.tokens} ({report.tokens / report.seconds:.0f} a second)",
        "acceptance length": "-" if tau is None else f"{tau:.2f}",
        "preemptions, prefix hits": f"{report.preemptions}, {report.prefix_hits}",
        "/health": f"{report.probes} times, the slowest {1000 * report.slowest_probe:.0f} ms",
        "resident memory": f"{memory.first:.1f} MiB at first, {memory.warm:.1f} after warm-up, "
        f"{memory.last:.1f} at the end ({memory.slope:+.1f} MiB an hour)",
        "grammar process": f"{memory.children:.1f} MiB",
        "open files, threads": f"{report.files[0]} -> {report.files[1]}, "
        f"{report.threads[0]} -> {report.threads[1]}",
        "wrong": str(len(report.complaints)),
    }
    lines = ["| | |", "| --- | --- |", *(f"| {name} | {text} |" for name, text in rows.items())]
    return "\n".join([*lines, *(f"WRONG: {text}" for text in report.complaints)]) + "\n"


def _counts(counts: dict[str, int]) -> str:
    return f"{sum(counts.values())}: " + ", ".join(f"{n} {name}" for name, n in counts.items())
