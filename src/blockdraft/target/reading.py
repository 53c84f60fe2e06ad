"""What a target says about a whole document, token by token: for those who learn from it.

The hidden states only; nothing is decoded here, and no gradient is kept.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor, nn

from blockdraft.errors import UnsupportedTarget


class Readout(NamedTuple):
    """`taps`: outputs of the tapped layers, concatenated in tap order. `final`: inputs of the LM
    head, after the last norm; None unless asked for. One row a token.
    """

    taps: Float[Tensor, "tokens feature"]
    final: Float[Tensor, "tokens hidden"] | None


@runtime_checkable
class ReadableTarget(Protocol):
    """A target that can also tell what its LM head is given."""

    def read(self, ids: Int[Tensor, " tokens"], taps: Sequence[int]) -> Readout:
        """Both kinds of states of one document, `final` included."""
        ...


class LastHidden:
    """Keeps what a model's decoder returns for its head, pass by pass."""

    def __init__(self) -> None:
        self._states: Tensor | None = None

    def store(self, output: object) -> None:
        """Take the output of the base model: an object with `last_hidden_state`, or a tuple."""
        states: object = getattr(output, "last_hidden_state", None)
        if states is None and isinstance(output, tuple):
            states = output[0]  # pyright: ignore[reportUnknownVariableType] # any tuple
        self._states = states if isinstance(states, Tensor) and states.ndim == 3 else None

    def states(self, name: str) -> Float[Tensor, "tokens hidden"]:
        """Those of batch row 0; UnsupportedTarget when the model returned none."""
        if self._states is None:
            raise UnsupportedTarget(
                f"{name} does not return the states its head is given: soft labels can't be made, "
                "train with hard labels"
            )
        return self._states[0]


@contextmanager
def last_hidden(base_model: nn.Module) -> Generator[LastHidden]:
    """Keep the last hidden states of every forward pass of `base_model` inside the `with` block."""
    kept = LastHidden()

    def store(module: nn.Module, args: object, output: object) -> None:
        kept.store(output)

    handle = base_model.register_forward_hook(store)
    try:
        yield kept
    finally:
        handle.remove()
