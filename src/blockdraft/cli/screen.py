"""The demo as one watches it: two answers side by side as they are written, drafted tokens colored.

On a terminal it is live; elsewhere each answer is written once, when it is finished.
"""

import time
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from blockdraft.cli.race import Lane, Watch
from blockdraft.decoding import Commit
from blockdraft.decoding.text import DecodeText, TextStream

DRAFTED_STYLE = "bold green"
SECONDS_A_FRAME = 0.1
LEGEND = "green = drafted and accepted, plain = the target's own token"


def show_race(
    console: Console, heading: str, decode_text: DecodeText | None
) -> AbstractContextManager[Watch]:
    """Gives what is to watch one race."""
    show = live_race if console.is_terminal else written_race
    return show(console, heading, decode_text)


class LaneText:
    """An answer as styled text, one token after another."""

    def __init__(self, decode_text: DecodeText | None) -> None:
        self.text = Text()
        self.title = ""
        self._stream = None if decode_text is None else TextStream(decode_text)

    def add(self, commit: Commit) -> None:
        for idx, token_id in enumerate(commit.ids):
            style = DRAFTED_STYLE if idx < commit.num_accepted else ""
            self.text.append(self._piece(token_id), style=style)
        stats = commit.stats
        speed = stats.tokens_per_second or 0.0
        tau = "" if stats.tau is None else f", tau {stats.tau:.2f}"
        self.title = f"{stats.tokens} tokens, {speed:.1f} tok/s{tau}"

    def _piece(self, token_id: int) -> str:
        if self._stream is None:
            return f"{token_id} "
        self._stream.push(token_id)
        return self._stream.take()


@contextmanager
def live_race(
    console: Console, heading: str, decode_text: DecodeText | None
) -> Generator[Watch, None, None]:
    """Two panels that fill as the answers come; nothing runs in the background meanwhile."""
    lanes: dict[Lane, LaneText] = {"plain": LaneText(decode_text), "drafted": LaneText(decode_text)}
    shown_at = 0.0

    def frame() -> Table:
        grid = Table.grid(expand=True)
        grid.add_column(ratio=1)
        grid.add_column(ratio=1)
        names: dict[Lane, str] = {"plain": "plain", "drafted": "with drafter"}
        panels = [
            Panel(lane.text, title=f"{names[name]}: {lane.title}" if lane.title else names[name])
            for name, lane in lanes.items()
        ]
        grid.add_row(*panels)
        return grid

    console.print(Text(heading, style="bold"))
    with Live(frame(), console=console, auto_refresh=False) as live:

        def watch(name: Lane, commit: Commit) -> None:
            nonlocal shown_at
            lanes[name].add(commit)
            now = time.monotonic()
            if now - shown_at >= SECONDS_A_FRAME or commit.finish_reason is not None:
                live.update(frame(), refresh=True)
                shown_at = now

        yield watch


@contextmanager
def written_race(
    console: Console, heading: str, decode_text: DecodeText | None
) -> Generator[Watch, None, None]:
    """The heading, then the drafted answer once it is complete."""
    lane = LaneText(decode_text)

    def watch(name: Lane, commit: Commit) -> None:
        if name == "drafted":
            lane.add(commit)

    console.print(Text(heading), soft_wrap=True)
    yield watch
    console.print(lane.text, soft_wrap=True)
