"""`InProcessGenerator`: answers from the engine in this process, many at once.

It knows nothing of conversations or files.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from blockdraft.data.answer_requests import (
    Generated,
    NextRequest,
    NotGenerated,
    Outcome,
    Sampling,
    TurnRequest,
)
from blockdraft.decoding import Commit, SamplingParams, collect
from blockdraft.engine import Engine, Failed
from blockdraft.errors import Error


@dataclass(frozen=True, slots=True)
class _Running:
    request: TurnRequest
    commits: list[Commit] = field(default_factory=list[Commit])


class InProcessGenerator:
    """Keeps an engine's slots filled, and its queue only slightly fuller than that.

    `settings` are what the answers depend on (model, dtype, ...), `notes` what else is worth
    recording.
    """

    def __init__(
        self,
        engine: Engine,
        slots: int,
        settings: dict[str, object],
        notes: dict[str, object] | None = None,
    ) -> None:
        self._engine = engine
        self._most_pending = slots + max(1, slots // 8)
        self._settings = settings
        self._notes = notes or {}

    def describe(self) -> dict[str, object]:
        return self._settings

    def notes(self) -> dict[str, object]:
        return {"prompt_ids": "fed", "answer_ids": "generated", **self._notes}

    def answer(self, next_request: NextRequest) -> Iterator[Outcome]:
        """See `AnswerSource.answer`."""
        pending: dict[int, _Running] = {}
        try:
            while True:
                while len(pending) < self._most_pending and (request := next_request()) is not None:
                    try:
                        key = self._engine.submit(request.prompt_ids, _params(request.sampling))
                    except Error as error:
                        yield NotGenerated(request, str(error))
                        continue
                    pending[key] = _Running(request)
                if not pending:
                    return
                for event in self._engine.step():
                    outcome = _take(pending[event.key], event.outcome)
                    if outcome is not None:
                        del pending[event.key]
                        yield outcome
        finally:
            for key in pending:
                self._engine.cancel(key)


def _take(running: _Running, outcome: Commit | Failed) -> Outcome | None:
    request = running.request
    if isinstance(outcome, Failed):
        return NotGenerated(request, str(outcome.error))
    running.commits.append(outcome)
    if outcome.finish_reason is None:
        return None
    completion = collect(request.prompt_ids, running.commits)
    ending = "stop" if completion.finish_reason == "stop" else "length"
    return Generated(request, request.prompt_ids, completion.token_ids, ending)


def _params(sampling: Sampling) -> SamplingParams:
    greedy = sampling.temperature == 0
    return SamplingParams(
        max_new_tokens=sampling.max_new_tokens,
        temperature=sampling.temperature,
        top_p=1.0 if greedy else sampling.top_p,
        seed=None if greedy else sampling.seed,
        stop_ids=sampling.stop_ids,
    )
