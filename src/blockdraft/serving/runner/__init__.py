"""The engine on its own thread, with an asynchronous front.

No HTTP and no metrics library here; the server calls `submit` and reads tickets.
"""

from blockdraft.serving.runner.observer import (
    EndReason,
    Observer,
    RefusalReason,
    RequestRecord,
    StepRecord,
    Unobserved,
)
from blockdraft.serving.runner.runner import EngineRunner
from blockdraft.serving.runner.ticket import Ticket

__all__ = [
    "EndReason",
    "EngineRunner",
    "Observer",
    "RefusalReason",
    "RequestRecord",
    "StepRecord",
    "Ticket",
    "Unobserved",
]
