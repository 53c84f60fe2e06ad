"""The kernels of this machine for an EAGLE-3 drafter: the same as for a target and a block drafter.

Which product is fastest is measured once; what is computed is `drafter/eagle3_model.py`'s.
"""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from blockdraft.drafter.eagle3_model import Kernels, Product
from blockdraft.native.linear import dense_linear
from blockdraft.native.norm import RMSNormWeight
from blockdraft.native.tuning import Clock, measure_plan


def fast_kernels(clock: Clock) -> Kernels:
    """Packed products where they are faster here, and the norm in one kernel."""

    def products(weights: Sequence[Float[Tensor, "out in"]]) -> Sequence[Product]:
        linears = [dense_linear(weight, None) for weight in weights]
        on_cpu = weights[0].device.type == "cpu"
        plan = measure_plan(linears, weights[0].dtype, clock, on_cpu=on_cpu)
        for linear in linears:
            linear.prepare(plan)
        return linears

    return Kernels(products, RMSNormWeight)
