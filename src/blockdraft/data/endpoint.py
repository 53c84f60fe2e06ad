"""`EndpointGenerator`: answers from a server with an OpenAI-compatible interface.

A bounded number of requests at once, each tried again where that may help. It knows nothing of
conversations or files. What is sent and read is in `endpoint_wire.py`.
"""

import asyncio
import email.utils
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING

from blockdraft.data.answer_requests import (
    Generated,
    NextRequest,
    NotGenerated,
    Outcome,
    TurnRequest,
)
from blockdraft.data.endpoint_wire import (
    BadReply,
    read_model_names,
    read_reply,
    request_body,
    request_path,
)
from blockdraft.data.rendering import Renderer
from blockdraft.errors import ConfigError

if TYPE_CHECKING:
    import httpx

FIRST_DELAY = 0.5
MAX_DELAY = 60.0
RETRIED = (408, 409, 425, 429)
"""Besides all from 500: what may go well a little later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointConfig:
    """Which server, and how hard to try. `url` ends with the version, like http://host:8000/v1."""

    url: str
    model: str
    concurrency: int = 64
    retries: int = 5
    timeout: float = 600.0
    api_key: str | None = field(default=None, repr=False)
    returns_token_ids: bool = False
    first_delay: float = FIRST_DELAY

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ConfigError(
                f"--endpoint {self.url!r} is no http address, like http://host:8000/v1"
            )
        if not self.model:
            raise ConfigError("--endpoint needs --model, the name that the server serves it under")
        if self.concurrency < 1:
            raise ConfigError(f"--concurrency is {self.concurrency}; give at least 1")
        if self.retries < 0 or self.timeout <= 0:
            raise ConfigError("--retries must be 0 or more, --timeout above 0 seconds")

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.api_key is None else {"Authorization": f"Bearer {self.api_key}"}


class GivenUp(Exception):
    """One request has failed for good."""


@dataclass(frozen=True, slots=True)
class _Again:
    """One try failed in a way that another may not; `wait` is what the server asks for."""

    reason: str
    wait: float | None = None


