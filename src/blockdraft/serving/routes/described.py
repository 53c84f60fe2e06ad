"""The OpenAPI side of the endpoints: request schemas in the document, errors for every status.

Bodies are parsed by `protocol/reading.py`, not by the framework, so their schemas are added here.
"""

from collections.abc import Sequence
from typing import cast

from fastapi import FastAPI
from pydantic import BaseModel

_REFERENCE = "#/components/schemas/{model}"

ERROR_SCHEMA: dict[str, object] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


def takes(*models: type[BaseModel]) -> dict[str, object]:
    """The OpenAPI fragment of an endpoint whose body is one of `models`."""
    references = [{"$ref": _REFERENCE.format(model=model.__name__)} for model in models]
    schema = references[0] if len(references) == 1 else {"anyOf": references}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def answers(*statuses: int, stream: bool = False) -> dict[int | str, dict[str, object]]:
    """The responses of an endpoint: 200 and errors in OpenAI's shape."""
    content: dict[str, object] = {"application/json": {"schema": {"type": "object"}}}
    if stream:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    made: dict[int | str, dict[str, object]] = {
        200: {"description": "The answer", "content": content}
    }
    for status in statuses:
        error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
        made[status] = {"description": "Refused", "content": error}
    return made


def describe(app: FastAPI, models: Sequence[type[BaseModel]]) -> None:
    """Make the app's OpenAPI document hold the schemas of `models`."""
    generate = app.openapi

    def described() -> dict[str, object]:
        document = cast(dict[str, object], generate())
        components = cast(dict[str, object], document.setdefault("components", {}))
        schemas = cast(dict[str, object], components.setdefault("schemas", {}))
        schemas["Error"] = ERROR_SCHEMA
        for model in models:
            schema = model.model_json_schema(ref_template=_REFERENCE)
            schemas.update(cast(dict[str, object], schema.pop("$defs", {})))
            schemas[model.__name__] = schema
        return document

    app.openapi = described
