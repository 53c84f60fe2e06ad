"""The soak notices what it is there to notice: its checks are run on answers that are wrong."""

import asyncio
import json
import random

import httpx
import pytest

from soak_client import carry_out
from soak_orders import Manner, Order
from soak_process import Sample
from soak_report import memory_figures


def choice(**fields: object) -> dict[str, object]:
    return {"index": 0, "text": "a", "finish_reason": None, **fields}


def stream(*documents: dict[str, object], end: str = "data: [DONE]\n\n") -> str:
    return "".join(f"data: {json.dumps(document)}\n\n" for document in documents) + end


GOOD: dict[str, object] = {"choices": [choice(finish_reason="stop")], "usage": {}}
ERROR: dict[str, object] = {"error": {"message": "m", "type": "t", "param": None, "code": None}}


def outcome(status: int, text: str, *, manner: Manner = "plain", num_choices: int = 1) -> str:
    """How an order ends whose answer is this one."""

    def answer(request: httpx.Request) -> httpx.Response:
        headers = {"x-request-id": "1", "retry-after": "1"}
        return httpx.Response(status, text=text, headers=headers)

    order = Order(
        kind="test", path="/v1/completions", body=b"{}", num_choices=num_choices, manner=manner
    )

    async def send() -> str:
        transport = httpx.MockTransport(answer)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return (await carry_out(client, order, random.Random(0))).status

    return asyncio.run(send())


def test_right_answers_are_right() -> None:
    assert outcome(200, json.dumps(GOOD)) == "answered"
    assert outcome(200, stream(GOOD), manner="stream") == "answered"
    assert outcome(503, json.dumps(ERROR)) == "overloaded"
    assert outcome(400, json.dumps(ERROR), num_choices=0) == "refused"


@pytest.mark.parametrize(
    ("status", "text", "manner", "num_choices"),
    [
        (500, json.dumps(ERROR), "plain", 1),
        (400, json.dumps(ERROR), "plain", 1),
        (200, json.dumps(GOOD), "plain", 0),
        (500, json.dumps(ERROR), "plain", 0),
        (400, json.dumps({"error": "no"}), "plain", 0),
        (200, json.dumps(GOOD), "plain", 2),
        (200, json.dumps({"choices": [choice()], "usage": {}}), "plain", 1),
        (200, json.dumps({"choices": [choice(finish_reason="error")], "usage": {}}), "plain", 1),
        (200, stream(GOOD, end=""), "stream", 1),
        (200, stream(GOOD, GOOD), "stream", 1),
        (200, stream(ERROR), "stream", 1),
        (200, stream(GOOD) + "data: [DONE]\n\n", "stream", 2),
        (200, stream({"choices": [choice()], "usage": {}}), "stream", 1),
    ],
)
def test_wrong_answers_are_noticed(
    status: int, text: str, manner: Manner, num_choices: int
) -> None:
    assert outcome(status, text, manner=manner, num_choices=num_choices) == "wrong"


def test_memory_that_grows_has_a_slope() -> None:
    samples = [
        Sample(seconds=k, rss=100 + k / 60, children_rss=0, num_files=9, num_threads=4)
        for k in range(600)
    ]
    figures = memory_figures(samples)
    assert figures.slope == pytest.approx(60)
    assert figures.growth == pytest.approx(315 / 60, abs=0.1)