class EndpointGenerator:
    """Answers through HTTP; ids are the server's, or made here with the target's tokenizer."""

    def __init__(self, config: EndpointConfig, renderer: Renderer) -> None:
        """Raises ConfigError when httpx is missing."""
        if find_spec("httpx") is None:
            raise ConfigError("--endpoint needs httpx: pip install 'blockdraft[train]'")
        self._config = config
        self._renderer = renderer
        self._end_id = renderer.end_of_answer()
        self._jitter = random.Random()
        self.num_retries = 0
        self.num_ids_from_server = 0
        self.num_ids_from_text = 0
        self.num_other_lengths = 0

    def describe(self) -> dict[str, object]:
        return {
            "kind": "endpoint",
            "model": self._config.model,
            "returns_token_ids": self._config.returns_token_ids,
        }

    def notes(self) -> dict[str, object]:
        """Where ids come from; counts are of this run alone, what it continued not among them.

        `answers_of_other_length`: of those whose text was tokenized here, how many have another
        number of ids than the server counted, so that they are not what it generated to the id.
        """
        return {
            "endpoint": self._config.url,
            "prompt_ids": "the server's where it sent them, else rendered here",
            "answer_ids": "the server's where it sent them, else its text tokenized here and the "
            "stop token put after it",
            "answers_with_ids_from_server": self.num_ids_from_server,
            "answers_tokenized_here": self.num_ids_from_text,
            "answers_of_other_length": self.num_other_lengths,
            "retries": self.num_retries,
        }

    def check(self) -> None:
        """Raise ConfigError unless the server answers and knows the model (where it lists any)."""
        import httpx

        try:
            reply = httpx.get(
                f"{self._config.url.rstrip('/')}/models", headers=self._config.headers, timeout=30
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ConfigError(
                f"{self._config.url} does not answer ({_named(error)}); start the server, or "
                "correct --endpoint"
            ) from error
        if reply.status_code in (401, 403):
            raise ConfigError(
                f"{self._config.url} wants a key (status {reply.status_code}): put it in an "
                "environment variable and name that with --api-key-env"
            )
        served = read_model_names(reply.text) if reply.status_code == 200 else ()
        if served and self._config.model not in served:
            raise ConfigError(
                f"{self._config.url} serves no {self._config.model!r}, only {', '.join(served)}; "
                "correct --model"
            )

    def answer(self, next_request: NextRequest) -> Iterator[Outcome]:
        """See `AnswerSource.answer`."""
        import httpx

        limits = httpx.Limits(max_connections=self._config.concurrency)
        with asyncio.Runner() as runner:
            client = httpx.AsyncClient(
                timeout=self._config.timeout, limits=limits, headers=self._config.headers
            )
            running: set[asyncio.Task[Outcome]] = set()
            try:
                while True:
                    while (
                        len(running) < self._config.concurrency
                        and (request := next_request()) is not None
                    ):
                        task = runner.get_loop().create_task(self._one(client, request))
                        running.add(task)
                    if not running:
                        return
                    done = runner.run(_first_done(running))
                    running -= done
                    for task in done:
                        yield task.result()
            finally:
                for task in running:
                    task.cancel()
                runner.run(_close(client, running))

    async def _one(self, client: "httpx.AsyncClient", request: TurnRequest) -> Outcome:
        """The outcome of one request after all tries."""
        delay = self._config.first_delay
        reason = ""
        for attempt in range(self._config.retries + 1):
            if attempt:
                self.num_retries += 1
            try:
                result = await self._try(client, request)
            except GivenUp as error:
                return NotGenerated(request, str(error))
            if isinstance(result, Generated):
                return result
            reason = result.reason
            if attempt < self._config.retries:
                wait = (
                    delay * self._jitter.uniform(0.5, 1.5) if result.wait is None else result.wait
                )
                await asyncio.sleep(min(wait, MAX_DELAY))
                delay = min(2 * delay, MAX_DELAY)
        return NotGenerated(request, f"{reason} ({self._config.retries + 1} tries)")

    async def _try(self, client: "httpx.AsyncClient", request: TurnRequest) -> "Generated | _Again":
        """One try. Raises GivenUp where another can't help."""
        import httpx

        url = f"{self._config.url.rstrip('/')}/{request_path(request)}"
        body = request_body(
            request, self._config.model, asks_for_ids=self._config.returns_token_ids
        )
        try:
            reply = await client.post(url, json=body)
        except httpx.HTTPError as error:  # timeouts and broken connections among them
            return _Again(_named(error))
        status = reply.status_code
        if status in RETRIED or status >= 500:
            return _Again(f"status {status}: {_start(reply.text)}", _asked_wait(reply.headers))
        if status != 200:
            raise GivenUp(f"status {status}: {_start(reply.text)}")
        try:
            answer = read_reply(reply.text, request, self._renderer, self._end_id)
        except BadReply as error:
            if error.is_final:
                raise GivenUp(str(error)) from error
            return _Again(str(error))
        if answer.from_server:
            self.num_ids_from_server += 1
        else:
            self.num_ids_from_text += 1
            counted = answer.num_counted
            self.num_other_lengths += counted is not None and counted != len(answer.answer_ids)
        return Generated(request, answer.prompt_ids, answer.answer_ids, answer.finish_reason)


async def _first_done(running: "set[asyncio.Task[Outcome]]") -> "set[asyncio.Task[Outcome]]":
    done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    return done


async def _close(client: "httpx.AsyncClient", running: "set[asyncio.Task[Outcome]]") -> None:
    """Wait until what was canceled has let go of its connections."""
    if running:
        await asyncio.wait(running)
    await client.aclose()


def _asked_wait(headers: Mapping[str, str]) -> float | None:
    """Seconds of a Retry-After header, a number or a date; None without one that makes sense."""
    value = headers.get("retry-after", "").strip()
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _start(text: str) -> str:
    return " ".join(text.split())[:200] or "no text"
