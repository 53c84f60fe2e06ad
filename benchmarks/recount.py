"""Counts the figures of a results.json again, by brute force, from its records of steps alone.

It shares no code with what wrote the document: plain loops, and a bootstrap of its own. It prints
both figures side by side and ends with 1 where they disagree. Intervals are drawn at random, so
each end is compared with the range that an end of so many draws falls into.

    python benchmarks/recount.py results/results.json
"""

import argparse
import json
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, cast

Object = dict[str, object]
DRAWS = 4000
THEIR_DRAWS = 2000
SURE = 5.0
"""Standard errors of a share of draws that an end of an interval may be off."""
ENDS = (0.025, 0.975)
CLOSE = 1e-9


class Step(NamedTuple):
    committed: int
    drafted: int
    accepted: int
    end_s: float


class Answer(NamedTuple):
    """What a record says; the first token comes from the prompt's own pass and is no step."""

    id: str
    category: str
    number: int
    sent_s: float
    first_s: float | None
    end_s: float
    prompt_tokens: int | None
    tokens: int | None
    has_ended: bool
    steps: tuple[Step, ...]


class Line(NamedTuple):
    """One figure, as the document has it and as it was counted here."""

    name: str
    theirs: str
    ours: str
    agrees: bool


def recount(document: Object, draws: int = DRAWS) -> list[Line]:
    """A line for each figure of each lane and arrival whose answers have their steps."""
    lines: list[Line] = []
    levels = objects(document["levels"])
    for figures in objects(document["figures"]):
        own = [
            level
            for level in levels
            if level["lane"] == figures["lane"] and level["arrival"] == figures["arrival"]
        ]
        answers = [answer for level in own for answer in answers_of(level)]
        records = [record for level in own for record in objects(level["records"])]
        if not answers or any(r["steps"] is None for r in records if r["failure"] is None):
            continue
        arrival = cast(Object, figures["arrival"])
        load = arrival["concurrency"] if arrival["rate"] is None else f"rate {arrival['rate']}"
        head = f"{figures['lane']} at {load}"
        found = [*overall(figures, answers, draws), *grouped(figures, answers, draws)]
        found += timed(figures, own, levels, lanes=objects(document["lanes"]))
        lines += [line._replace(name=f"{head}: {line.name}") for line in found]
    return lines


def overall(figures: Object, answers: Sequence[Answer], draws: int) -> list[Line]:
    """Acceptance over all answers."""
    ended = [answer for answer in answers if answer.has_ended]
    accepted, conditional, histogram = by_position(answers)
    return [
        same("answers", figures["answers"], len(answers)),
        same("tau", figures["tau"], tau_of(answers)),
        same("tau_ended", figures["tau_ended"], tau_of(ended)),
        same_interval("tau_interval", figures["tau_interval"], answers, draws),
        same_list("by_position", figures["by_position"], accepted),
        same_list("conditional", figures["conditional"], conditional),
        same_list("histogram", figures["histogram"], histogram),
    ]


def grouped(figures: Object, answers: Sequence[Answer], draws: int) -> list[Line]:
    """The same by category, by lengths, and by the position in the answer."""
    groups = cast(Object, figures["groups"])
    lines: list[Line] = []
    named = {str(group["name"]): group for group in objects(groups["category"])}
    categories = {answer.category for answer in answers if answer.category}
    lines.append(same("categories", sorted(named), sorted(categories)))
    for name in sorted(categories & set(named)):
        chosen = [answer for answer in answers if answer.category == name]
        lines += group_lines(f"category {name}", named[name], chosen, draws)
    lengths: dict[str, Callable[[Answer], int | None]] = {
        "context_len": lambda answer: answer.prompt_tokens,
        "output_len": lambda answer: answer.tokens,
    }
    for name, length in lengths.items():
        num_grouped = 0
        for group in objects(groups[name]):
            start, end = cast(int, group["from"]), cast(int, group["to"])
            chosen = [a for a in answers if (n := length(a)) is not None and start <= n < end]
            num_grouped += len(chosen)
            lines += group_lines(f"{name} {start} to {end}", group, chosen, draws)
        known = sum(length(answer) is not None for answer in answers)
        lines.append(same(f"answers in all of {name}", num_grouped, known))
    return lines + positions(objects(groups["answer_position"]), answers)


