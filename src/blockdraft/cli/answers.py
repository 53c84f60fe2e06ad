"""Answering prompt records turn by turn on an engine, several at once if wanted.

It prints nothing: pieces, answers and failures come out as they happen, or in the records' order.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from blockdraft.api import Prompt, PromptOptions, TextTarget, encode_prompt
from blockdraft.cli.prompts import PromptRecord
from blockdraft.decoding import Commit, Completion, SamplingParams, collect
from blockdraft.engine import Engine, Failed
from blockdraft.errors import Error
from blockdraft.target import Message


@dataclass(frozen=True, slots=True)
class Piece:
    """What one step added to the answer to a turn."""

    record: PromptRecord
    turn: int
    commit: Commit


@dataclass(frozen=True, slots=True)
class Answer:
    """The finished answer to one turn."""

    record: PromptRecord
    turn: int
    completion: Completion


@dataclass(frozen=True, slots=True)
class Failure:
    """Why one turn has no answer; the turns after it are not tried."""

    record: PromptRecord
    turn: int
    error: Error


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    """How prompts become token ids, the same for all of them."""

    prompt: PromptOptions
    system: str | None = None


Event = Piece | Answer | Failure


class Conversation:
    """The turns so far, and the token ids that the next turn makes of them."""

    def __init__(self, target: TextTarget, options: AnswerOptions) -> None:
        self._target = target
        self._options = options.prompt
        self._messages: list[Message] = []
        if options.system is not None:
            self._messages.append(Message(role="system", content=options.system))

    def encode(self, turn: str | tuple[int, ...]) -> tuple[int, ...]:
        """The prompt that ends with `turn`; ready ids stand for themselves."""
        prompt: Prompt = turn
        if isinstance(turn, str) and self._messages:
            prompt = [*self._messages, Message(role="user", content=turn)]
        return encode_prompt(self._target, prompt, self._options)

    def add(self, turn: str | tuple[int, ...], answer: str) -> None:
        """Keep a turn and its answer for the turns to come."""
        if isinstance(turn, str):
            self._messages.append(Message(role="user", content=turn))
            self._messages.append(Message(role="assistant", content=answer))


@dataclass(slots=True, eq=False)
class Talk:
    """A record that is being answered: its conversation, and what its current turn has so far."""

    record: PromptRecord
    conversation: Conversation
    turn: int = 0
    prompt_ids: tuple[int, ...] = ()
    commits: list[Commit] = field(default_factory=list[Commit])

    @property
    def has_turn(self) -> bool:
        return self.turn < len(self.record.prompts)


class Answering:
    """Answers records on an engine, `width` conversations at once, each turn after the last one."""

    def __init__(
        self, engine: Engine, target: TextTarget, params: SamplingParams, options: AnswerOptions
    ) -> None:
        self._engine = engine
        self._target = target
        self._params = params
        self._options = options
        self._talks: dict[int, Talk] = {}

    def run(self, records: Iterable[PromptRecord], width: int) -> Iterator[Event]:
        """A `Piece` for each step of a turn, then its `Answer`; an error ends a record (`Failure`).

        A record that ends makes room for the next one. A consumer that stops early cancels what
        is running.
        """
        waiting = iter(records)
        try:
            while True:
                while len(self._talks) < width and (record := next(waiting, None)) is not None:
                    yield from self._submit(Talk(record, self._new_conversation()))
                if not self._talks:
                    return
                for event in self._engine.step():
                    yield from self._take(event.key, event.outcome)
        finally:
            for key in self._talks:
                self._engine.cancel(key)
            self._talks.clear()

    def _new_conversation(self) -> Conversation:
        return Conversation(self._target, self._options)

    def _submit(self, talk: Talk) -> Iterator[Event]:
        """Queue the talk's current turn."""
        try:
            talk.prompt_ids = talk.conversation.encode(talk.record.prompts[talk.turn])
            key = self._engine.submit(talk.prompt_ids, self._params)
        except Error as error:
            yield Failure(talk.record, talk.turn, error)
            return
        talk.commits = []
        self._talks[key] = talk

    def _take(self, key: int, outcome: Commit | Failed) -> Iterator[Event]:
        talk = self._talks[key]
        if isinstance(outcome, Failed):
            del self._talks[key]
            yield Failure(talk.record, talk.turn, outcome.error)
            return
        talk.commits.append(outcome)
        yield Piece(talk.record, talk.turn, outcome)
        if outcome.finish_reason is None:
            return
        del self._talks[key]
        completion = collect(talk.prompt_ids, talk.commits)
        yield Answer(talk.record, talk.turn, completion)
        talk.conversation.add(talk.record.prompts[talk.turn], completion.text)
        talk.turn += 1
        if talk.has_turn:
            yield from self._submit(talk)


class RecordOrder:
    """Holds answers and failures back until those of all earlier records are out."""

    def __init__(self, records: Sequence[PromptRecord]) -> None:
        self._waiting = deque(records)
        self._held: dict[str, list[Event]] = {}

    def take(self, event: Event) -> Iterator[Event]:
        """What can be shown now, `event` among it or not. Pieces are never held."""
        if isinstance(event, Piece):
            yield event
            return
        self._held.setdefault(event.record.id, []).append(event)
        while self._waiting:
            first = self._waiting[0]
            ready = self._held.pop(first.id, [])
            yield from ready
            if not ready or not _ends(ready[-1]):
                return
            self._waiting.popleft()

    def rest(self) -> Iterator[Event]:
        """All that is still held, for a run that ends early."""
        for record in self._waiting:
            yield from self._held.pop(record.id, [])


def _ends(event: Event) -> bool:
    """Whether nothing more comes of the event's record."""
    return isinstance(event, Failure) or event.turn == len(event.record.prompts) - 1
