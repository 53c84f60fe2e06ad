"""`Serving`: the service with the server's settings, as every endpoint gets them.

It answers nothing itself.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from blockdraft.serving.answers.token_texts import TokenTexts
from blockdraft.serving.errors import ApiError
from blockdraft.serving.server_config import ServerConfig
from blockdraft.serving.service import Service
from blockdraft.target.text import TextCodec

NUM_GRAMMAR_THREADS = 32


def _grammar_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(NUM_GRAMMAR_THREADS, thread_name_prefix="grammar")


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What is served, how, and the texts of its single tokens.

    Requests wait for their grammars on `grammar_threads`, so that all others need not wait too.
    """

    service: Service
    config: ServerConfig
    tokens: TokenTexts
    grammar_threads: ThreadPoolExecutor = field(default_factory=_grammar_threads)

    def check_model(self, name: str | None) -> None:
        """Raises ApiError 404 for a model that is not the one served."""
        served = self.service.names
        if name is not None and name not in served:
            raise ApiError(
                f"the model {name[:100]!r} is not served here; this server has "
                f"{', '.join(map(repr, served))}",
                status=404,
                param="model",
                code="model_not_found",
            )

    @property
    def codec(self) -> TextCodec:
        """Raises ApiError 400 when the model has no tokenizer."""
        if self.service.codec is None:
            raise ApiError(
                f"{self.service.model_name} has no tokenizer: send token ids to /v1/completions"
            )
        return self.service.codec
