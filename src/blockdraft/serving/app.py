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
from blockdraft.serving.origins import OwnPages
from blockdraft.serving.protocol.chat import ChatRequest
from blockdraft.serving.protocol.completions import CompletionRequest
from blockdraft.serving.protocol.tokenizing import DetokenizeRequest, TokenizeChat, TokenizeText
from blockdraft.serving.routes import chat, completions, status, tokenizing
from blockdraft.serving.routes.described import answers, describe, refusals, takes
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
    bodies = (ChatRequest, CompletionRequest, TokenizeText, TokenizeChat, DetokenizeRequest)
    describe(app, bodies, has_keys=bool(config.api_keys))
    if config.api_keys:
        app.add_middleware(ApiKeys, keys=config.api_keys)
    app.add_middleware(OwnPages, origins=config.cors_origins, local_only=config.is_local)
    if config.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(config.cors_origins),
            allow_methods=["GET", "POST"],
            # OpenAI's own clients send headers of theirs; origins are what is restricted here.
            allow_headers=["*"],
            expose_headers=["Retry-After", "X-Request-Id"],
        )
    return app


def _add_text_routes(app: FastAPI, serving: Serving) -> None:
    no_text = (400, 401, 403, 404, 408, 413)
    no_answer = (*no_text, 500, 503)

    @app.post(
        "/v1/chat/completions",
        openapi_extra=takes(ChatRequest),
        responses=answers("ChatCompletion", *no_answer, chunk="ChatCompletionChunk"),
    )
    async def _chat(request: Request) -> Response:
        return await chat.chat_completions(serving, request)

    @app.post(
        "/v1/completions",
        openapi_extra=takes(CompletionRequest),
        responses=answers("Completion", *no_answer, chunk="CompletionChunk"),
    )
    async def _completions(request: Request) -> Response:
        return await completions.completions(serving, request)

    @app.post(
        "/tokenize",
        openapi_extra=takes(TokenizeText, TokenizeChat),
        responses=answers("Tokens", *no_text),
    )
    async def _tokenize(request: Request) -> Response:
        return await tokenizing.tokenize(serving, request)

    @app.post(
        "/detokenize",
        openapi_extra=takes(DetokenizeRequest),
        responses=answers("Text", *no_text),
    )
    async def _detokenize(request: Request) -> Response:
        return await tokenizing.detokenize(serving, request)


def _add_status_routes(app: FastAPI, serving: Serving) -> None:
    text = {
        "description": "The metrics",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }

    @app.get("/v1/models", responses=answers("ModelList", 401, 403))
    async def _models() -> Response:
        return status.models(serving)

    @app.get("/v1/models/{name:path}", responses=answers("Model", 401, 403, 404))
    async def _model(name: str) -> Response:
        return status.model(serving, name)

    @app.get("/health", responses=answers("State", 503))
    async def _health() -> Response:
        return status.health(serving)

    @app.get("/ping", responses=answers("State", 503))
    async def _ping() -> Response:
        return status.health(serving)

    @app.get("/ready", responses=answers("State", 503))
    async def _ready() -> Response:
        return status.ready(serving)

    # Uptime monitors ask with HEAD, which the framework does not add by itself.
    for path, probe in (("/health", _health), ("/ping", _ping), ("/ready", _ready)):
        app.head(path, include_in_schema=False)(probe)

    @app.get("/version", responses=answers("Version"))
    async def _version() -> Response:
        return status.about()

    @app.get("/metrics", responses={200: text, **refusals(404)})
    async def _metrics() -> Response:
        return status.metrics(serving)


def _add_playground(app: FastAPI) -> None:
    """Mount the page where its files are part of the installation."""
    if find_spec("blockdraft.serving.playground.routes") is None:
        return
    from blockdraft.serving.playground.routes import playground_routes

    app.router.routes.extend(playground_routes())
