"""The OpenAPI side of the endpoints: what they take, what they answer, and every status they have.

Bodies are parsed by `protocol/reading.py`, not by the framework, so their schemas are added here.
"""

from collections.abc import Mapping, Sequence
from typing import cast

from fastapi import FastAPI
from pydantic import BaseModel

from blockdraft.serving.auth import OPEN_PATHS
from blockdraft.serving.protocol.other_fields import IGNORED
from blockdraft.serving.protocol.response_schemas import RESPONSE_SCHEMAS

_REFERENCE = "#/components/schemas/{model}"

_WHY: Mapping[int, str] = {
    400: "The request is malformed, or asks for what is not served",
    401: "No valid API key",
    403: "Sent by a page of another site",
    404: "No such model",
    408: "The body, or the answer, took too long",
    413: "The body is too large",
    500: "The engine failed on this request",
    503: "The queue is full, or the server shuts down",
}


def takes(*models: type[BaseModel]) -> dict[str, object]:
    """The OpenAPI fragment of an endpoint whose body is one of `models`."""
    references = [_reference(model.__name__) for model in models]
    schema = references[0] if len(references) == 1 else {"anyOf": references}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def answers(
    document: str, *statuses: int, chunk: str | None = None
) -> dict[int | str, dict[str, object]]:
    """The responses of an endpoint: `document` (or a stream of `chunk`s), and errors."""
    content: dict[str, object] = {"application/json": {"schema": _reference(document)}}
    if chunk is not None:
        told = f"Each event's data is a {chunk} or an Error; the last one is [DONE]."
        content["text/event-stream"] = {"schema": {"type": "string", "description": told}}
    return {200: {"description": "The answer", "content": content}, **refusals(*statuses)}


def refusals(*statuses: int) -> dict[int | str, dict[str, object]]:
    """Errors in OpenAI's shape."""
    error = {"application/json": {"schema": _reference("Error")}}
    return {status: {"description": _WHY[status], "content": error} for status in statuses}


def describe(app: FastAPI, models: Sequence[type[BaseModel]], *, has_keys: bool) -> None:
    """Make the app's OpenAPI document hold the schemas of `models` and of all responses.

    With `has_keys` it says which endpoints want one.
    """
    generate = app.openapi

    def described() -> dict[str, object]:
        document = cast(dict[str, object], generate())
        components = cast(dict[str, object], document.setdefault("components", {}))
        schemas = cast(dict[str, object], components.setdefault("schemas", {}))
        schemas.update(RESPONSE_SCHEMAS)
        for model in models:
            schema = model.model_json_schema(ref_template=_REFERENCE)
            schemas.update(cast(dict[str, object], schema.pop("$defs", {})))
            properties = cast(dict[str, object], schema["properties"])
            for name, why in IGNORED.items():
                properties[name] = {"description": f"Ignored: {why}."}
            schemas[model.__name__] = schema
        if has_keys:
            components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        _complete_operations(document, has_keys=has_keys)
        return document

    app.openapi = described


def _complete_operations(document: Mapping[str, object], *, has_keys: bool) -> None:
    paths = cast(Mapping[str, Mapping[str, dict[str, object]]], document["paths"])
    for path, operations in paths.items():
        for operation in operations.values():
            # The framework's own status for bad parameters; here that is 400, or 404 for a name.
            cast(dict[str, object], operation["responses"]).pop("422", None)
            if has_keys and path not in OPEN_PATHS:
                operation["security"] = [{"key": []}]


def _reference(name: str) -> dict[str, object]:
    return {"$ref": _REFERENCE.format(model=name)}
