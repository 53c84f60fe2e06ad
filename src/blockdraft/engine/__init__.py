"""The engine: continuous batching with width control, over native or any other models.

`build_engine` makes one of a loaded target and drafter; `Engine.step` drives it. The scheduler and
the width control are pure Python on numbers.
"""

from blockdraft.engine.build import BuiltEngine, build_engine, fast_drafter
from blockdraft.engine.config import Capacity, EngineConfig
from blockdraft.engine.engine import Engine, EngineStats
from blockdraft.engine.running import Event, Failed
from blockdraft.engine.session import Session
from blockdraft.engine.width_mode import WidthMode, parse_width

__all__ = [
    "BuiltEngine",
    "Capacity",
    "Engine",
    "EngineConfig",
    "EngineStats",
    "Event",
    "Failed",
    "Session",
    "WidthMode",
    "build_engine",
    "fast_drafter",
    "parse_width",
]
