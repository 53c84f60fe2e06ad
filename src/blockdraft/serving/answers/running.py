"""`Answer`: the engine's requests behind one HTTP request, started together and read as deltas.

It knows nothing of shapes; it does know that all of its requests must end with it.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

from blockdraft.decoding import Commit, SamplingParams
from blockdraft.serving.answers.choice import ChoiceReader, Delta
from blockdraft.serving.answers.options import ReadingOptions
from blockdraft.serving.answers.prompts import PromptTokens
from blockdraft.serving.answers.settings import derived_seed
from blockdraft.serving.answers.usage import Asked
from blockdraft.serving.service import Runner, Ticket


@dataclass(frozen=True, slots=True)
class PlannedPrompt:
    """One prompt and how its answers are read."""

    prompt: PromptTokens
    reading: ReadingOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is asked of the engine: every prompt `n` times."""

    prompts: tuple[PlannedPrompt, ...]
    params: SamplingParams
    n: int


class Answer:
    """Open tickets and their readers; choice j * n + i is choice i of prompt j."""

    def __init__(self, tickets: Sequence[Ticket], plan: Plan) -> None:
        self._tickets = tuple(tickets)
        self.readers = tuple(
            ChoiceReader(planned.reading, place * plan.n + choice)
            for place, planned in enumerate(plan.prompts)
            for choice in range(plan.n)
        )
        self.asked = tuple(
            Asked(
                len(planned.prompt.ids),
                self.readers[place * plan.n : (place + 1) * plan.n],
            )
            for place, planned in enumerate(plan.prompts)
        )

    def cancel(self) -> None:
        """Free what is still running; harmless afterwards."""
        for ticket in self._tickets:
            ticket.cancel()

    async def deltas(self) -> AsyncIterator[Delta]:
        """All deltas as they come, each choice's in order. Raises the first request's error."""
        if len(self._tickets) == 1:
            async for commit in self._tickets[0]:
                yield self._read(0, commit)
            return
        async for index, commit in _merged(self._tickets):
            yield self._read(index, commit)

    def _read(self, index: int, commit: Commit) -> Delta:
        reader, ticket = self.readers[index], self._tickets[index]
        reader.num_cached = ticket.num_cached
        reader.queue_seconds = ticket.queue_seconds
        return reader.read(commit)


async def start(runner: Runner, plan: Plan, request_id: str) -> Answer:
    """Hand all requests in; when one is refused, none is left running and its error is raised."""

    async def submit(index: int) -> Ticket:
        planned, choice = plan.prompts[index // plan.n], index % plan.n
        ticket = await runner.submit(
            planned.prompt.ids,
            replace(plan.params, seed=derived_seed(plan.params.seed, choice)),
            planned.reading.decode,
            request_id=f"{request_id}-{index}",
        )
        accepted[index] = ticket
        return ticket

    accepted: dict[int, Ticket] = {}
    # All at once: the engine takes them in one step, and none waits for the one before it.
    tasks = [asyncio.create_task(submit(i)) for i in range(len(plan.prompts) * plan.n)]
    try:
        return Answer(await asyncio.gather(*tasks), plan)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for ticket in accepted.values():
            ticket.cancel()
        raise


async def _merged(tickets: Sequence[Ticket]) -> AsyncIterator[tuple[int, Commit]]:
    """The commits of all tickets in order of arrival; what waits is bounded by their lengths."""
    queue: asyncio.Queue[tuple[int, Commit | Exception | None]] = asyncio.Queue()

    async def pour(index: int, ticket: Ticket) -> None:
        try:
            async for commit in ticket:
                queue.put_nowait((index, commit))
        except Exception as error:  # noqa: BLE001 - raised again by the reader below
            queue.put_nowait((index, error))
        else:
            queue.put_nowait((index, None))

    tasks = [asyncio.create_task(pour(index, ticket)) for index, ticket in enumerate(tickets)]
    try:
        num_open = len(tasks)
        while num_open:
            index, item = await queue.get()
            if item is None:
                num_open -= 1
            elif isinstance(item, Exception):
                raise item
            else:
                yield index, item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
