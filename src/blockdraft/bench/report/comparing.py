"""Two runs of a bench side by side: what changed beyond the noise, and may they be compared.

Pure; `blockdraft report A.json B.json` prints it. docs/report.md says when a change counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple, cast

from blockdraft.bench.latency import Spread
from blockdraft.bench.report.conditions import drafters_of, inline
from blockdraft.bench.report.document import BenchDocument, Figures, Load
from blockdraft.bench.report.evidence import (
    Estimate,
    noisy,
    speedup_of,
    tau_of,
)
from blockdraft.bench.report.noise import LEAST_ONCE, total_noise
from blockdraft.errors import ConfigError

Change = Literal["better", "worse", "same", "not comparable"]
LEAST_CHANGE = 0.02
"""Changes below it count as none, however narrow the ranges."""
SAME_ANSWERS = ("max_tokens", "temperature", "ignore_eos", "raw", "template_args", "seed")
"""Settings without which two runs did not answer alike."""
SPEED_CONDITIONS = (
    *("hardware", "device", "dtype", "quantize", "threads", "engine", "batch_invariant"),
    *("machine", "cores"),
)
"""Conditions that times depend on: where one differs, only ratios within a run are compared."""
MEASURES = ("tau", "speed-up", "tok/s", "first token s", "inter-token s", "end to end s")
"""What is compared, in the order of the rows."""
HIGHER_IS_BETTER = ("tau", "speed-up", "tok/s")
OTHER_CONDITIONS = ("software", "blockdraft", "python", "url", "baseline_url")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure of one lane under one load, before and after. `ratio` is after over before."""

    lane: str
    load: str
    measure: str
    before: float
    after: float
    before_range: tuple[float, float]
    after_range: tuple[float, float]
    ratio: float
    change: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`warnings` say where conditions differ; `missing` which lanes and loads only one run has."""

    rows: tuple[Row, ...]
    warnings: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def regressions(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.change == "worse")

    @property
    def improvements(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.change == "better")

    def to_json(self) -> dict[str, object]:
        return {
            "schema": "blockdraft.bench-comparison",
            "version": 1,
            "regressions": len(self.regressions),
            "improvements": len(self.improvements),
            "warnings": list(self.warnings),
            "missing": list(self.missing),
            "rows": [asdict(row) for row in self.rows],
        }


def compare_runs(before: BenchDocument, after: BenchDocument) -> Comparison:
    """Row by row, in the order of the lanes and loads of `before`.

    Raises ConfigError where the two measured different things: another model, other prompts, other
    settings of the answers.
    """
    refuse_other_work(before, after)
    warnings = list(_differences(before, after))
    is_same_machine = not any(
        before.conditions.get(name) != after.conditions.get(name) for name in SPEED_CONDITIONS
    )
    rows: list[Row] = []
    missing: list[str] = []
    for figures in before.figures:
        other = after.find(figures.lane, figures.load)
        if other is None:
            missing.append(f"only before: {figures.lane}, {figures.load.title}")
        else:
            sides = Side(before, figures), Side(after, other)
            rows += _rows(*sides, is_same_machine=is_same_machine)
    known = {(figures.lane, figures.load) for figures in before.figures}
    missing += [
        f"only after: {f.lane}, {f.load.title}"
        for f in after.figures
        if (f.lane, f.load) not in known
    ]
    if not rows:
        raise ConfigError(
            "the two runs have no lane and load in common, so nothing can be compared; "
            "measure the same lanes and loads"
        )
    warnings += [
        f"the run {when} was not measured to its end"
        for when, run in (("before", before), ("after", after))
        if not run.is_complete
    ]
    return Comparison(rows=tuple(rows), warnings=tuple(warnings), missing=tuple(missing))


def refuse_other_work(before: BenchDocument, after: BenchDocument) -> None:
    """Raises ConfigError that names everything in which the two measured something else."""
    pairs: list[tuple[str, object, object]] = [("mode", before.mode, after.mode)]
    name = "model" if before.is_endpoint else "target"
    pairs.append((name, before.conditions.get(name), after.conditions.get(name)))
    pairs.append(
        (
            "prompts (sha256)",
            before.workload.get("sha256"),
            after.workload.get("sha256"),
        )
    )
    pairs += [(name, before.settings.get(name), after.settings.get(name)) for name in SAME_ANSWERS]
    different = [
        f"{name} {inline(one) or 'none'} against {inline(other) or 'none'}"
        for name, one, other in pairs
        if one != other
    ]
    if different:
        raise ConfigError(
            f"the two runs measured different things: {'; '.join(different)}; compare runs of the "
            "same model, prompts and settings"
        )


def _differences(before: BenchDocument, after: BenchDocument) -> list[str]:
    """Conditions that differ, each with what that means."""
    found: list[str] = []
    for name in (*SPEED_CONDITIONS, *OTHER_CONDITIONS):
        one, other = before.conditions.get(name), after.conditions.get(name)
        if one != other:
            effect = " (times are not compared)" if name in SPEED_CONDITIONS else ""
            found.append(f"{name} differs: {_what_differs(one, other)}{effect}")
    drafters = drafters_of(before), drafters_of(after)
    if drafters[0] != drafters[1]:
        found.append(f"drafters differ: {', '.join(drafters[0])} against {', '.join(drafters[1])}")
    return found


def _what_differs(one: object, other: object) -> str:
    """Of two objects, only their parts that are not alike."""
    before, after = inline(one), inline(other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        left = cast("Mapping[str, object]", one)
        right = cast("Mapping[str, object]", other)
        names = [name for name in {**left, **right} if left.get(name) != right.get(name)]
        before = inline({name: left.get(name) for name in names})
        after = inline({name: right.get(name) for name in names})
    return f"{before or 'none'} against {after or 'none'}"


class Side(NamedTuple):
    """One lane's figures under one load, with the run that they are of."""

    document: BenchDocument
    figures: Figures

    def estimates(self) -> tuple[Estimate | None, ...]:
        """In the order of `MEASURES`."""
        figures = self.figures
        spreads = (figures.first_token, figures.inter_token, figures.end_to_end)
        return (
            tau_of(figures),
            speedup_of(self.document, figures),
            self._total(),
            *(self._time(spread) for spread in spreads),
        )

    def _total(self) -> Estimate | None:
        figures = self.figures
        if figures.tokens_per_second is None:
            return None
        once = total_noise(self.document).share
        spread = figures.tokens_per_second_spread
        return noisy(figures.tokens_per_second, spread, figures.repeats, once)

    def _time(self, spread: Spread | None) -> Estimate | None:
        """The median, as unsure as the lane's throughput was, and at least as assumed."""
        if spread is None:
            return None
        total, noise = self._total(), LEAST_ONCE
        if total is not None and total.value > 0:
            noise = max(noise, 1 - total.low / total.value, total.high / total.value - 1)
        return Estimate(spread.p50, spread.p50 * max(0.0, 1 - noise), spread.p50 * (1 + noise))


