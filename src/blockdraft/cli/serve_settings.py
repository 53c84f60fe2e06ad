"""`ServeSettings`: the values of all settings of `blockdraft serve`, and their defaults.

How they are given is in `serve_flags.py`; nothing is loaded or opened here.
"""

from dataclasses import dataclass
from typing import Literal

from blockdraft.cli.args import DEFAULT_TARGET
from blockdraft.errors import ConfigError

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]
MetricsDetail = Literal["none", "summary", "detailed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """Values of all settings; sizes in bytes, times in seconds. Raises ConfigError."""

    target: str = DEFAULT_TARGET
    drafter: str | None = None
    revision: str | None = None
    drafter_revision: str | None = None
    yes: bool = False
    taps: tuple[int, ...] | None = None
    dtype: str = "auto"
    quantize: str | None = None
    device: str | None = None
    threads: int | None = None
    engine: str = "auto"
    width: str = "auto"
    compile: bool = False
    slots: int = 16
    max_context: int | None = None
    kv_memory: int | None = None
    prefill_chunk: int = 64
    no_prefix_reuse: bool = False
    host: str = "127.0.0.1"
    port: int = 8000
    served_model_name: tuple[str, ...] = ()
    api_key: tuple[str, ...] = ()
    api_key_file: str | None = None
    cors_origin: tuple[str, ...] = ()
    max_waiting: int = 128
    max_body: int = 4 * 1024 * 1024
    request_timeout: float = 600.0
    drain_timeout: float = 60.0
    tool_parser: str = "auto"
    reasoning_parser: str = "auto"
    trust_request_chat_template: bool = False
    spec_decode_metrics: MetricsDetail = "none"
    no_playground: bool = False
    log_format: LogFormat = "text"
    log_file: str | None = None
    log_level: LogLevel = "info"
    log_prompts: bool = False

    def __post_init__(self) -> None:
        if not self.host.strip():
            raise ConfigError("--host is empty; give an address, like 127.0.0.1 or 0.0.0.0")
        for name in ("served_model_name", "api_key", "cors_origin"):
            if any(not text.strip() for text in getattr(self, name)):
                flag = f"--{name.replace('_', '-')}"
                raise ConfigError(f"{flag} is empty; give it a text, or leave it out")
        if len(set(self.served_model_name)) < len(self.served_model_name):
            raise ConfigError("--served-model-name names a model twice; drop one")
