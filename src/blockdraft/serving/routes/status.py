"""GET endpoints on the server itself: models, health, readiness, version, metrics.

They answer from memory, so they answer under load too.
"""

from importlib.metadata import version

from starlette.responses import JSONResponse, PlainTextResponse, Response

from blockdraft.serving.answers.serving import Serving
from blockdraft.serving.errors import ApiError
from blockdraft.serving.service import Service


def models(serving: Serving) -> Response:
    """The one model there is, by each of its names."""
    service = serving.service
    data = [_model(service, name) for name in service.names]
    return JSONResponse({"object": "list", "data": data})


def model(serving: Serving, name: str) -> Response:
    """It by name; ApiError 404 for another one."""
    serving.check_model(name)
    return JSONResponse(_model(serving.service, name))


def health(serving: Serving) -> Response:
    """200 while the engine's thread lives."""
    return _state(serving, is_well=serving.service.runner.is_alive, name="alive")


def ready(serving: Serving) -> Response:
    """200 while new requests are taken."""
    return _state(serving, is_well=serving.service.runner.is_ready, name="ready")


def about() -> Response:
    return JSONResponse({"version": version("blockdraft")})


def metrics(serving: Serving) -> Response:
    """Prometheus text; ApiError 404 where no metrics are kept."""
    if serving.service.metrics is None:
        raise ApiError("this server keeps no metrics", status=404, code="not_found")
    return PlainTextResponse(
        serving.service.metrics(), media_type="text/plain; version=0.0.4; charset=utf-8"
    )


def _state(serving: Serving, *, is_well: bool, name: str) -> Response:
    if is_well:
        return JSONResponse({"status": name})
    raise ApiError(
        f"the engine is not {name}",
        status=503,
        code=f"not_{name}",
        headers={"Retry-After": str(serving.config.retry_after_seconds)},
    )


def _model(service: Service, name: str) -> dict[str, object]:
    return {
        "id": name,
        "object": "model",
        "created": service.created,
        "owned_by": "blockdraft",
        "root": service.model_name,
        "parent": None,
        "max_model_len": service.max_model_len,
        "speculation": {
            "drafter": service.drafter_name,
            "num_spec_tokens": service.num_spec_tokens,
        },
    }
