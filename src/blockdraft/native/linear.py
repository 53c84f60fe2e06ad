"""`Linear`: one matrix product with several kernels that read the same weight values.

Which kernel serves how many rows is decided by a `KernelPlan` (`tuning.py` measures one); the
layouts of quantized weights are in `quantized.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

PLAIN = "plain"
"""`torch.nn.functional.linear` on the weight as it is."""

PACKED = "packed"
"""oneDNN with the weight reordered once into its own blocked layout (CPU only)."""

Kernel = Callable[[Float[Tensor, "rows in"], Float[Tensor, "rows out"] | None], Tensor]
"""(x, residual or None) -> x W^T + bias (+ residual)."""

MakeKernel = Callable[[], Kernel]
"""Lays the weight out for a kernel."""


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """Which kernel multiplies how many rows.

    `kernels[n]` serves n rows (entry 0 is unused; more rows than entries take the last one).
    `padded[n]` >= n is the number of rows that a pass of n rows is best padded to.
    """

    kernels: tuple[str, ...]
    padded: tuple[int, ...] = ()

    def kernel(self, num_rows: int) -> str:
        return self.kernels[min(num_rows, len(self.kernels) - 1)]

    def pad(self, num_rows: int) -> int:
        return self.padded[num_rows] if num_rows < len(self.padded) else num_rows

    @property
    def used(self) -> tuple[str, ...]:
        """The kernels that occur, in order of first use."""
        return tuple(dict.fromkeys(self.kernels[1:]))


def only(kernel: str) -> KernelPlan:
    """The plan that uses one kernel for everything and pads nothing."""
    return KernelPlan((kernel, kernel))


class Linear:
    """x -> x W^T + b, optionally with a residual added in the same kernel.

    Kernels are laid out by `prepare`; before that the product can't be computed.
    """

    def __init__(
        self, num_in: int, num_out: int, makers: Mapping[str, MakeKernel], num_bytes: int
    ) -> None:
        self.num_in = num_in
        self.num_out = num_out
        self.num_bytes = num_bytes
        """Bytes of one layout, as its kernel streams them."""
        self._makers = dict(makers)
        self._kernels: dict[str, Kernel] = {}
        self._plan: KernelPlan | None = None

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernels to choose from."""
        return tuple(self._makers)

    def prepare(self, plan: KernelPlan, *, final: bool = True) -> None:
        """Lay the weight out for the kernels of `plan`, forget other layouts.

        `final` also forgets the source of all layouts, so that no weight is kept twice.
        """
        self._kernels = {
            name: self._kernels.get(name) or self._makers[name]() for name in plan.used
        }
        self._plan = plan
        if final:
            self._makers = {}

    def __call__(
        self, x: Float[Tensor, "rows in"], residual: Float[Tensor, "rows out"] | None = None
    ) -> Float[Tensor, "rows out"]:
        assert self._plan is not None, "prepare comes first"
        return self._kernels[self._plan.kernel(x.shape[0])](x, residual)

    def run(self, kernel: str, x: Float[Tensor, "rows in"]) -> Float[Tensor, "rows out"]:
        """The product by one of the prepared kernels."""
        return self._kernels[kernel](x, None)


def dense_linear(weight: Float[Tensor, "out in"], bias: Float[Tensor, " out"] | None) -> Linear:
    """A product with a weight as it is, by every kernel that this machine has for it."""
    makers: dict[str, MakeKernel] = {PLAIN: lambda: plain_kernel(weight, bias)}
    if can_pack(weight):
        makers[PACKED] = lambda: packed_kernel(weight, bias)
    return Linear(weight.shape[1], weight.shape[0], makers, weight.numel() * weight.element_size())


def can_pack(weight: Float[Tensor, "out in"]) -> bool:
    """Whether oneDNN's packed kernel exists here for this weight's device and dtype."""
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.bfloat16):
        return False
    if not (torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled):
        return False
    if weight.dtype == torch.float32:
        return True
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def plain_kernel(weight: Float[Tensor, "out in"], bias: Float[Tensor, " out"] | None) -> Kernel:
    def multiply(x: Tensor, residual: Tensor | None) -> Tensor:
        product = functional.linear(x, weight, bias)
        return product if residual is None else residual + product

    return multiply


def packed_kernel(weight: Float[Tensor, "out in"], bias: Float[Tensor, " out"] | None) -> Kernel:
    """The residual is added before the result is rounded."""
    # Without a hint of the number of rows: hinted layouts are reordered again at other numbers.
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)
    no_scalars: Sequence[float] = []

    def multiply(x: Tensor, residual: Tensor | None) -> Tensor:
        product: Tensor
        if residual is None:
            product = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", no_scalars, "")
        else:
            product = torch.ops.mkldnn._linear_pointwise.binary(x, residual, packed, bias, "add")
        return product

    return multiply
