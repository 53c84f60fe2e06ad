"""Finds out before a run whether an endpoint answers, what it serves and which engine it is.

Every mistake that can be seen from outside ends here, as one line.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from blockdraft.bench.acceptance import MetricsRead
from blockdraft.bench.config import Endpoint
from blockdraft.bench.documents import as_list, as_object, parse_object, text_in
from blockdraft.bench.engine_metrics import read_metrics
from blockdraft.bench.stream import named
from blockdraft.bench.wire import OWNERS, EngineName
from blockdraft.errors import ConfigError

if TYPE_CHECKING:
    import httpx

PROBE_SECONDS = 30.0
METRICS_PATHS = ("/metrics", "/prometheus/metrics")
"""TensorRT-LLM has JSON under the first and Prometheus' text under the second."""

HINTS = {
    "llamacpp": "start llama-server with --metrics",
    "sglang": "start SGLang with --enable-metrics",
    "trtllm": "set return_perf_metrics in TensorRT-LLM's options",
}


class Served(NamedTuple):
    """A model that the endpoint lists; `owner` is who it says serves it."""

    name: str
    owner: str


class Found(NamedTuple):
    """What will be measured."""

    model: str
    engine: EngineName


async def probe(client: "httpx.AsyncClient", endpoint: Endpoint, model: str | None) -> Found:
    """Raises ConfigError when nothing answers, a key is wanted, or the model is not served."""
    import httpx

    url = f"{endpoint.api}/models"
    try:
        reply = await client.get(url, timeout=PROBE_SECONDS)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ConfigError(
            f"{endpoint.shown} does not answer ({named(error)}); start the server, or correct "
            f"{endpoint.flag}"
        ) from error
    if reply.status_code in (401, 403):
        raise ConfigError(key_wanted(endpoint, reply.status_code))
    if reply.status_code == 200:
        served = _served(reply.text)
        return _choose(endpoint, served, model)
    if reply.status_code == 404 and model is None:
        raise ConfigError(wrong_path(endpoint, f"{url} has status 404"))
    if model is None:
        raise ConfigError(
            f"{url} has status {reply.status_code}, so what is served is not known; give --model"
        )
    return Found(model, "unknown")  # the warm-up shows whether it is served


def key_wanted(endpoint: Endpoint, status: int) -> str:
    if endpoint.api_key is not None:
        return (
            f"{endpoint.shown} refuses the key (status {status}); correct what --api-key-env names"
        )
    return (
        f"{endpoint.shown} wants a key (status {status}): put it in an environment variable and "
        "name that with --api-key-env"
    )


def wrong_path(endpoint: Endpoint, what: str) -> str:
    return (
        f"{what}: no OpenAI interface is there; {endpoint.flag} is the server's root or ends with "
        f"/v1, like http://127.0.0.1:8000, not {endpoint.shown}"
    )


async def fetch_metrics(
    client: "httpx.AsyncClient", endpoint: Endpoint, found: Found
) -> MetricsRead:
    """The engine's metrics as they are now; never an error, since a bench goes without."""
    import httpx

    reasons: list[str] = []
    for path in METRICS_PATHS:
        try:
            reply = await client.get(endpoint.root + path, timeout=PROBE_SECONDS)
        except httpx.HTTPError as error:
            return MetricsRead(None, f"{endpoint.root}{path} does not answer ({named(error)})")
        if reply.status_code != 200:
            reasons.append(f"{endpoint.root}{path} has status {reply.status_code}")
            continue
        read = read_metrics(reply.text, found.model)
        if read.has_engine_names:
            return MetricsRead(read)
        reasons.append(f"{endpoint.root}{path} has no metrics of an engine known here")
    hint = HINTS.get(found.engine)
    return MetricsRead(None, reasons[0] + (f" ({hint})" if hint else ""))


def _served(text: str) -> list[Served]:
    listed = parse_object(text)
    models = [as_object(model) for model in as_list(listed.get("data") if listed else None)]
    return [
        Served(name, text_in(model, "owned_by") or "")
        for model in models
        if (name := text_in(model, "id")) is not None
    ]


def _choose(endpoint: Endpoint, served: Sequence[Served], model: str | None) -> Found:
    if model is None:
        if len(served) != 1:
            names = ", ".join(one.name for one in served)
            what = f"serves several models: {names}" if served else "lists no models"
            raise ConfigError(f"{endpoint.shown} {what}; choose with --model")
        return Found(served[0].name, OWNERS.get(served[0].owner, "unknown"))
    if not served:
        return Found(model, "unknown")
    for one in served:
        if one.name == model:
            return Found(model, OWNERS.get(one.owner, "unknown"))
    names = ", ".join(one.name for one in served)
    raise ConfigError(f"{endpoint.shown} serves no {model!r}, only {names}; correct --model")
