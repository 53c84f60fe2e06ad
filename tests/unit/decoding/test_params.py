"""Settings out of range are refused by name."""

import subprocess
import sys

import pytest

from blockdraft.decoding.params import SamplingParams, param_names
from blockdraft.errors import RequestError


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"max_new_tokens": -1}, "max_new_tokens"),
        ({"max_new_tokens": True}, "max_new_tokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 1e-9}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"min_p": 1.5}, "min_p"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"presence_penalty": float("inf")}, "presence_penalty"),
        ({"logit_bias": {3: float("inf")}}, "logit_bias"),
        ({"logit_bias": {-3: 1.0}}, "logit_bias"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"logprobs": -1}, "logprobs"),
        ({"logprobs": 10**9}, "logprobs"),
        ({"allowed_ids": ()}, "allowed_ids"),
        ({"stop": ("",)}, "stop"),
        ({"bad_words": ((),)}, "bad_words"),
    ],
)
def test_a_bad_setting_is_named(settings: dict[str, object], named: str) -> None:
    """R01, S15: nothing out of range is accepted, nothing is silently ignored."""
    with pytest.raises(RequestError, match=named) as caught:
        SamplingParams(**settings)  # pyright: ignore[reportArgumentType] - wrong on purpose
    assert "\n" not in str(caught.value)


WRONG_TYPES = {
    "max_new_tokens": "1.5",
    "frequency_penalty": "'high'",
    "law": "'typical'",
    "stop_ids": "5",
    "banned_ids": "('a',)",
    "bad_words": "(3,)",
}


def test_a_value_of_the_wrong_type_is_named() -> None:
    """In a process of its own, since the shape checks of these tests would refuse it first."""
    arguments = ", ".join(f"{name}={value}" for name, value in WRONG_TYPES.items())
    code = f"""
from blockdraft import SamplingParams
from blockdraft.errors import RequestError
for name, value in dict({arguments}).items():
    try:
        SamplingParams(**{{name: value}})
    except RequestError as error:
        print(name, "|", error)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    told = dict(line.split(" | ") for line in result.stdout.splitlines())
    assert list(told) == list(WRONG_TYPES), result.stderr
    assert all(name in message for name, message in told.items())


@pytest.mark.parametrize(
    ("params", "named"),
    [
        (SamplingParams(stop_ids=(9,)), "stop_ids"),
        (SamplingParams(stop_ids=(-1,)), "stop_ids"),
        (SamplingParams(banned_ids=(8,)), "banned_ids"),
        (SamplingParams(allowed_ids=(8,)), "allowed_ids"),
        (SamplingParams(logit_bias={8: 1.0}), "logit_bias"),
        (SamplingParams(bad_words=((1, 8),)), "bad_words"),
        (SamplingParams(logprobs=9), "logprobs"),
    ],
)
def test_ids_outside_the_vocabulary_are_named(params: SamplingParams, named: str) -> None:
    """R02."""
    with pytest.raises(RequestError, match=named):
        params.check_ids(8)


def test_names_are_listed_for_front_ends() -> None:
    assert {"temperature", "stop_ids", "law"} <= set(param_names())
