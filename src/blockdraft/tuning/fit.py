"""Fits the costs of a pair to steps that were really run, a table of passes as the first belief.

A step takes   verify(requests, rows) * a + draft(requests, width) * b + overhead + requests * c +
taken in * e, with the rows of long prompts on a slope of their own, and all steps of a run at the
pace of its minute. The unknowns are few and start from beliefs (a = b = 1, all runs alike), so that
a handful of measured settings suffices, also for settings that were not measured. What a group of
steps took beyond that corrects the table at its own size. It measures nothing.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median, variance

from blockdraft.engine.costs import CostModel
from blockdraft.errors import ConfigError
from blockdraft.tuning.linear import solve
from blockdraft.tuning.replay import PairCosts
from blockdraft.tuning.row_costs import RowCosts
from blockdraft.tuning.samples import StepSample

FLOOR = 0.015
"""Relative error of a group's mean that more steps do not lower: the table's shape is a guess."""

SPREAD = 0.15
"""Relative spread of one step."""

LONGEST = 3.0
"""A step counts as at most so many times its group's median: the machine stalled."""

TELLING = 12
"""Steps from which on a group corrects the table at its own size."""

BELIEFS = ((1.0, 0.4), (1.0, 0.15), (0.02, 0.03), (1.0, 0.6), (1.0, 1.0), (0.01, 0.02))
"""Mean and deviation of: a, b, overhead in plain steps, slope of prompt rows, intake, what each
request of a step takes besides, in plain steps."""

STEADY = 1e-3
"""Deviation of a run's pace from the others' on a machine that shows no drift."""

QUARTERS = 4
"""A run is taken to differ from other runs as much as its quarters do from each other."""

LEAST = 1e-9
INTAKE_SHARE = 0.2
"""Of what a prompt row costs the target, believed of the drafter's intake of a token."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Steps of one make-up: their mean features (in seconds believed) and seconds."""

    features: tuple[float, ...]
    seconds: float
    num_taken_in: float
    num_steps: int
    example: StepSample
    run: int

    @property
    def deviation(self) -> float:
        return self.seconds * (FLOOR**2 + SPREAD**2 / self.num_steps) ** 0.5


def fit_costs(believed: PairCosts, runs: Sequence[Sequence[StepSample]]) -> PairCosts:
    """The costs that the steps of `runs` suggest. Raises ConfigError without a step."""
    groups = [group for number, run in enumerate(runs) for group in _groups(believed, run, number)]
    if not groups:
        raise ConfigError("no steps were measured, so their costs are not known")
    pace = (0.0, max(drift(runs), STEADY))
    found = _scales(groups, [*BELIEFS, *(pace for _ in runs)])
    scales, paces = found[: len(BELIEFS)], found[len(BELIEFS) :]
    at_one_pace = [replace(one, seconds=one.seconds * (1 - paces[one.run])) for one in groups]
    return _corrected(_scaled(believed, scales), at_one_pace)


def _features(believed: PairCosts, sample: StepSample) -> tuple[float, ...]:
    """Seconds of each part as believed; the products with the scales add up to the step."""
    verify = believed.rows
    rows, last = sample.prompt_rows + sample.decode_rows, verify.last_rows
    drafting = 0.0
    if sample.num_drafting:
        drafting = believed.passes.draft_seconds(sample.num_drafting, sample.draft_width)
    row_seconds = max(verify.row_seconds, LEAST)
    return (
        verify.at(sample.num_requests, min(rows, last)),
        drafting,
        verify.at(1, 1),
        max(rows - last, 0) * row_seconds,
        sample.num_taken_in * row_seconds * INTAKE_SHARE,
        sample.num_requests * verify.at(1, 1),
    )


def _groups(costs: PairCosts, samples: Sequence[StepSample], run: int) -> list[_Group]:
    by_shape: dict[tuple[int, ...], list[StepSample]] = {}
    for sample in samples:
        shape = tuple(sample[:5])
        by_shape.setdefault(shape, []).append(sample)
    return [_group(costs, by_shape[shape], run) for shape in sorted(by_shape)]


def _group(costs: PairCosts, samples: Sequence[StepSample], run: int) -> _Group:
    longest = LONGEST * median(sample.seconds for sample in samples)
    features = [_features(costs, sample) for sample in samples]
    return _Group(
        features=tuple(fmean(column) for column in zip(*features, strict=True)),
        seconds=fmean(min(sample.seconds, longest) for sample in samples),
        num_taken_in=fmean(sample.num_taken_in for sample in samples),
        num_steps=len(samples),
        example=samples[0],
        run=run,
    )


def drift(runs: Sequence[Sequence[StepSample]]) -> float:
    """How much the pace of the machine changes: the relative deviation between the quarters of a
    run, over steps alike (0 where runs are too short to tell)."""
    found: list[float] = []
    for run in runs:
        by_shape: dict[tuple[int, ...], list[float]] = {}
        for sample in run:
            by_shape.setdefault(tuple(sample[:5]), []).append(sample.seconds)
        alike = max(by_shape.values(), key=len) if by_shape else []
        num = len(alike) // QUARTERS
        if num < TELLING:
            continue
        longest = LONGEST * median(alike)
        means = [
            fmean(min(seconds, longest) for seconds in alike[i * num : (i + 1) * num])
            for i in range(QUARTERS)
        ]
        found.append(variance(means) / fmean(means) ** 2)
    return fmean(found) ** 0.5 if found else 0.0