def group_lines(name: str, group: Object, chosen: Sequence[Answer], draws: int) -> list[Line]:
    return [
        same(f"{name}: answers", group["answers"], len(chosen)),
        same(f"{name}: tau", group["tau"], tau_of(chosen)),
        same_interval(f"{name}: tau_interval", group["tau_interval"], chosen, draws),
    ]


def positions(groups: Sequence[Object], answers: Sequence[Answer]) -> list[Line]:
    """Steps by how many tokens of their answer were there when they began."""
    lines: list[Line] = []
    num_grouped = 0
    for group in groups:
        start, end = cast(int, group["from"]), cast(int, group["to"])
        steps = tokens = 0
        seconds = 0.0
        for answer in answers:
            position = 1
            before = answer.first_s
            for step in answer.steps:
                if start <= position < end:
                    steps += 1
                    tokens += step.committed
                    seconds += 0.0 if before is None else step.end_s - before
                position += step.committed
                before = step.end_s
        num_grouped += steps
        name = f"answer_position {start} to {end}"
        speed = tokens / seconds if seconds > 0 else None
        lines.append(same(f"{name}: steps", group["steps"], steps))
        lines.append(same(f"{name}: tau", group["tau"], tokens / steps if steps else None))
        lines.append(same(f"{name}: tokens_per_second", group["tokens_per_second"], speed))
    total = sum(len(answer.steps) for answer in answers)
    return [*lines, same("steps in all of answer_position", num_grouped, total)]


def timed(
    figures: Object, own: Sequence[Object], levels: Sequence[Object], lanes: Sequence[Object]
) -> list[Line]:
    """Throughput and its ratio to the plain lane's in the same repeat: medians over repeats."""
    plain = {str(lane["name"]) for lane in lanes if lane["kind"] == "plain"}
    rates: list[float] = []
    ratios: list[float] = []
    for level in own:
        rate = throughput(level)
        if rate is None:
            continue
        rates.append(rate)
        for base in levels:
            is_same = base["arrival"] == level["arrival"] and base["repeat"] == level["repeat"]
            if base["lane"] in plain and is_same and (slow := throughput(base)) is not None:
                ratios.append(rate / slow)
    return [
        same("tokens_per_second", figures["tokens_per_second"], middle(rates)),
        same("speedup", figures["speedup"], middle(ratios)),
    ]


def throughput(level: Object) -> float | None:
    """Tokens a second of a complete level, from the first sending to the last end."""
    records = objects(level["records"])
    if not level["complete"] or not records:
        return None
    begin = min(cast(float, record["sent_s"]) for record in records)
    seconds = max(cast(float, record["end_s"]) for record in records) - begin
    tokens = sum(answer.tokens or 0 for answer in answers_of(level))
    return tokens / seconds if seconds > 0 and tokens else None


def tau_of(answers: Sequence[Answer]) -> float | None:
    """Tokens that steps committed, over steps."""
    tokens = steps = 0
    for answer in answers:
        for step in answer.steps:
            tokens += step.committed
            steps += 1
    return tokens / steps if steps else None


def by_position(
    answers: Sequence[Answer],
) -> tuple[list[float | None], list[float | None], list[int]]:
    """Shares of steps that accepted each draft; those given the drafts before; tokens a step."""
    drafted: dict[int, int] = {}
    accepted: dict[int, int] = {}
    reached: dict[int, int] = {}
    committed: dict[int, int] = {}
    for answer in answers:
        for step in answer.steps:
            committed[step.committed] = committed.get(step.committed, 0) + 1
            for slot in range(step.drafted):
                drafted[slot] = drafted.get(slot, 0) + 1
                if slot < step.accepted:
                    accepted[slot] = accepted.get(slot, 0) + 1
                if slot <= step.accepted:
                    reached[slot] = reached.get(slot, 0) + 1
    slots = range(max(drafted, default=-1) + 1)
    return (
        [accepted.get(slot, 0) / drafted[slot] for slot in slots],
        [accepted.get(slot, 0) / reached[slot] if slot in reached else None for slot in slots],
        [committed.get(num, 0) for num in range(max(committed, default=-1) + 1)],
    )


