"""Counts a Hugging Face model's forward passes while one answer is made.

It measures no time and changes no output.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Protocol


class RemovableHook(Protocol):
    def remove(self) -> None: ...


class HookedModule(Protocol):
    def register_forward_pre_hook(
        self, hook: Callable[[object, object], None]
    ) -> RemovableHook: ...


class PassCount:
    """Forward passes so far."""

    def __init__(self) -> None:
        self.passes = 0

    def count(self, module: object, inputs: object) -> None:
        self.passes += 1


@contextmanager
def counted_passes(model: HookedModule) -> Generator[PassCount, None, None]:
    """Within the block, every forward pass of `model` is counted; the hook is always removed."""
    counter = PassCount()
    hook = model.register_forward_pre_hook(counter.count)
    try:
        yield counter
    finally:
        hook.remove()