def _scales(groups: Sequence[_Group], beliefs: Sequence[tuple[float, float]]) -> list[float]:
    """The likeliest scales (linear regression with normal beliefs), none below 0, and after them
    the share by which each run was slower than the others."""
    fixed: dict[int, float] = {}
    while True:
        found = _likeliest(groups, beliefs, fixed)
        negative = [i for i, scale in enumerate(found[: len(BELIEFS)]) if scale < 0]
        if not negative:
            return found
        fixed[min(negative, key=lambda i: found[i])] = 0.0


def _likeliest(
    groups: Sequence[_Group], beliefs: Sequence[tuple[float, float]], fixed: dict[int, float]
) -> list[float]:
    num_runs = len(beliefs) - len(BELIEFS)
    free = [i for i in range(len(beliefs)) if i not in fixed]
    matrix = [[0.0] * len(free) for _ in free]
    right = [0.0] * len(free)
    for row, i in enumerate(free):
        mean, deviation = beliefs[i]
        matrix[row][row] += 1 / deviation**2
        right[row] += mean / deviation**2
    for group in groups:
        weight = 1 / group.deviation**2
        paces = [group.seconds if run == group.run else 0.0 for run in range(num_runs)]
        features = [*group.features, *paces]
        for row, i in enumerate(free):
            right[row] += weight * features[i] * group.seconds
            for column, j in enumerate(free):
                matrix[row][column] += weight * features[i] * features[j]
    found = dict(zip(free, solve(matrix, right), strict=True)) | fixed
    return [found[i] for i in range(len(beliefs))]


def _scaled(believed: PairCosts, scales: Sequence[float]) -> PairCosts:
    verify, draft, overhead, slope, intake, request = scales
    passes, rows = believed.passes, believed.rows
    plain, row_seconds = rows.at(1, 1), max(rows.row_seconds, LEAST)
    drafts = {
        (num, width): max(draft * seconds, LEAST)
        for width, curve in passes.draft
        for num, seconds in curve.points
    }
    scaled = rows.changed(lambda _requests, _rows, seconds: max(verify * seconds, LEAST))
    return _costs(
        scaled.prolonged(slope * row_seconds),
        drafts,
        PairCosts(
            passes=replace(passes, overhead_seconds=overhead * plain),
            intake_seconds=intake * row_seconds * INTAKE_SHARE,
            request_seconds=request * plain,
            verify=believed.verify,
        ),
    )


def _costs(rows: RowCosts, draft: Mapping[tuple[int, int], float], others: PairCosts) -> PairCosts:
    """`others` with these passes; by rows alone where that is all it knows."""
    number = rows.curves[-1][0]
    by_rows = dict(rows.for_requests(number).points)
    passes = CostModel.fit(by_rows, draft, others.passes.overhead_seconds)
    return replace(others, passes=passes, verify=rows)


def _corrected(costs: PairCosts, groups: Sequence[_Group]) -> PairCosts:
    """The table with what telling groups without prompt rows really took, at their sizes."""
    telling = [g for g in groups if g.num_steps >= TELLING and not g.example.prompt_rows]
    rows = _corrected_rows(costs, [g for g in telling if not g.example.num_drafting])
    draft = {(num, width): s for width, curve in costs.passes.draft for num, s in curve.points}
    for group in telling:
        step = group.example
        if step.num_drafting and step.decode_rows == step.num_drafting * step.draft_width:
            rest = group.seconds - rows.at(step.num_requests, step.decode_rows)
            rest -= _besides(costs, group)
            draft[step.num_drafting, step.draft_width] = max(rest, LEAST)
    return _costs(rows, draft, costs)


def _besides(costs: PairCosts, group: _Group) -> float:
    """What a group's steps take besides passes."""
    requests = costs.request_seconds * group.example.num_requests
    return costs.passes.overhead_seconds + requests + costs.intake_seconds * group.num_taken_in


def _corrected_rows(costs: PairCosts, plain: Sequence[_Group]) -> RowCosts:
    """Plain steps as they were. Passes of other numbers of requests (of rows, where those alone are
    known) are off by a ratio that is linear in the logarithm between them."""
    rows = costs.rows
    ratios = {
        group.example.num_requests: (group.seconds - _besides(costs, group))
        / rows.at(group.example.num_requests, group.example.decode_rows)
        for group in plain
    }
    if len(rows.curves) > 1:
        return rows.changed(lambda n, _rows, seconds: max(seconds * _ratio(ratios, n), LEAST))
    sizes = sorted({*ratios, *(size for _, points in rows.curves for size, _ in points)})
    filled = RowCosts(((1, tuple((size, rows.at(1, size)) for size in sizes)),))
    return filled.changed(lambda _n, size, seconds: max(seconds * _ratio(ratios, size), LEAST))


def _ratio(ratios: Mapping[int, float], rows: int) -> float:
    """1 outside the known sizes."""
    known = sorted(ratios)
    if not known or not known[0] <= rows <= known[-1]:
        return 1.0
    right = bisect_left(known, rows)
    high = known[right]
    if high == rows:
        return ratios[rows]
    low = known[right - 1]
    share = math.log(rows / low) / math.log(high / low)
    return ratios[low] + (ratios[high] - ratios[low]) * share
