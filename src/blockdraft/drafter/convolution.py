"""The grouped dynamic convolutions of DFlash 2, around a layer's attention and its feed-forward.

They run along a block's own rows, never over the context; the sublayer between them is given.
The formula is in docs/algorithm.md, "DFlash 2".

Shape legend: batch, width = block rows, taps = kernel size, groups = hidden / group size.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from blockdraft.drafter.config import DFlash2Config


def convolve(
    states: Float[Tensor, "batch width hidden"],
    base: Float[Tensor, "taps hidden"],
    dynamic: Float[Tensor, "batch width taps groups"],
) -> Float[Tensor, "batch width hidden"]:
    """sum over taps of (base[tap, c] + dynamic[t, tap, group of c]) * states[t - tap, c].

    Zeros stand before a block's first row. A group is a run of neighboring channels.
    """
    batch, width, hidden = states.shape
    taps, groups = dynamic.shape[2:]
    grouped = states.view(batch, width, groups, hidden // groups)
    kernels = base.to(states.dtype).view(taps, groups, -1) + dynamic[..., None]
    mixed = kernels[:, :, 0] * grouped
    for tap in range(1, min(taps, width)):
        earlier = functional.pad(grouped[:, :-tap], (0, 0, 0, 0, tap, 0))
        mixed = mixed + kernels[:, :, tap] * earlier
    return mixed.reshape(states.shape)


class BlockConvolution(nn.Module):
    """One convolution before a sublayer and one after it; the identity when made.

    The dynamic parts of both kernels are one projection of the sublayer's normed input.
    """

    def __init__(self, hidden_size: int, config: DFlash2Config) -> None:
        super().__init__()
        taps, groups = config.conv_kernel_size, hidden_size // config.conv_group_size
        self.base_kernel = nn.Parameter(torch.zeros(2, taps, hidden_size))
        self.kernel_projection = nn.Linear(hidden_size, 2 * taps * groups, bias=False)
        with torch.no_grad():
            self.base_kernel[:, 0] = 1
            self.kernel_projection.weight.zero_()

    def around(
        self,
        states: Float[Tensor, "batch width hidden"],
        sublayer: Callable[[Tensor], Tensor],
    ) -> Float[Tensor, "batch width hidden"]:
        """`sublayer` of the convolved `states`, convolved."""
        before, after = split_kernels(self.kernel_projection(states), self.base_kernel.shape[1])
        inner = sublayer(convolve(states, self.base_kernel[0], before))
        return convolve(inner, self.base_kernel[1], after)


def split_kernels(
    projected: Float[Tensor, "batch width kernels"], taps: int
) -> tuple[
    Float[Tensor, "batch width taps groups"],
    Float[Tensor, "batch width taps groups"],
]:
    """The dynamic kernels of the two sides, from their joint projection."""
    before, after = projected.view(*projected.shape[:2], 2, taps, -1).unbind(2)
    return before, after
