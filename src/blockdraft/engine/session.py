"""`Session`: an engine as plain iterators, for callers with one thread.

Whoever asks for its next commit drives the engine for all; what the others got meanwhile waits for
them. It adds no policy.
"""

from collections import deque
from collections.abc import Generator, Iterator, Sequence

from blockdraft.decoding.completion import Commit
from blockdraft.decoding.params import SamplingParams
from blockdraft.engine.engine import Engine
from blockdraft.engine.running import Failed
from blockdraft.errors import EngineFault


class Session:
    """Requests on one engine, each an iterator of commits; any number may be open at once."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._arrived: dict[int, deque[Commit | Failed]] = {}

    def open(self, prompt_ids: Sequence[int], params: SamplingParams) -> "Answer":
        """Queue a request. Raises RequestError for one that can't be served."""
        key = self.engine.submit(prompt_ids, params)
        self._arrived[key] = deque()
        return Answer(self, key)

    def stream(
        self, prompt_ids: Sequence[int], params: SamplingParams
    ) -> Generator[Commit, None, None]:
        """The commits of one request, queued when the first one is asked for.

        Raises the request's own error. A consumer that stops early cancels the request.
        """
        yield from self.open(prompt_ids, params)

    def next(self, key: int) -> Commit:
        """The next commit of a request, after as many steps as it takes."""
        waiting = self._arrived[key]
        while not waiting:
            if not self.engine.knows(key):
                del self._arrived[key]
                raise EngineFault(
                    "the request was given up when a step was interrupted; send it again"
                )
            self.step()
        outcome = waiting.popleft()
        if isinstance(outcome, Failed):
            del self._arrived[key]
            raise outcome.error
        if outcome.finish_reason is not None:
            del self._arrived[key]
        return outcome

    def step(self) -> None:
        """One step of the engine; its events go to whom they belong."""
        for event in self.engine.step():
            arrived = self._arrived.get(event.key)
            if arrived is not None:
                arrived.append(event.outcome)

    def close(self, key: int) -> None:
        """Give up a request (nothing happens when it has ended)."""
        if self._arrived.pop(key, None) is not None:
            self.engine.cancel(key)


class Answer:
    """An iterator over the commits of a request that is already queued."""

    def __init__(self, session: Session, key: int) -> None:
        self._session = session
        self._key = key
        self._ended = False

    def __iter__(self) -> Iterator[Commit]:
        try:
            while not self._ended:
                commit = self._session.next(self._key)
                self._ended = commit.finish_reason is not None
                yield commit
        finally:
            self._session.close(self._key)
