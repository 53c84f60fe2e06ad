"""The convolutions of DFlash 2 on flat rows of several blocks, all of one width.

The arithmetic is `drafter/convolution.py`'s; here the projection is a `Linear`, and what stands
between two convolutions takes its residual only where there are none.
"""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from blockdraft.drafter.convolution import BlockConvolution, convolve, split_kernels
from blockdraft.native.linear import Linear, dense_linear

Sublayer = Callable[
    [Float[Tensor, "rows hidden"], Float[Tensor, "rows hidden"] | None],
    Float[Tensor, "rows hidden"],
]
"""(normed rows, residual or None) -> output, the residual added."""


class PackedConvolution:
    """The weights of one `BlockConvolution`."""

    def __init__(self, convolution: BlockConvolution) -> None:
        self.projection: Linear = dense_linear(convolution.kernel_projection.weight.detach(), None)
        self._base = convolution.base_kernel.detach()

    def around(
        self, normed: Float[Tensor, "rows hidden"], width: int, sublayer: Sublayer
    ) -> Float[Tensor, "rows hidden"]:
        """As `BlockConvolution.around`; rows are blocks of `width`, one after the other."""
        blocks = normed.view(-1, width, normed.shape[-1])
        kernels = self.projection(normed).view(*blocks.shape[:2], -1)
        before, after = split_kernels(kernels, self._base.shape[1])
        inner = sublayer(convolve(blocks, self._base[0], before).flatten(0, 1), None)
        return convolve(inner.view(blocks.shape), self._base[1], after).flatten(0, 1)


def with_residual(
    convolution: PackedConvolution | None,
    normed: Float[Tensor, "rows hidden"],
    hidden: Float[Tensor, "rows hidden"],
    width: int,
    sublayer: Sublayer,
) -> Float[Tensor, "rows hidden"]:
    """`hidden` plus the sublayer's output for `normed`, convolved where there are convolutions."""
    if convolution is None:
        return sublayer(normed, hidden)
    return hidden + convolution.around(normed, width, sublayer)
