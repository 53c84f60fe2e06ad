"""What is asked of a target, one assistant turn at a time, and what it may say to it.

The seam between deciding what to ask (`regenerate.py`, `self_prompt.py`) and who answers: the
engine in this process (`in_process.py`) or a server (`endpoint.py`).
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from blockdraft.data.answer_row import AnswerEnd
from blockdraft.target import Message

NUM_SEEDS = 2**31
"""Seeds stay below: every server takes those."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How one answer is drawn; `temperature` 0 is greedy, and the rest means nothing then."""

    max_new_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    stop_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """One answer that is wanted. `messages` None: the prompt is `raw_text` as it stands."""

    key: tuple[str, int]
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    messages: Sequence[Message] | None = None
    raw_text: str = ""
    template_args: Mapping[str, object] = field(default_factory=dict[str, object])


class Generated(NamedTuple):
    """An answer; `prompt_ids` are those that were fed, whatever was asked."""

    request: TurnRequest
    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]
    finish_reason: AnswerEnd


class NotGenerated(NamedTuple):
    """Why a request has no answer."""

    request: TurnRequest
    reason: str


Outcome = Generated | NotGenerated

NextRequest = Callable[[], TurnRequest | None]
"""The next request; None when there is none now (an answer that comes may lead to more)."""


class AnswerSource(Protocol):
    """Who answers."""

    def answer(self, next_request: NextRequest) -> Iterator[Outcome]:
        """Outcomes as they come, until nothing runs and there is no next request.

        Requests are taken only as they can be worked on. What runs is dropped when the consumer
        stops.
        """
        ...

    def describe(self) -> dict[str, object]:
        """Settings that the answers depend on."""
        ...

    def notes(self) -> dict[str, object]:
        """What the manifest may tell besides: nothing that a continued run has to repeat."""
        ...


def derived_number(*parts: object) -> int:
    """A number of 64 bits that depends on `parts` alone: not on order, time or process."""
    text = "\0".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
