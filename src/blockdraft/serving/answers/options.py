"""What a request wants to see of its answer, apart from how it is decoded.

Values only.
"""

from collections.abc import Callable
from dataclasses import dataclass

from blockdraft.decoding.text import DecodeText
from blockdraft.parsing.parts import OutputParser
from blockdraft.serving.protocol.sampling import AnswerFields
from blockdraft.serving.server_config import MetricsDetail


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingOptions:
    """How commits become parts. `make_parser` None: all text is content.

    `model_stop_ids` end the answer silently, `stop_ids` and `stop` are the request's own and are
    reported. `max_tool_calls` None = any number; `echo` is put before the answer's content.
    """

    decode: DecodeText | None
    make_parser: Callable[[], OutputParser] | None = None
    model_stop_ids: frozenset[int] = frozenset()
    stop_ids: frozenset[int] = frozenset()
    stop: tuple[str, ...] = ()
    include_stop: bool = False
    include_reasoning: bool = True
    max_tool_calls: int | None = None
    echo: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Which extras a response carries."""

    logprobs: bool
    token_ids: bool
    step_details: bool
    tokens_as_ids: bool
    metrics: MetricsDetail
    metrics_asked: bool
    meta_info: bool
    spec_tokens_details: bool
    usage_at_end: bool
    usage_always: bool

    @property
    def asked_extras(self) -> bool:
        """Whether a stream needs a last chunk even where usage is not wanted."""
        return self.metrics_asked or self.meta_info or self.spec_tokens_details


def shown(request: AnswerFields, *, logprobs: bool, default: MetricsDetail) -> Shown:
    """The extras of `request`; `default` is the server's own choice of metrics."""
    stream, own = request.stream_options, request.own
    metrics = own.metrics or default
    if own.step_details and own.metrics is None and metrics == "none":
        metrics = "summary"
    return Shown(
        logprobs=logprobs,
        token_ids=bool(request.return_token_ids),
        step_details=bool(own.step_details),
        tokens_as_ids=bool(request.return_tokens_as_token_ids),
        metrics=metrics,
        metrics_asked=metrics != "none" and (own.metrics is not None or bool(own.step_details)),
        meta_info=bool(request.return_meta_info),
        spec_tokens_details=bool(request.return_spec_tokens_details),
        usage_at_end=bool(stream and stream.include_usage),
        usage_always=bool(stream and stream.include_usage and stream.continuous_usage_stats),
    )