def drawn_taus(answers: Sequence[Answer], draws: int) -> list[float]:
    """Tau of redrawn sets of prompts, sorted; empty for fewer than two prompts with a step."""
    tokens: dict[str, int] = {}
    steps: dict[str, int] = {}
    for answer in answers:
        if answer.steps:
            more = sum(step.committed for step in answer.steps)
            tokens[answer.id] = tokens.get(answer.id, 0) + more
            steps[answer.id] = steps.get(answer.id, 0) + len(answer.steps)
    prompts = list(steps)
    if len(prompts) < 2:
        return []
    source = random.Random(20240229)
    taus: list[float] = []
    for _ in range(draws):
        chosen = source.choices(prompts, k=len(prompts))
        taus.append(sum(tokens[one] for one in chosen) / sum(steps[one] for one in chosen))
    return sorted(taus)


def same_interval(name: str, theirs: object, answers: Sequence[Answer], draws: int) -> Line:
    """Whether both ends lie where an end of their draws may."""
    taus = drawn_taus(answers, draws)
    ends = [taus[round(share * (len(taus) - 1))] for share in ENDS] if taus else None
    if theirs is None or ends is None:
        return same(name, theirs, ends)
    agrees = True
    for end, share in zip(cast("list[float]", theirs), ENDS, strict=True):
        error = SURE * (share * (1 - share) * (1 / draws + 1 / THEIR_DRAWS)) ** 0.5
        low = taus[max(0, int((share - error) * (len(taus) - 1)))]
        high = taus[min(len(taus) - 1, int((share + error) * (len(taus) - 1)) + 1)]
        agrees = agrees and low - CLOSE <= end <= high + CLOSE
    return Line(name, shown(theirs), shown(ends), agrees)


def same(name: str, theirs: object, ours: object) -> Line:
    agrees = theirs == ours
    if isinstance(theirs, (int, float)) and isinstance(ours, (int, float)):
        agrees = abs(theirs - ours) <= CLOSE * max(1.0, abs(ours))
    return Line(name, shown(theirs), shown(ours), agrees)


def same_list(name: str, theirs: object, ours: Sequence[float | None]) -> Line:
    listed = cast("list[object]", theirs)
    pairs = zip(listed, ours, strict=False)
    agrees = len(listed) == len(ours) and all(same("", a, b).agrees for a, b in pairs)
    return Line(name, shown(theirs), shown(list(ours)), agrees)


def answers_of(level: Object) -> list[Answer]:
    """The records without a failure."""
    return [
        Answer(
            id=str(record["id"]),
            category=str(record["category"]),
            number=cast(int, record["number"]),
            sent_s=cast(float, record["sent_s"]),
            first_s=cast("float | None", record["first_s"]),
            end_s=cast(float, record["end_s"]),
            prompt_tokens=cast("int | None", record["prompt_tokens"]),
            tokens=cast("int | None", record["completion_tokens"]),
            has_ended=record["finish_reason"] == "stop",
            steps=tuple(Step(*step) for step in cast("list[list[int]]", record["steps"] or [])),
        )
        for record in objects(level["records"])
        if record["failure"] is None
    ]


def objects(value: object) -> list[Object]:
    return cast("list[Object]", value)


def middle(values: Sequence[float]) -> float | None:
    """The median."""
    if not values:
        return None
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return "[" + ", ".join(shown(one) for one in cast("list[object]", value)) + "]"
    return str(value)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="count the figures of a results.json again")
    parser.add_argument("results", type=Path, help="a results.json of blockdraft bench")
    parser.add_argument("--all", action="store_true", help="print figures that agree too")
    args = parser.parse_args(argv)
    document = cast(Object, json.loads(cast(Path, args.results).read_text(encoding="utf-8")))
    lines = recount(document)
    for line in lines:
        if args.all or not line.agrees:
            verdict = "agrees" if line.agrees else "DIFFERS"
            sys.stdout.write(f"{verdict:8} {line.name}: {line.theirs} | {line.ours}\n")
    wrong = sum(not line.agrees for line in lines)
    sys.stdout.write(f"{len(lines)} figures counted again, {wrong} differ\n")
    if not lines:
        sys.stdout.write("no answers with their steps are in this document\n")
    return 1 if wrong or not lines else 0


if __name__ == "__main__":
    sys.exit(main())
