"""`GrammarLimits`: how much time and memory a grammar of a stranger may cost.

The numbers are measured in docs/structured.md; they are enforced elsewhere.
"""

import math
from dataclasses import dataclass, fields

from blockdraft.errors import ConfigError

MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class GrammarLimits:
    """Raises ConfigError for a limit that is not positive.

    Text: `max_spec_bytes` (UTF-8) and `max_depth` of nested JSON. One compilation, in a process of
    its own: `compile_seconds` of CPU time, `compile_wall_seconds` of any, `compile_bytes` of
    memory. What it yields: `max_compiled_bytes` as text. Kept grammars: `cache_bytes`, and
    `refusal_seconds` for the reason why one could not be compiled. At most `max_parallel` compile
    at once, others wait at most `wait_seconds`. While decoding, CPU time of the matcher:
    `step_seconds` for one token, `request_seconds` for one request.
    """

    max_spec_bytes: int = 256 * 1024
    max_depth: int = 128
    compile_seconds: float = 5.0
    compile_wall_seconds: float = 30.0
    compile_bytes: int = 1024 * MIB
    max_compiled_bytes: int = 32 * MIB
    cache_bytes: int = 256 * MIB
    refusal_seconds: float = 60.0
    max_parallel: int = 2
    wait_seconds: float = 30.0
    step_seconds: float = 0.25
    request_seconds: float = 30.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"grammar limit {field.name} is {value}; it must be above 0")
