"""`Ema`: an exponential moving average of a model's parameters, to evaluate and to ship.

It never trains; the optimizers see the model's own parameters only.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from blockdraft.errors import CheckpointError, ConfigError
from blockdraft.training.ranks.sharded import copy_whole, locals_of

_UPDATES = "updates"


class Ema:
    """Average of the trainable parameters of `model`, which has to be parallelized already.

    After update t (from 1) the average keeps min(`decay`, (1 + t) / (10 + t)) of itself, so that
    early averages are not full of the initial values. Raises ConfigError for a decay out of range.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        if not 0 < decay < 1:
            raise ConfigError(f"ema decay is {decay}, expected above 0 and below 1")
        self._decay = decay
        self._parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self._averages = {n: p.detach().clone() for n, p in self._parameters.items()}
        self._updates = torch.zeros((), dtype=torch.int64)

    @torch.no_grad()
    def update(self) -> None:
        """Take in the parameters as they are now; once after every optimizer step."""
        self._updates += 1
        count = int(self._updates)
        keep = min(self._decay, (1 + count) / (10 + count))
        averages, parameters = self._tensors()
        for average, parameter in zip(averages, parameters, strict=True):
            average.lerp_(parameter, 1 - keep)

    @contextmanager
    def swapped_in(self) -> Generator[None]:
        """Inside, the model has the averages as its parameters; afterwards its own, bit for bit."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def state_dict(self) -> dict[str, Tensor]:
        """The averages under the parameters' names, and the number of updates."""
        return {_UPDATES: self._updates, **self._averages}

    def load_state_dict(self, whole_tensors: Mapping[str, Tensor]) -> None:
        """Take over the state of `state_dict`, given as whole tensors also when sharded here.

        Raises CheckpointError when names or shapes differ.
        """
        state = self.state_dict()
        for name in sorted(state.keys() | whole_tensors.keys()):
            shapes = [list(d[name].shape) if name in d else None for d in (whole_tensors, state)]
            if shapes[0] != shapes[1]:
                raise CheckpointError(
                    f"the averaged {name} is {shapes[0]}, expected {shapes[1]}; resume with the"
                    " settings that the run was started with"
                )
        for name, tensor in state.items():
            copy_whole(whole_tensors[name], into=tensor)

    def _tensors(self) -> tuple[list[Tensor], list[Tensor]]:
        """This rank's averages and parameters, in the same order."""
        return locals_of(self._averages.values()), locals_of(self._parameters.values())

    @torch.no_grad()
    def _swap(self) -> None:
        for average, parameter in zip(*self._tensors(), strict=True):
            own = parameter.clone()
            parameter.copy_(average)
            average.copy_(own)
