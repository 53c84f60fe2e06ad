"""The in-process side of a bench: lanes of decoding on one target, measured under the same load.

Its contract: `InProcessBench` over loaded models; it prints nothing and loads no model.
"""

from blockdraft.bench.in_process.bench import BenchPlan, InProcessBench, Turn
from blockdraft.bench.in_process.lanes import DrafterChoice, LaneOrder, choose_lanes

__all__ = [
    "BenchPlan",
    "DrafterChoice",
    "InProcessBench",
    "LaneOrder",
    "Turn",
    "choose_lanes",
]
