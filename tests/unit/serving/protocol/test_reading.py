"""From bodies to request models: what is said about wrong ones."""

import json

import pytest

from blockdraft.errors import ConfigError
from blockdraft.serving.errors import ApiError
from blockdraft.serving.protocol.completions import CompletionRequest
from blockdraft.serving.protocol.other_fields import REFUSED
from blockdraft.serving.protocol.reading import parse_object, parse_request
from blockdraft.serving.server_config import ServerConfig


def refused(fields: dict[str, object]) -> ApiError:
    with pytest.raises(ApiError) as error:
        parse_request(CompletionRequest, {"prompt": "x", **fields})
    assert error.value.status == 400
    return error.value


def test_a_near_name_is_suggested() -> None:
    error = refused({"top_kk": 1})
    assert error.param == "top_kk" and "did you mean top_k?" in str(error)


@pytest.mark.parametrize("name", REFUSED)
def test_refused_parameters_say_why_and_pass_when_they_ask_for_nothing(name: str) -> None:
    error = refused({name: "something"})
    assert error.param == name and REFUSED[name].reason in str(error)
    for neutral in (None, *REFUSED[name].neutral):
        parse_request(CompletionRequest, {"prompt": "x", name: neutral})


def test_values_are_not_shown() -> None:
    """They may be prompts, and errors are logged."""
    for fields in ({"prompt": {"secret": 1}}, {"stop": ["secret", 5]}, {"seed": "secret"}):
        assert "secret" not in str(refused(dict(fields)))


def test_the_complaint_is_about_the_kind_that_was_meant() -> None:
    error = refused({"response_format": {"type": "json_schema", "json_schema": {}}})
    assert "json_schema" in str(error) and "name" in str(error)


BROKEN_LIMITS: list[tuple[dict[str, object], str]] = [
    ({"stop": ["x"] * 65}, "stop: List should have at most 64 items"),
    ({"stop": ["x", ""]}, "stop.1: String should have at least 1 character"),
    ({"prompt": []}, "prompt: List should have at least 1 item"),
    ({"prompt": [[]]}, "prompt.0: List should have at least 1 item"),
]


@pytest.mark.parametrize(("fields", "told"), BROKEN_LIMITS)
def test_of_a_union_the_broken_limit_is_told(fields: dict[str, object], told: str) -> None:
    assert str(refused(fields)).startswith(told)


def test_null_means_not_said() -> None:
    names = (name for name in CompletionRequest.model_fields if name != "prompt")
    body = json.dumps({"prompt": "x", **dict.fromkeys(names)}).encode()
    made = parse_request(CompletionRequest, parse_object(body))
    assert made == CompletionRequest(prompt="x")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("api_keys", (" ",)),
        ("max_body_bytes", 0),
        ("max_choices", 0),
        ("retry_after_seconds", 0),
        ("max_logprobs", -1),
        ("body_seconds", 0.0),
        ("request_seconds", -1.0),
        ("spec_decode_metrics", "all"),
    ],
)
def test_settings_out_of_range(field: str, value: object) -> None:
    config = ServerConfig()
    with pytest.raises(ConfigError):
        object.__setattr__(config, field, value)
        config.__post_init__()
