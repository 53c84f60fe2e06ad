"""`CompileJob`: what one compilation gets and may cost, as it crosses to another process.

Plain values; it needs no xgrammar.
"""

import json
from dataclasses import asdict, dataclass

from blockdraft.structured.source import Dialect


class CompileRefusal(Exception):
    """The grammar can't be had; the message is for its author."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileJob:
    """A source and what compiling it may cost; `seconds` and `step_seconds` (for one
    token) are CPU time. Messages call it `title`."""

    title: str
    dialect: Dialect
    text: str
    seconds: float
    wall_seconds: float
    max_bytes: int
    max_compiled_bytes: int
    step_seconds: float

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, body: bytes) -> "CompileJob":
        return cls(**json.loads(body))
