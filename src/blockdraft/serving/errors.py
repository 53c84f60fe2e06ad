"""Errors as clients see them: `ApiError`, and every other error of ours in OpenAI's JSON shape.

It logs nothing and knows no route.
"""

from collections.abc import Mapping

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from blockdraft.errors import ConfigError, Draining, Error, Overloaded, RequestError

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
}


class ApiError(Error):
    """A refusal with its HTTP status; `param` names the request field, `code` is for programs."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def body(self) -> dict[str, object]:
        """The JSON document, in OpenAI's shape."""
        kind = _TYPES.get(self.status, "server_error" if self.status >= 500 else "api_error")
        return {
            "error": {
                "message": str(self),
                "type": kind,
                "param": self.param,
                "code": self.code,
            }
        }

    def response(self) -> Response:
        return JSONResponse(self.body(), status_code=self.status, headers=self.headers)


def as_api_error(error: Exception, retry_after_seconds: int = 1) -> ApiError:
    """What a client is told of `error`; the text of a foreign exception is not shown."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, Overloaded | Draining):
        return ApiError(
            str(error),
            status=503,
            code="overloaded" if isinstance(error, Overloaded) else "draining",
            headers={"Retry-After": str(retry_after_seconds)},
        )
    if isinstance(error, RequestError | ConfigError):
        return ApiError(str(error), code="invalid_request")
    if isinstance(error, Error):
        return ApiError(str(error), status=500, code="engine_error")
    return ApiError(
        f"the server failed on this request ({type(error).__name__}); its log has the details",
        status=500,
        code="internal_error",
    )


def timed_out(seconds: float | None) -> ApiError:
    """What a request is told that took longer than the server allows."""
    return ApiError(
        f"the request took longer than the {seconds or 0:g} seconds allowed here; ask for fewer "
        "tokens, or raise the server's limit",
        status=408,
        code="request_timeout",
    )


def install_error_handlers(app: FastAPI, retry_after_seconds: int) -> None:
    """Every error that leaves a route becomes a JSON document in OpenAI's shape."""

    async def ours(request: Request, error: Exception) -> Response:
        return as_api_error(error, retry_after_seconds).response()

    async def routing(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = request.url.path
        if error.status_code == 404:
            message, code = f"there is no {path} here; GET /openapi.json lists what is", "not_found"
        elif error.status_code == 405:
            message, code = f"{path} does not take {request.method}", "method_not_allowed"
        else:
            message, code = str(error.detail), None
        told = ApiError(
            message, status=error.status_code, code=code, headers=dict(error.headers or {})
        )
        return told.response()

    app.add_exception_handler(Error, ours)
    app.add_exception_handler(HTTPException, routing)
    app.add_exception_handler(Exception, ours)
