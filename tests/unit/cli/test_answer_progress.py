"""Speed and time left of a run, and SIGTERM as an interrupt."""

import os
import signal

import pytest

from blockdraft.cli.answer_progress import Pace, Standing, terminate_as_interrupt, watch


class Clock:
    """Seconds that the test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_was_done_before_tells_nothing_of_the_speed() -> None:
    clock = Clock()
    pace = Pace("turns", clock)
    clock.now += 50  # loading
    assert pace.text(Standing(1000, 4000, 0)) == "1,000 of 4,000 turns"
    clock.now += 10
    assert pace.text(Standing(1010, 4000, 2500)) == "1,010 of 4,000 turns, 250 tok/s, 0:49:50 left"


def test_a_line_a_minute_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with watch("turns", clock) as show:
        for done in range(5):
            show(Standing(done, 10, done * 100))
            clock.now += 25
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" ")[0] for line in lines] == ["0", "3"]


def test_sigterm_is_an_interrupt() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), terminate_as_interrupt():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before
