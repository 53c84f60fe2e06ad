"""Rolling back recurrent layers: a copy of their states, and a replay of the rows that stay.

A recurrent layer folds every row into one state, its convolution into a few columns; no row can be
taken out again, and transformers' own `crop` restores the convolution only (5.17 to 5.24). So the
states are copied before a pass, the inputs of the modules that change them ("mixers") are kept, and
on commit the copies are put back and the mixers alone are fed the rows that stay. Keys and values
of attention layers are no business of this file; how rows are fed is `mixing.py`'s.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers.cache_utils import LinearAttentionLayer

from blockdraft.target.mixing import MixerCall, Mixers
from blockdraft.target.rollback import KVCache

STATE_FIELDS = (
    "conv_states",
    "recurrent_states",
    "is_conv_states_initialized",
    "is_recurrent_states_initialized",
    "has_previous_state",
    "conv_kernel_size",
)
"""What a transformers recurrent cache layer remembers; dictionaries by the number of the state."""

LayerState = dict[str, dict[int, Any]]


class RecurrentStates:
    """The recurrent layers of one cache, which it lets go back to before the last pass."""

    def __init__(self, cache: KVCache, mixers: Mixers) -> None:
        self._layers = recurrent_layers(cache)
        self._mixers = mixers
        self._saved: list[LayerState] = []
        self._calls: list[MixerCall] = []

    @contextmanager
    def recording(self) -> Generator[None]:
        """Keep what the mixers are fed inside the `with` block."""
        with self._mixers.recording() as self._calls:
            yield

    def save(self) -> None:
        """Copy the states, for `put_back` and `keep_first`."""
        self._saved = [_copy(layer) for layer in self._layers]

    def put_back(self) -> None:
        """Make the states what they were at the last `save`; once, for they are not copied again.

        A recurrent state that was led back halfway can't be led back again.
        """
        saved, self._saved = self._saved, []
        assert saved, "the commit of this pass was interrupted: go on with a fresh state"
        for layer, state in zip(self._layers, saved, strict=True):
            for field, values in state.items():
                setattr(layer, field, values)

    def forget(self) -> None:
        """Let go of the copies and of what the mixers were fed."""
        self._saved, self._calls = [], []

    def keep_first(self, num_kept: int, num_rows: int) -> None:
        """Make the states as if only the first `num_kept` of the pass' `num_rows` were fed.

        The states were saved before the pass, and it was recorded.
        """
        calls, self._calls = self._calls, []
        if num_kept < num_rows:
            self.put_back()
            if num_kept > 0:
                self._mixers.replay(calls, num_kept, num_rows)
        self.forget()

    def num_bytes(self) -> int:
        """Bytes of all states, which is what a pass copies."""
        return sum(
            value.numel() * value.element_size()
            for layer in self._layers
            for field in STATE_FIELDS[:2]
            for value in cast("dict[int, Tensor | None]", getattr(layer, field)).values()
            if value is not None
        )


def recurrent_layers(cache: KVCache) -> list[LinearAttentionLayer]:
    """The layers of `cache` that have a recurrent or convolution state."""
    return [layer for layer in cache.layers if isinstance(layer, LinearAttentionLayer)]


@contextmanager
def watch_mixers(layers: nn.ModuleList, cache: KVCache) -> Generator[list[nn.Module]]:
    """Find the modules that write recurrent states, in a pass on the empty `cache` inside `with`.

    The list is filled by the pass, one module a recurrent layer that got a state: the innermost
    one that was handed the cache and after which the layer had a state.
    """
    found: list[nn.Module] = []
    waiting = recurrent_layers(cache)

    def look(
        module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], _: object
    ) -> None:
        if not any(value is cache for value in (*args, *kwargs.values())):
            return
        for layer in [layer for layer in waiting if has_state(layer)]:
            waiting.remove(layer)
            found.append(module)

    handles: list[RemovableHandle] = []
    try:
        for module in dict.fromkeys(layers.modules()):
            handles.append(module.register_forward_hook(look, with_kwargs=True))
        yield found
    finally:
        for handle in handles:
            handle.remove()


def has_state(layer: LinearAttentionLayer) -> bool:
    """Whether anything was fed to this layer."""
    states = (*layer.conv_states.values(), *layer.recurrent_states.values())
    return any(state is not None for state in states)


def _copy(layer: LinearAttentionLayer) -> LayerState:
    """Tensors are cloned: transformers and its kernels write into them in place."""
    return {
        field: {
            number: value.clone() if isinstance(value, Tensor) else value
            for number, value in cast("Mapping[int, object]", getattr(layer, field)).items()
        }
        for field in STATE_FIELDS
    }
