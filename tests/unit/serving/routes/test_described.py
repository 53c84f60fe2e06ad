"""The OpenAPI document: complete in itself, and honest about keys and statuses."""

from collections.abc import Callable, Iterator
from typing import cast

from starlette.testclient import TestClient

from blockdraft.serving.auth import OPEN_PATHS
from blockdraft.serving.protocol.other_fields import IGNORED
from blockdraft.serving.server_config import ServerConfig

Serve = Callable[..., TestClient]
Document = dict[str, object]


def operations(document: Document) -> Iterator[tuple[str, Document]]:
    paths = cast(dict[str, dict[str, Document]], document["paths"])
    for path, methods in paths.items():
        for operation in methods.values():
            yield path, operation


def references(value: object) -> Iterator[str]:
    if isinstance(value, list):
        for each in cast(list[object], value):
            yield from references(each)
    elif isinstance(value, dict):
        for name, inner in cast(Document, value).items():
            if name == "$ref":
                yield cast(str, inner)
            yield from references(inner)


def test_whatever_is_named_is_there(serve: Serve) -> None:
    document = cast(Document, serve({}).get("/openapi.json").json())
    schemas = cast(dict[str, Document], cast(Document, document["components"])["schemas"])
    named = set(references(document))
    assert named and named <= {f"#/components/schemas/{name}" for name in schemas}
    assert set(IGNORED) <= set(cast(Document, schemas["ChatRequest"]["properties"]))


def test_statuses_are_those_that_occur(serve: Serve) -> None:
    document = cast(Document, serve({}).get("/openapi.json").json())
    statuses = {path: set(cast(Document, o["responses"])) for path, o in operations(document)}
    answer = {"200", "400", "401", "403", "404", "408", "413", "500", "503"}
    assert statuses["/v1/chat/completions"] == statuses["/v1/completions"] == answer
    assert statuses["/tokenize"] == statuses["/detokenize"] == answer - {"500", "503"}
    assert statuses["/v1/models/{name}"] == {"200", "401", "403", "404"}
    assert statuses["/health"] == statuses["/ready"] == {"200", "503"}
    assert statuses["/metrics"] == {"200", "404"}


def test_keys_are_told_where_they_are_wanted(serve: Serve) -> None:
    closed = serve({}, config=ServerConfig(api_keys=("secret",)))
    for client, has_keys in ((serve({}), False), (closed, True)):
        document = cast(Document, client.get("/openapi.json").json())
        for path, operation in operations(document):
            assert ("security" in operation) == (has_keys and path not in OPEN_PATHS)