def _rows(before: Side, after: Side, *, is_same_machine: bool) -> list[Row]:
    lane, load = before.figures.lane, before.figures.load
    rows: list[Row] = []
    for name, one, other in zip(MEASURES, before.estimates(), after.estimates(), strict=True):
        if one is None or other is None or one.value <= 0:
            continue
        change = change_of(one, other, higher_is_better=name in HIGHER_IS_BETTER)
        if name not in ("tau", "speed-up") and not is_same_machine:
            change = "not comparable"
        # Plain decoding's speed-up is 1 by definition.
        if name == "speed-up" and one.value == other.value == 1:
            continue
        rows.append(_row(lane, load, name, one, other, change))
    return rows


def _row(
    lane: str, load: Load, measure: str, before: Estimate, after: Estimate, change: Change
) -> Row:
    return Row(
        lane=lane,
        load=load.title,
        measure=measure,
        before=before.value,
        after=after.value,
        before_range=(before.low, before.high),
        after_range=(after.low, after.high),
        ratio=after.value / before.value,
        change=change,
    )


def change_of(before: Estimate, after: Estimate, *, higher_is_better: bool) -> Change:
    """A change counts where the ranges don't touch and it is not tiny."""
    if abs(after.value - before.value) < LEAST_CHANGE * before.value:
        return "same"
    if after.low > before.high:
        return "better" if higher_is_better else "worse"
    if after.high < before.low:
        return "worse" if higher_is_better else "better"
    return "same"


def worst_first(rows: Sequence[Row]) -> list[Row]:
    """By the size of the change."""
    return sorted(rows, key=lambda row: -abs(row.ratio - 1))
