"""The endpoints on the server itself, keys, CORS, and what an overloaded server says."""

from collections.abc import Callable

import pytest
from starlette.testclient import TestClient

from blockdraft.serving.server_config import ServerConfig

Serve = Callable[..., TestClient]

CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}


def test_the_model_is_listed_and_found_by_name(serve: Serve) -> None:
    client = serve({})
    listed = client.get("/v1/models").json()
    assert listed["object"] == "list" and len(listed["data"]) == 1
    model = listed["data"][0]
    assert (model["id"], model["object"], model["max_model_len"]) == ("tiny", "model", 1024)
    assert client.get("/v1/models/tiny").json() == model
    missing = client.get("/v1/models/other/name")
    assert missing.status_code == 404 and "'tiny'" in missing.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/health", "/ready", "/ping", "/version", "/openapi.json"])
def test_probes_need_no_key(serve: Serve, path: str) -> None:
    client = serve({}, config=ServerConfig(api_keys=("secret",)))
    assert client.get(path).status_code == 200


@pytest.mark.parametrize("path", ["/health", "/ready", "/ping"])
def test_uptime_monitors_may_ask_with_head(serve: Serve, path: str) -> None:
    answer = serve({}).head(path)
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize(
    "header", [None, "secret", "Bearer", "Bearer wrong", "Basic secret", "Bearer secre\u00e9"]
)
def test_everything_else_needs_one(serve: Serve, header: str | None) -> None:
    client = serve({}, config=ServerConfig(api_keys=("secret", "second")))
    headers: dict[bytes, bytes] = {}
    if header is not None:
        headers[b"Authorization"] = header.encode("latin-1")
    for path in ("/v1/models", "/v1/models/tiny", "/nothing"):
        refused = client.get(path, headers=headers)
        assert refused.status_code == 401
        assert refused.json()["error"]["code"] == "invalid_api_key"
    refused = client.post("/v1/chat/completions", json=CHAT, headers=headers)
    assert refused.status_code == 401


def test_any_of_the_keys_opens(serve: Serve) -> None:
    client = serve({}, config=ServerConfig(api_keys=("secret", "second")))
    for key in ("secret", "second"):
        headers = {"Authorization": f"Bearer {key}"}
        assert client.post("/v1/chat/completions", json=CHAT, headers=headers).status_code == 200


def test_cors_is_off_unless_configured(serve: Serve) -> None:
    origin = {"Origin": "https://example.org"}
    plain = serve({}).get("/v1/models", headers=origin)
    assert "access-control-allow-origin" not in plain.headers
    config = ServerConfig(cors_origins=("https://example.org",))
    allowed = serve({}, config=config).get("/v1/models", headers=origin)
    assert allowed.headers["access-control-allow-origin"] == "https://example.org"
    assert "X-Request-Id" in allowed.headers["access-control-expose-headers"]


def test_a_browser_may_send_the_headers_of_clients(serve: Serve) -> None:
    """OpenAI's package for JavaScript adds some, and each must pass the preflight."""
    client = serve({}, config=ServerConfig(cors_origins=("https://example.org",)))
    asked = {"Access-Control-Request-Method": "POST"}
    asked["Access-Control-Request-Headers"] = "authorization,content-type,x-stainless-lang"
    for origin, status in (("https://example.org", 200), ("https://example.com", 400)):
        headers = {"Origin": origin, **asked}
        assert client.options("/v1/chat/completions", headers=headers).status_code == status


def test_unknown_paths_and_methods_are_json_errors(serve: Serve) -> None:
    client = serve({})
    for response, status in (
        (client.get("/nothing"), 404),
        (client.get("/v1/chat/completions"), 405),
        (client.put("/tokenize"), 405),
    ):
        assert response.status_code == status
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}


def test_a_body_that_is_too_large_is_413(serve: Serve) -> None:
    client = serve({}, config=ServerConfig(max_body_bytes=1000))
    body = {"messages": [{"role": "user", "content": "x" * 2000}]}
    assert client.post("/v1/chat/completions", json=body).status_code == 413

    def parts() -> list[bytes]:
        return [b"x" * 600] * 3

    streamed = client.post("/tokenize", content=iter(parts()))
    assert streamed.status_code == 413


def test_a_request_that_takes_too_long_is_408(serve: Serve) -> None:
    client = serve({"slow": "x" * 400}, config=ServerConfig(request_seconds=0.01), block_size=1)
    body = {"messages": [{"role": "user", "content": "slow"}], "temperature": 0}
    plain = client.post("/v1/chat/completions", json=body)
    assert (plain.status_code, plain.json()["error"]["code"]) == (408, "request_timeout")


def test_tokens_there_and_back(serve: Serve) -> None:
    client = serve({})
    made = client.post("/tokenize", json={"prompt": "h\u00e9", "return_token_strs": True}).json()
    assert (made["count"], made["max_model_len"]) == (3, 1024)
    assert made["token_strs"] == ["h", "bytes:\\xc3", "bytes:\\xa9"]
    text = client.post("/detokenize", json={"tokens": made["tokens"]}).json()
    assert text == {"prompt": "h\u00e9"}
    chat = client.post("/tokenize", json={"messages": [{"role": "user", "content": "hi"}]}).json()
    shown = client.post("/detokenize", json={"tokens": chat["tokens"]}).json()["prompt"]
    assert shown == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("tokens", [[-1], [259], [2**40], ["a"], [1.5], [True], "abc", None])
def test_ids_outside_the_vocabulary_are_refused(serve: Serve, tokens: object) -> None:
    response = serve({}).post("/detokenize", json={"tokens": tokens})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "tokens")
