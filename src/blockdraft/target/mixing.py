"""How the modules that write recurrent states ("mixers") are fed after the first pass.

transformers decodes one token a pass, and some of its mixers compute something else when several
follow a filled cache: here they are made to compute, for every row, what one token at a time gives.
States are kept and put back in `recurrent.py`. `Any` is tolerated in this file because transformers
is untyped.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

TIME_STEP_LIMIT = "time_step_limit"
NO_LIMIT = (0.0, float("inf"))

CHUNK_SIZE = "chunk_size"
SHORT_CHUNK = 16
"""Rows of one chunk of a scan on the CPU. Without kernels, transformers fills every pass up to
whole chunks of 64 (delta rule) or up to 256 (Mamba-2) rows, for blocks of about 16."""


_NOWHERE = torch.empty(0, device="meta")


class MixerCall(NamedTuple):
    """A mixer and what it was called with."""

    mixer: nn.Module
    args: tuple[object, ...]
    kwargs: dict[str, object]


@dataclass(frozen=True, slots=True)
class Mixers:
    """The mixers of a model, one a recurrent layer.

    `by_rows`: they forget the state when several rows follow a filled cache (the Mamba-1 families,
    transformers 5.17 to 5.24), so they are fed row by row; the rest of the model is not.
    """

    modules: tuple[nn.Module, ...]
    by_rows: bool = False

    def feeding_rows(self) -> "Mixers":
        """These mixers, to be fed row by row."""
        return replace(self, by_rows=True)

    @contextmanager
    def unlimited(self) -> Generator[None]:
        """Inside `with`, no mixer clamps its time steps.

        Nemotron-H and Zamba 2 clamp them from below in a pass of several rows, but not in one of a
        single row, so plain generation has the clamp in the prompt only.
        """
        with ExitStack() as stack:
            for mixer in dict.fromkeys(self.modules):
                if hasattr(mixer, TIME_STEP_LIMIT):
                    stack.enter_context(_attribute(mixer, TIME_STEP_LIMIT, NO_LIMIT))
            yield

    @contextmanager
    def in_prompt(self) -> Generator[None]:
        """Inside `with`, a further piece of a prompt is computed as the prompt in one piece is.

        Time steps are clamped in pieces of a single row too, and the state is not forgotten.
        """
        with ExitStack() as stack:
            for mixer in dict.fromkeys(self.modules):
                if hasattr(mixer, TIME_STEP_LIMIT):
                    hook = cast(nn.Module, mixer.in_proj).register_forward_hook(
                        partial(_limit_steps, mixer)
                    )
                    stack.callback(hook.remove)
            stack.enter_context(self.remembering())
            yield

    @contextmanager
    def remembering(self) -> Generator[None]:
        """Inside `with`, rows that follow a filled cache do not forget its state."""
        with ExitStack() as stack:
            for mixer in dict.fromkeys(self.modules) if self.by_rows else ():
                forward = cast("Callable[..., Tensor]", mixer.forward)
                stack.enter_context(_attribute(mixer, "forward", _row_by_row(forward)))
            yield

    @contextmanager
    def continuing(self) -> Generator[None]:
        """Inside `with`, rows that follow a filled cache are computed as single tokens are."""
        with self.unlimited(), self._in_short_chunks(), self.remembering():
            yield

    @contextmanager
    def _in_short_chunks(self) -> Generator[None]:
        """Only the order of sums depends on the chunks; kernels of other devices choose theirs."""
        with ExitStack() as stack:
            for mixer in dict.fromkeys(self.modules):
                if next(mixer.parameters(), _NOWHERE).device.type != "cpu":
                    continue
                size = cast(object, getattr(mixer, CHUNK_SIZE, None))
                if isinstance(size, int) and size > SHORT_CHUNK:
                    stack.enter_context(_attribute(mixer, CHUNK_SIZE, SHORT_CHUNK))
                elif type(mixer).__name__.endswith("GatedDeltaNet"):
                    # Its forward hands keywords on to the delta rule.
                    forward = partial(mixer.forward, **{CHUNK_SIZE: SHORT_CHUNK})
                    stack.enter_context(_attribute(mixer, "forward", forward))
            yield

    @contextmanager
    def recording(self) -> Generator[list[MixerCall]]:
        """Feed rows as `continuing` does, and note every call of a mixer in the list."""
        calls: list[MixerCall] = []

        def note(mixer: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
            calls.append(MixerCall(mixer, args, kwargs))

        with ExitStack() as stack:
            stack.enter_context(self.continuing())
            for mixer in dict.fromkeys(self.modules):
                handle = mixer.register_forward_pre_hook(note, with_kwargs=True)
                stack.callback(handle.remove)
            yield calls

    def replay(self, calls: Sequence[MixerCall], num_kept: int, num_rows: int) -> None:
        """Call the mixers again with the first `num_kept` of the `num_rows` rows they were fed."""
        with torch.no_grad(), self.continuing():
            for mixer, args, kwargs in calls:
                args, kwargs = _rows_of(args, kwargs, slice(0, num_kept), num_rows)
                mixer(*args, **kwargs)


@contextmanager
def _attribute(module: nn.Module, name: str, value: object) -> Generator[None]:
    """`module.name` is `value` inside `with`, and what it was afterwards."""
    own = vars(module)
    before = own.get(name)
    existed = name in own
    own[name] = value
    try:
        yield
    finally:
        if existed:
            own[name] = before
        else:
            del own[name]


def _limit_steps(
    mixer: Any, projection: nn.Module, args: object, projected: Float[Tensor, "batch rows width"]
) -> Float[Tensor, "batch rows width"]:
    """The input of a Mamba-2 mixer whose time steps, softplus(step + bias), are within limits.

    Steps are the last columns, one a head; softplus is monotone, so its argument can be clamped.
    """
    bias: Tensor = mixer.dt_bias
    limits: tuple[float, float] = mixer.time_step_limit
    # The inverse of softplus: 0 and infinity are those of no limit.
    lowest, highest = torch.tensor(limits, dtype=torch.float64).expm1().log()
    least, most = lowest.to(bias) - bias, highest.to(bias) - bias
    others, steps = projected[..., : -len(bias)], projected[..., -len(bias) :]
    return torch.cat([others, steps.maximum(least).minimum(most).to(steps)], -1)


def _row_by_row(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def feed(*args: object, **kwargs: object) -> Tensor:
        hidden = next(value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
        num_rows = hidden.shape[1]
        outputs: list[Tensor] = []
        for row in range(num_rows):
            row_args, row_kwargs = _rows_of(args, kwargs, slice(row, row + 1), num_rows)
            outputs.append(forward(*row_args, **row_kwargs))
        return torch.cat(outputs, dim=1)

    return feed


def _rows_of(
    args: tuple[object, ...], kwargs: dict[str, object], rows: slice, num_rows: int
) -> tuple[tuple[object, ...], dict[str, object]]:
    return (
        tuple(_cut(value, rows, num_rows) for value in args),
        {name: _cut(value, rows, num_rows) for name, value in kwargs.items()},
    )


def _cut(value: object, rows: slice, num_rows: int) -> object:
    """Some rows of a tensor [batch, rows, ..] of this pass; other values as they are."""
    if isinstance(value, Tensor) and value.ndim >= 2 and value.shape[1] == num_rows:
        return value[:, rows]
    if isinstance(value, tuple):
        parts = cast("tuple[object, ...]", value)
        return tuple(_cut(part, rows, num_rows) for part in parts)
    return value
