"""`create_app`: the FastAPI application of one service.

It wires routes, limits, keys and errors together; it starts no engine and opens no socket.
"""

from importlib.metadata import version
from importlib.util import find_spec

from fastapi import FastAPI, Request
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from blockdraft.serving.answers.serving import Serving
from blockdraft.serving.answers.token_texts import TokenTexts
from blockdraft.serving.auth import ApiKeys
from blockdraft.serving.errors import install_error_handlers
from blockdraft.serving.protocol.chat import ChatRequest
from blockdraft.serving.protocol.completions import CompletionRequest
from blockdraft.serving.protocol.tokenizing import DetokenizeRequest, TokenizeChat, TokenizeText
from blockdraft.serving.routes import chat, completions, status, tokenizing
from blockdraft.serving.routes.described import answers, describe, takes
from blockdraft.serving.server_config import ServerConfig
from blockdraft.serving.service import Service


def create_app(service: Service, config: ServerConfig | None = None) -> FastAPI:
    """The application; the service's runner is started and stopped by whoever made it."""
    config = config or ServerConfig()
    serving = Serving(service=service, config=config, tokens=TokenTexts(service.codec))
    app = FastAPI(
        title="Blockdraft",
        version=version("blockdraft"),
        # The framework's own documentation pages load scripts from other hosts.
        docs_url=None,
        redoc_url=None,
    )
    install_error_handlers(app, config.retry_after_seconds)
    _add_text_routes(app, serving)
    _add_status_routes(app, serving)
    if config.playground:
        _add_playground(app)
    describe(app, (ChatRequest, CompletionRequest, TokenizeText, TokenizeChat, DetokenizeRequest))
    if config.api_keys:
        app.add_middleware(ApiKeys, keys=config.api_keys)
    if config.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(config.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    return app


def _add_text_routes(app: FastAPI, serving: Serving) -> None:
    refusals = (400, 401, 404, 408, 413, 503)

    @app.post(
        "/v1/chat/completions",
        openapi_extra=takes(ChatRequest),
        responses=answers(*refusals, stream=True),
    )
    async def _chat(request: Request) -> Response:
        return await chat.chat_completions(serving, request)

    @app.post(
        "/v1/completions",
        openapi_extra=takes(CompletionRequest),
        responses=answers(*refusals, stream=True),
    )
    async def _completions(request: Request) -> Response:
        return await completions.completions(serving, request)

    @app.post(
        "/tokenize",
        openapi_extra=takes(TokenizeText, TokenizeChat),
        responses=answers(*refusals),
    )
    async def _tokenize(request: Request) -> Response:
        return await tokenizing.tokenize(serving, request)

    @app.post("/detokenize", openapi_extra=takes(DetokenizeRequest), responses=answers(*refusals))
    async def _detokenize(request: Request) -> Response:
        return await tokenizing.detokenize(serving, request)


def _add_status_routes(app: FastAPI, serving: Serving) -> None:
    @app.get("/v1/models", responses=answers(401))
    async def _models() -> Response:
        return status.models(serving)

    @app.get("/v1/models/{name:path}", responses=answers(401, 404))
    async def _model(name: str) -> Response:
        return status.model(serving, name)

    @app.get("/health", responses=answers(503))
    async def _health() -> Response:
        return status.health(serving)

    @app.get("/ping", responses=answers(503))
    async def _ping() -> Response:
        return status.health(serving)

    @app.get("/ready", responses=answers(503))
    async def _ready() -> Response:
        return status.ready(serving)

    @app.get("/version", responses=answers())
    async def _version() -> Response:
        return status.about()

    @app.get("/metrics", responses={**answers(404), 200: {"content": {"text/plain": {}}}})
    async def _metrics() -> Response:
        return status.metrics(serving)


def _add_playground(app: FastAPI) -> None:
    """Mount the page where its files are part of the installation."""
    if find_spec("blockdraft.serving.playground.routes") is None:
        return
    from blockdraft.serving.playground.routes import playground_routes

    app.router.routes.extend(playground_routes())
