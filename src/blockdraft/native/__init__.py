"""The fast path: our own decoder for dense Llama-like targets, and the drafter beside it.

It implements the same seams as `target` and `drafter`, plus passes over the rows of many requests
for the engine. Scheduling is in `engine`.
"""

from blockdraft.native.config import why_not_native
from blockdraft.native.drafting import PackedDrafter
from blockdraft.native.load import EngineKind, TargetOptions, load_engine_target
from blockdraft.native.quantized import Quantize
from blockdraft.native.target import NativeOptions, NativeTarget

__all__ = [
    "EngineKind",
    "NativeOptions",
    "NativeTarget",
    "PackedDrafter",
    "Quantize",
    "TargetOptions",
    "load_engine_target",
    "why_not_native",
]
