"""The demo's result as a table for people and as one JSON document.

It only arranges figures; what they mean is defined in `decoding/stats.py` and `race.py`.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.table import Table

from blockdraft.cli.pair import Conditions
from blockdraft.cli.prompts import PromptRecord
from blockdraft.cli.race import Race, repeats_itself
from blockdraft.cli.render import figure, stats_json
from blockdraft.cli.tables import new_table
from blockdraft.cli.widths import Widths, widths_json
from blockdraft.decoding import AcceptanceStats, SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The race on one turn of one prompt.

    `unpadded` is plain decoding without padded passes, where the race had them.
    """

    record: PromptRecord
    turn: int
    race: Race
    unpadded: AcceptanceStats | None = None

    @property
    def name(self) -> str:
        """The prompt's id, with the turn where there are several."""
        many = len(self.record.prompts) > 1
        return f"{self.record.id} turn {self.turn}" if many else self.record.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Pooled figures of several races."""

    num_races: int
    num_identical: int
    plain: AcceptanceStats
    drafted: AcceptanceStats
    unpadded: AcceptanceStats | None

    @property
    def speedup(self) -> float | None:
        """Tokens per second with the drafter over those without."""
        return speedup(self.plain, self.drafted)

    @property
    def speedup_over_unpadded(self) -> float | None:
        """The same over plain decoding that pads nothing."""
        return None if self.unpadded is None else speedup(self.unpadded, self.drafted)


def summarize(entries: Sequence[Entry]) -> Summary:
    plain = drafted = unpadded = AcceptanceStats()
    for entry in entries:
        unpadded = unpadded.merge(entry.unpadded or AcceptanceStats())
        plain = plain.merge(entry.race.plain.stats)
        drafted = drafted.merge(entry.race.drafted.stats)
    return Summary(
        num_races=len(entries),
        num_identical=sum(entry.race.difference is None for entry in entries),
        plain=plain,
        drafted=drafted,
        unpadded=unpadded if unpadded.requests == len(entries) else None,
    )


def summaries(entries: Sequence[Entry]) -> dict[str, Summary]:
    """One for each category of several prompts, then one for all."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.record.category, []).append(entry)
    found = {
        name: summarize(group)
        for name, group in groups.items()
        if name and 1 < len(group) < len(entries)
    }
    return {**found, "all": summarize(entries)}


def speedup(plain: AcceptanceStats, drafted: AcceptanceStats) -> float | None:
    if not plain.tokens_per_second or not drafted.tokens_per_second:
        return None
    return drafted.tokens_per_second / plain.tokens_per_second


def conditions_text(conditions: Conditions) -> str:
    """What was run, on what, in three lines."""
    rows = conditions.batch_invariant
    padding = (
        f"every target pass padded to {rows} rows, so texts are equal by construction"
        if rows is not None
        else "target passes as they come, so rounding may differ between the two ways"
    )
    return (
        f"target {conditions.target}, drafter {conditions.drafter} "
        f"(blocks of {conditions.block_size}, width {conditions.width}), greedy, "
        f"{numbers_text(conditions)}, {conditions.engine} engine\n"
        f"{padding}\n"
        f"{conditions.threads} threads on {conditions.hardware}; {conditions.software}"
    )


def numbers_text(conditions: Conditions) -> str:
    """The dtype, and what the target's weights were rounded to."""
    rounded = "" if conditions.quantize is None else f", weights in {conditions.quantize}"
    return f"{conditions.dtype}{rounded}"


def entry_text(entry: Entry) -> str:
    """One line on one race."""
    plain, drafted = entry.race.plain.stats, entry.race.drafted.stats
    return (
        f"-> {drafted.tokens} tokens: plain {plain.seconds:.2f} s, drafted {drafted.seconds:.2f} s "
        f"({figure(speedup(plain, drafted))}x), tau {figure(drafted.tau)}; {verdict_text(entry)}"
    )


def verdict_text(entry: Entry) -> str:
    """ "identical: yes", or where the texts part and how close the target's choice was there."""
    difference = entry.race.difference
    if difference is None:
        return "identical: yes"
    kind = "a near-tie" if difference.is_near_tie else "NOT a near-tie"
    return (
        f"identical: no, from token {difference.position} on, where the target's top-two margin "
        f"is {difference.margin:.3g}, {kind}"
    )


