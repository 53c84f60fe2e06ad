"""What `blockdraft tune` found, as tables and sentences for people.

It computes nothing; JSON is `tuning/document.py` and `tuning/what_if.py`.
"""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from blockdraft.cli.tables import new_table, open_console
from blockdraft.tuning.advice import advise
from blockdraft.tuning.flags import EngineFlags
from blockdraft.tuning.predict import Prediction
from blockdraft.tuning.tune import Tuned
from blockdraft.tuning.what_if import WhatIf, best_of

NONE = "-"


def stage_text(tuned: Tuned) -> str | None:
    """A line once predictions are there, before they are verified."""
    if tuned.is_complete or tuned.choice is None or tuned.tau is None:
        return None
    finalists = ", ".join(f"{one.mode}" for one in tuned.choice.finalists) or "nothing"
    return f"tau {tuned.tau:.2f} with blocks of {tuned.block_size}; worth verifying: {finalists}"


def print_tuned(tuned: Tuned, flags: Sequence[EngineFlags]) -> None:
    console = open_console(stderr=False)
    console.print(Text(f"predicted speed-up ({tuned.goal}), end to end; * best", style="bold"))
    console.print(prediction_table(tuned))
    if tuned.tau is not None:
        console.print(Text(_tau_text(tuned)), soft_wrap=True)
    if tuned.verified:
        title = f"\nmeasured beside plain decoding, {tuned.num_repeats} repeats in turn"
        console.print(Text(title, style="bold"))
        console.print(verified_table(tuned))
    advice = advise(tuned)
    if advice is not None:
        console.print(Text(advice, style="bold"))
    for one in flags:
        _print_flags(console, one)


def prediction_table(tuned: Tuned) -> Table:
    """Speed-up of every width, a column for each concurrency; the best of each is marked."""
    levels = sorted({one.concurrency for one in tuned.predictions})
    table = new_table("", "width", [f"{level} at once" for level in levels])
    table.title = None
    best = {} if tuned.choice is None else {o.concurrency: o for o in tuned.choice.by_concurrency}
    for mode in dict.fromkeys(one.mode for one in tuned.predictions):
        cells: list[str] = []
        for level in levels:
            one = next(p for p in tuned.predictions if p.mode == mode and p.concurrency == level)
            mark = " *" if one == best.get(level) else "  "
            cells.append(f"{one.gain(tuned.goal):.2f}x{mark}")
        table.add_row(str(mode), *cells)
    return table


def _tau_text(tuned: Tuned) -> str:
    low_high = tuned.interval
    interval = "" if low_high is None else f" (95%: {low_high.low:.2f} to {low_high.high:.2f})"
    return (
        f"tau {tuned.tau:.2f}{interval} with blocks of {tuned.block_size}, "
        f"{tuned.num_steps} verifications"
    )


def verified_table(tuned: Tuned) -> Table:
    headings = ("at once", "predicted", "measured", "from", "to", "error", "tok/s", "same text")
    table = new_table("", "width", headings)
    table.title = None
    for one in tuned.verified:
        gains = one.gains(tuned.goal)
        table.add_row(
            str(one.mode),
            str(one.concurrency),
            f"{one.predicted.gain(tuned.goal):.2f}x",
            f"{one.gain(tuned.goal):.2f}x",
            f"{min(gains):.2f}x",
            f"{max(gains):.2f}x",
            f"{one.error(tuned.goal):+.0%}",
            f"{one.tokens_per_second:.1f}",
            f"{one.identical} of {one.compared}",
        )
    return table


def _print_flags(console: Console, one: EngineFlags) -> None:
    console.print(Text(f"\n{one.title}", style="bold"))
    for line in (*one.before, *(one.script or "").rstrip("\n").splitlines()):
        console.print(Text(line), soft_wrap=True)
    for note in one.notes:
        console.print(Text(f"note: {note}", style="dim"), soft_wrap=True)
    if one.script is not None:
        console.print(Text(f"measure it: {one.measure}", style="dim"), soft_wrap=True)


def print_what_if(order: WhatIf, predictions: Sequence[Prediction]) -> None:
    console = open_console(stderr=False)
    console.print(Text("predicted speed-up", style="bold"))
    console.print(what_if_table(order, predictions))
    title = f"\ntau at which a width is as fast as plain decoding ({NONE}: it can't pay)"
    console.print(Text(title, style="bold"))
    console.print(break_even_table(order, predictions))
    for level, one in best_of(predictions).items():
        console.print(Text(f"{level} at once: {_best_text(one)}"), soft_wrap=True)
    console.print(Text(f"acceptance: {order.acceptance_source}", style="dim"), soft_wrap=True)
    console.print(Text(f"costs: {order.costs_source}", style="dim"), soft_wrap=True)


def what_if_table(order: WhatIf, predictions: Sequence[Prediction]) -> Table:
    headings = [f"{level} at once" for level in order.levels]
    table = new_table("", "width", ("tau", *headings))
    table.title = None
    for width in order.all_widths:
        row = [one for one in predictions if one.width == width]
        table.add_row(str(width), f"{row[0].tau:.2f}", *(f"{one.speedup:.2f}x" for one in row))
    return table


def break_even_table(order: WhatIf, predictions: Sequence[Prediction]) -> Table:
    """What tau it takes not to lose."""
    headings = [f"{level} at once" for level in order.levels]
    table = new_table("", "width", headings)
    table.title = None
    for width in order.all_widths:
        row = [one.break_even_tau for one in predictions if one.width == width]
        table.add_row(str(width), *(NONE if tau is None else f"{tau:.2f}" for tau in row))
    return table


def _best_text(one: Prediction) -> str:
    speed = f"{one.tokens_per_second:.1f} tok/s"
    if one.width == 1:
        return f"plain decoding, {speed}; no width gains"
    return f"width {one.width}, {one.speedup:.2f}x, {speed}"
