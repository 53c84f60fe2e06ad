"""What llama.cpp should count for an answer that this engine gave, step by step.

Two rules of it differ by design, and both are spelled out here:

- It always drafts a whole block and then drops what the length limit has no room for; here the
  block of such a step is narrower from the start. A block sees itself, so its drafts may differ:
  `FullWidth` drafts llama.cpp's way.
- An end token that was drafted and accepted counts as the target's own token there, unless it is
  the last one of the block (`common_sampler_sample_and_accept_n` stops at it); here it is an
  accepted draft like any other.
"""

from collections.abc import Iterable, Sequence

from jaxtyping import Float
from llamacpp_process import LlamaStep
from torch import Tensor

from blockdraft.decoding import Commit
from blockdraft.decoding.interfaces import Drafter, DraftLogits, DraftState


class FullWidth:
    """A drafter that drafts whole blocks, of which the decoder gets as much as it asked for."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter

    @property
    def block_size(self) -> int:
        return self._drafter.block_size

    @property
    def taps(self) -> tuple[int, ...]:
        return self._drafter.taps

    def open(self) -> "FullWidthState":
        return FullWidthState(self._drafter.open(), self.block_size)


class FullWidthState:
    def __init__(self, state: DraftState, block_size: int) -> None:
        self._state = state
        self._block_size = block_size

    @property
    def context_len(self) -> int:
        return self._state.context_len

    def extend(self, ids: Sequence[int], features: Float[Tensor, "new feature"] | None) -> None:
        self._state.extend(ids, features)

    def propose(self, anchor: int, width: int) -> DraftLogits:
        draft = self._state.propose(anchor, self._block_size)
        assert isinstance(draft, DraftLogits)
        return DraftLogits(draft.logits[: width - 1])


def llamacpp_steps(
    commits: Sequence[Commit], block_size: int, max_new_tokens: int
) -> tuple[LlamaStep, ...]:
    """The steps with a draft, as llama.cpp counts them."""
    steps: list[LlamaStep] = []
    emitted = num_before = 0
    for commit in commits:
        room = min(block_size, max_new_tokens - emitted) - 1
        num_drafted = sum(commit.stats.drafted) - num_before
        num_before += num_drafted
        emitted += len(commit.ids)
        own = 0
        if commit.finish_reason == "stop" and num_drafted:
            # Drafts behind an end token that would have been accepted count nowhere here.
            num_drafted = room
            ends_with_draft = commit.num_accepted == len(commit.ids)
            own = int(ends_with_draft and commit.num_accepted < room)
        if num_drafted:
            steps.append(LlamaStep(num_drafted=num_drafted, num_accepted=commit.num_accepted - own))
    return tuple(steps)


def by_position(steps: Iterable[LlamaStep], num_positions: int) -> tuple[int, ...]:
    """How many steps accepted draft 0, 1, ..."""
    accepted = [step.num_accepted for step in steps]
    return tuple(sum(n > position for n in accepted) for position in range(num_positions))
