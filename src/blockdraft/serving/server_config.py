"""`ServerConfig`: what an operator may choose about the HTTP side of a server.

Values and their checks; sockets, files and the engine's own settings are elsewhere.
"""

from dataclasses import dataclass
from typing import Literal

from blockdraft.errors import ConfigError

MetricsDetail = Literal["none", "summary", "detailed"]

MAX_CHOICES = 64
"""Most answers of one request, where nothing smaller is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Limits and policies of the HTTP application. Raises ConfigError for a value out of range.

    `request_seconds` bounds one request from its first byte to its last, None = no bound;
    `body_seconds` the arrival of its body. `max_choices` bounds prompts times `n` of one request.
    `spec_decode_metrics` is what an answer says of its drafts when the request doesn't choose.
    `cors_origins` empty = no CORS headers at all. With `api_keys`, all but the health endpoints
    want one of them. `is_local` says that only this machine is meant to reach the server.
    """

    api_keys: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    max_body_bytes: int = 4 * 1024 * 1024
    body_seconds: float = 30.0
    request_seconds: float | None = 600.0
    retry_after_seconds: int = 1
    max_choices: int = MAX_CHOICES
    max_logprobs: int = 20
    trust_request_chat_template: bool = False
    spec_decode_metrics: MetricsDetail = "none"
    playground: bool = True
    is_local: bool = False

    def __post_init__(self) -> None:
        if any(not key.strip() for key in self.api_keys):
            raise ConfigError("an API key is empty; give one with text, or none at all")
        for name in ("max_body_bytes", "retry_after_seconds", "max_choices"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.max_logprobs < 0:
            raise ConfigError(f"max_logprobs is {self.max_logprobs}; it must be at least 0")
        if self.body_seconds <= 0 or (
            self.request_seconds is not None and self.request_seconds <= 0
        ):
            raise ConfigError("body_seconds and request_seconds must be above 0")
        if self.spec_decode_metrics not in ("none", "summary", "detailed"):
            raise ConfigError(
                f"spec_decode_metrics is {self.spec_decode_metrics!r}; "
                "use 'none', 'summary' or 'detailed'"
            )
