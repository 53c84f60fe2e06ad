"""Answering prompt records turn by turn, several at once if wanted.

It prints nothing: pieces, answers and failures come out as they happen.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from blockdraft.api import Prompt, PromptOptions, TextTarget, encode_prompt, stream
from blockdraft.cli.pair import Pair
from blockdraft.cli.prompts import PromptRecord
from blockdraft.decoding import Commit, Completion, SamplingParams, collect
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


def answer_record(
    pair: Pair, record: PromptRecord, params: SamplingParams, options: AnswerOptions
) -> Iterator[Event]:
    """Answer each turn in order, earlier answers in the conversation.

    Yields a `Piece` a step, then the turn's `Answer`. An error of ours ends it with a `Failure`.
    """
    conversation = Conversation(pair.target, options)
    for turn_idx, turn in enumerate(record.prompts):
        commits: list[Commit] = []
        try:
            prompt_ids = conversation.encode(turn)
            for commit in stream(pair.target, pair.drafter, prompt_ids, params):
                commits.append(commit)
                yield Piece(record, turn_idx, commit)
        except Error as error:
            yield Failure(record, turn_idx, error)
            return
        completion = collect(prompt_ids, commits)
        yield Answer(record, turn_idx, completion)
        conversation.add(turn, completion.text)


def interleave(jobs: Iterable[Iterator[Event]], width: int) -> Iterator[Event]:
    """Events of at most `width` jobs at a time, one of each in turn, in a fixed order.

    A job that ends makes room for the next one, which starts at the end of the line.
    """
    waiting = iter(jobs)
    running: list[Iterator[Event]] = []
    while True:
        while len(running) < width and (job := next(waiting, None)) is not None:
            running.append(job)
        if not running:
            return
        for job in tuple(running):
            event = next(job, None)
            if event is None:
                running.remove(job)
            else:
                yield event
