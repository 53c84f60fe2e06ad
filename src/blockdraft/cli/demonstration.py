"""What `blockdraft demo` does: races on a few prompts, watched, then the result.

Timing is in `race.py`, the display in `screen.py`, tables and JSON in `demo_report.py`.
"""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from blockdraft.api import PromptOptions
from blockdraft.cli.answers import AnswerOptions, Conversation
from blockdraft.cli.comparison import NEAR_TIE
from blockdraft.cli.console import emit_json
from blockdraft.cli.demo_report import (
    Entry,
    conditions_text,
    demo_json,
    entry_text,
    result_table,
    unpadded_text,
)
from blockdraft.cli.engines import Lanes, engine_config, open_lanes, open_plain
from blockdraft.cli.hardware import busy_text
from blockdraft.cli.pair import Conditions, Pair, load_chosen_target, load_pair
from blockdraft.cli.prompts import PromptRecord, builtin_prompts, read_prompt_file
from blockdraft.cli.race import run_lane, run_race, time_plain
from blockdraft.cli.screen import LEGEND, show_race
from blockdraft.cli.tables import open_console
from blockdraft.cli.widths import Widths, widths_since, widths_text
from blockdraft.decoding import NoDrafter, SamplingParams
from blockdraft.engine import Session, WidthMode
from blockdraft.errors import ConfigError

WARM_UP_TOKENS = 12


def demonstrate(args: Namespace) -> int:
    """Run the command; 1 when an answer differs and the target's margin does not explain it."""
    file: str | None = args.prompts
    if args.drafter == "none":
        raise ConfigError("--drafter none is plain decoding: nothing to compare; give a drafter")
    prompts = builtin_prompts().records if file is None else read_prompt_file(Path(file))
    records = prompts[: args.limit]
    params = SamplingParams(max_new_tokens=args.max_new_tokens)
    busy = busy_text()
    pair = load_pair(args)
    watched = open_console(stderr=True)
    watched.print(Text(conditions_text(pair.conditions)))
    if busy is not None:
        watched.print(Text(busy), style="bold yellow")
    watched.print(Text(LEGEND), style="dim")
    lanes = open_lanes(pair, engine_config(args, pair.width))
    warm_up(pair, (lanes.plain, lanes.drafted), records[0], params)
    before = lanes.drafted.engine.stats().widths
    entries = [
        entry
        for record in records
        for entry in race_record(pair, lanes, record, params, args.repeats, watched)
    ]
    widths = widths_since(before, lanes.drafted.engine.stats().widths)
    conditions = pair.conditions
    if conditions.batch_invariant is not None:
        del pair, lanes  # so that no two copies of the target need room at once
        entries = time_unpadded(args, conditions, entries, params)
    if args.json:
        emit_json(demo_json(conditions, params, args.repeats, entries, widths), indent=2)
    else:
        print_result(conditions, entries, widths)
    differences = [entry.race.difference for entry in entries if entry.race.difference is not None]
    return 0 if all(difference.is_near_tie for difference in differences) else 1


def print_result(conditions: Conditions, entries: Sequence[Entry], widths: Widths) -> None:
    printed = open_console(stderr=False)
    printed.print(result_table(entries))
    printed.print(Text(widths_text(widths)))
    unpadded = unpadded_text(entries)
    if unpadded is not None:
        printed.print(Text(unpadded))
    printed.print(Text(conditions_text(conditions)))


def time_unpadded(
    args: Namespace, conditions: Conditions, entries: Sequence[Entry], params: SamplingParams
) -> list[Entry]:
    """Plain decoding again on a target that pads nothing: a gain over padded passes flatters.

    It comes after the races, not between them, since it needs the target loaded differently.
    """
    target = load_chosen_target(args, None, conditions.dtype)
    width = WidthMode("off")
    pair = Pair(target, NoDrafter(), width, conditions)
    session = open_plain(pair, engine_config(args, width))
    warm_up(pair, (session,), entries[0].record, params)
    timed: list[Entry] = []
    for entry in entries:
        plain = time_plain(session, entry.race.plain.prompt_ids, params, args.repeats)
        timed.append(replace(entry, unpadded=plain.stats))
    return timed


def warm_up(
    pair: Pair, sessions: Sequence[Session], record: PromptRecord, params: SamplingParams
) -> None:
    """Let every lane run once, so that first calls of kernels are in nobody's time."""
    short = replace(params, max_new_tokens=min(WARM_UP_TOKENS, params.max_new_tokens))
    prompt_ids = Conversation(pair.target, plain_options()).encode(record.prompts[0])
    for session in sessions:
        run_lane(session, prompt_ids, short)


def race_record(
    pair: Pair,
    lanes: Lanes,
    record: PromptRecord,
    params: SamplingParams,
    num_repeats: int,
    watched: Console,
) -> list[Entry]:
    """A race for each turn; plain decoding's answers are what later turns follow on."""
    codec = pair.target.text
    conversation = Conversation(pair.target, plain_options())
    entries: list[Entry] = []
    for turn_idx, turn in enumerate(record.prompts):
        heading = f"\n{record.id}: {turn}"
        with show_race(watched, heading, None if codec is None else codec.decode) as watch:
            race = run_race(
                pair,
                lanes,
                conversation.encode(turn),
                params,
                num_repeats=num_repeats,
                watch=watch,
                epsilon=NEAR_TIE[pair.conditions.dtype],
            )
        entries.append(Entry(record=record, turn=turn_idx, race=race))
        watched.print(Text(entry_text(entries[-1]), style="bold"))
        conversation.add(turn, race.plain.text)
    return entries


def plain_options() -> AnswerOptions:
    return AnswerOptions(prompt=PromptOptions())
