"""What speculation and its probes may lose: accounts in seconds that earn a share of running time.

They know nothing of widths; `width.py` says what was lost or won.
"""


class Account:
    """Earns `share` of every second that passes, and pays for losses.

    The balance never exceeds what `cap` said last, so that old gains don't pay for long losses.
    Total losses therefore stay below the share of running time plus the first balance plus gains.
    """

    def __init__(self, share: float, balance: float = 0.0) -> None:
        self._share = share
        self.balance = balance

    def earn(self, seconds: float) -> None:
        self.balance += self._share * seconds

    def pay(self, seconds: float) -> None:
        """Take `seconds` out; a negative loss is a gain."""
        self.balance -= seconds

    def cap(self, highest: float) -> None:
        self.balance = min(self.balance, highest)


class Backoff:
    """Steps to wait between probes: doubled by each that did not pay, 0 after one that did."""

    LONGEST = 64
    FIRST = 4

    def __init__(self) -> None:
        self._wait = 0
        self._since = 0

    @property
    def due(self) -> bool:
        return self._since >= self._wait

    def step(self) -> None:
        self._since += 1

    def probed(self, *, paid: bool) -> None:
        self._since = 0
        self._wait = 0 if paid else min(max(2 * self._wait, self.FIRST), self.LONGEST)


class PlainSchedule:
    """When a plain step is due, only to see what it costs while every step speculates.

    Rarer each time (a plain step in 256 costs at most 0.4%), soon again after a surprise.
    """

    RAREST = 256
    FIRST = 8
    SURPRISE = 1.3

    def __init__(self) -> None:
        self._wait = self.FIRST
        self._since = 0

    @property
    def due(self) -> bool:
        return self._since >= self._wait

    def drafted(self) -> None:
        self._since += 1

    def plain(self, measured_to_believed: float | None) -> None:
        """A plain step was made; the ratio is None when it was not timed."""
        if self._since and measured_to_believed is not None:
            calm = 1 / self.SURPRISE < measured_to_believed < self.SURPRISE
            self._wait = min(2 * self._wait, self.RAREST) if calm else self.FIRST // 2
        self._since = 0