def result_table(entries: Sequence[Entry]) -> Table:
    """One row a race, one a category, one for all."""
    figures = ("plain\ns", "drafted\ns", "plain\ntok/s", "drafted\ntok/s", "speed-up")
    table = new_table(
        "plain decoding and decoding with the drafter", "prompt", ("tokens", "tau", *figures)
    )
    table.add_column("identical", no_wrap=True)
    for entry in entries:
        summary, difference = summarize([entry]), entry.race.difference
        verdict = "yes" if difference is None else f"no (token {difference.position})"
        table.add_row(entry.name + _mark(entry), *_cells(summary), verdict)
    table.add_section()
    for name, summary in summaries(entries).items():
        equal = summary.num_identical == summary.num_races
        verdict = "yes" if equal else f"{summary.num_identical} of {summary.num_races}"
        table.add_row(f"{name} ({summary.num_races})", *_cells(summary), verdict)
    if any(_mark(entry) for entry in entries):
        table.caption = "* runs in circles, which flatters the drafter"
    return table


def unpadded_text(entries: Sequence[Entry]) -> str | None:
    """What padding costs plain decoding, group by group; None where nothing was padded."""
    parts = [
        f"{name}: {figure(summary.unpadded.tokens_per_second, 1)} tok/s, with the drafter (padded) "
        f"{figure(summary.speedup_over_unpadded)}x that"
        for name, summary in summaries(entries).items()
        if summary.unpadded is not None
    ]
    return f"plain decoding without padding: {'; '.join(parts)}" if parts else None


def _mark(entry: Entry) -> str:
    return " *" if repeats_itself(entry.race.drafted.token_ids) else ""


def _cells(summary: Summary) -> tuple[str, ...]:
    plain, drafted = summary.plain, summary.drafted
    return (
        str(drafted.tokens),
        figure(drafted.tau),
        figure(plain.seconds),
        figure(drafted.seconds),
        figure(plain.tokens_per_second, 1),
        figure(drafted.tokens_per_second, 1),
        f"{figure(summary.speedup)}x",
    )


def demo_json(
    conditions: Conditions,
    params: SamplingParams,
    num_repeats: int,
    entries: Sequence[Entry],
    widths: Widths,
) -> dict[str, object]:
    """Everything the table says, with the ids; `widths` are those of all drafted runs."""
    return {
        "conditions": asdict(conditions),
        "settings": {"max_new_tokens": params.max_new_tokens, "repeats": num_repeats},
        "identical": all(entry.race.difference is None for entry in entries),
        "widths": widths_json(widths),
        "prompts": [_entry_json(entry) for entry in entries],
        "totals": {name: _summary_json(summary) for name, summary in summaries(entries).items()},
    }


def _entry_json(entry: Entry) -> dict[str, object]:
    race = entry.race
    return {
        "id": entry.record.id,
        "category": entry.record.category,
        "turn": entry.turn,
        "prompt_ids": list(race.plain.prompt_ids),
        "token_ids": list(race.drafted.token_ids),
        "text": race.drafted.text,
        "plain": stats_json(race.plain.stats),
        "drafted": stats_json(race.drafted.stats),
        "plain_unpadded": None if entry.unpadded is None else stats_json(entry.unpadded),
        "speedup": speedup(race.plain.stats, race.drafted.stats),
        "identical": race.difference is None,
        "difference": None if race.difference is None else asdict(race.difference),
        "repeats_itself": repeats_itself(race.drafted.token_ids),
    }


def _summary_json(summary: Summary) -> dict[str, object]:
    return {
        "prompts": summary.num_races,
        "identical": summary.num_identical,
        "plain": stats_json(summary.plain),
        "drafted": stats_json(summary.drafted),
        "speedup": summary.speedup,
        "plain_unpadded": None if summary.unpadded is None else stats_json(summary.unpadded),
        "speedup_over_unpadded": summary.speedup_over_unpadded,
    }
