"""`StepClock`: where the time of an engine's steps goes, seen through the engine's observer.

It reads no clock itself; whoever drives the engine tells it how long a step took.
"""

from blockdraft.bench.levels import StepTime
from blockdraft.engine.width import StepOutcome


class StepClock:
    """Adds up draft, verification and the rest over the steps that decoded."""

    def __init__(self) -> None:
        self._outcome: StepOutcome | None = None
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self.num_failed_drafts = 0
        self._steps = 0
        self._draft = self._verify = self._other = 0.0

    def observe(self, outcome: StepOutcome) -> None:
        """For `build_engine`: what the step that is just ending did."""
        self._outcome = outcome

    def end_step(self, seconds: float) -> None:
        """The step is over and took so long; one that decoded nothing counts nowhere."""
        outcome, self._outcome = self._outcome, None
        if outcome is None:
            return
        draft = (outcome.draft_seconds or 0.0) + outcome.catch_up_seconds
        verify = outcome.verify_seconds or 0.0
        self._steps += 1
        self._draft += draft
        self._verify += verify
        self._other += max(0.0, seconds - draft - verify)
        self.num_failed_drafts += outcome.drafter_failed

    @property
    def time(self) -> StepTime | None:
        """None before the first step."""
        if not self._steps:
            return None
        return StepTime(self._steps, self._draft, self._verify, self._other)
