"""A SIGTERM that nothing else handles ends in order."""

import signal

import pytest

from blockdraft.cli.signals import ended_by_sigterm


def test_a_sigterm_ends_in_order_and_its_handler_with_the_block() -> None:
    before = signal.getsignal(signal.SIGTERM)
    closed: list[str] = []
    with pytest.raises(SystemExit) as left, ended_by_sigterm():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            closed.append("file")
    assert left.value.code == 143 and closed == ["file"]
    assert signal.getsignal(signal.SIGTERM) == before
