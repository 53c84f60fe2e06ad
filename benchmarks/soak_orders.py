"""What the soak asks for: one kind of request after another, drawn at random from a fixed mix.

It sends nothing. Orders with an `expected` answer come from `soak_answers.py`.
"""

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from soak_answers import Known

Manner = Literal["plain", "stream", "slow", "leave", "leave early", "half a body"]
"""How a client behaves; the last three go away before their answer is complete."""

LEAVING = ("leave", "leave early", "half a body")
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
LETTERS = "abcdefghijklmnop\u00e9\u6f22"
NUM_TEXTS = 16
LONG = (60, 90, 130)
CITY = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "kind": {"enum": ["red", "blue"]}},
    "required": ["ok", "kind"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Oslo", "Rome"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One request. `num_choices` is how many answers it asks for, 0 = it must be refused.

    `holds` looks at the text of a choice that ended by itself; `known` has the right answers.
    """

    kind: str
    path: str
    body: bytes
    num_choices: int
    manner: Manner = "plain"
    holds: Callable[[str], bool] | None = None
    known: Known | None = None

    @property
    def is_streamed(self) -> bool:
        return self.manner in ("stream", "slow", "leave")


def draw(rng: random.Random, known: Sequence[Known]) -> Order:
    """The next request; three in ten have an answer that is known."""
    kinds = (_known, _known, _known, _chat, _constrained, _tools, _big, _long, _leaving, _bad)
    return rng.choice(kinds)(rng, known)


def _manner(rng: random.Random) -> Manner:
    return rng.choice(("plain", "stream", "stream"))


def _order(kind: str, path: str, fields: dict[str, object], manner: Manner, n: int = 1) -> Order:
    body = {**fields, "n": n} if n > 1 else fields
    if manner in ("stream", "slow", "leave"):
        body = {**body, "stream": True, "stream_options": {"include_usage": True}}
    data = json.dumps(body).encode()
    return Order(kind=kind, path=path, body=data, num_choices=n, manner=manner)


def _known(rng: random.Random, known: Sequence[Known]) -> Order:
    """One whose answers were worked out before, drafted for or not."""
    one = rng.choice(known)
    own: dict[str, object] = {"speculation": rng.choice(("auto", "off"))}
    if rng.random() < 0.2:
        own = {"max_draft_tokens": rng.randint(1, 3)}
    fields = {**one.fields, "return_token_ids": True, "blockdraft": own}
    made = _order(one.kind, TEXT, fields, _manner(rng), len(one.answers))
    return _with(made, known=one)


def _chat(rng: random.Random, known: Sequence[Known]) -> Order:
    """A conversation, sampled, with whatever extras clients like to see."""
    fields: dict[str, object] = {
        "messages": [{"role": "user", "content": _words(rng, 12)}],
        "max_tokens": rng.randint(1, 40),
        "logprobs": True,
        "top_logprobs": rng.randint(0, 5),
        "presence_penalty": rng.choice((0, 0.5)),
        "repetition_penalty": rng.choice((1, 1.2)),
        "bad_words": ["zz"],
        "min_tokens": rng.choice((0, 1)),
        "stop": rng.choice((None, "e", ["xy", "q"])),
        "blockdraft": {"metrics": "detailed", "step_details": rng.random() < 0.5},
    }
    return _order("chat", CHAT, fields, _manner(rng), rng.choice((1, 1, 2, 3)))


def _constrained(rng: random.Random, known: Sequence[Known]) -> Order:
    """Output under a grammar, which must hold whenever the answer ended by itself."""
    words = sorted({_words(rng, 1) for _ in range(3)})
    ways: tuple[tuple[dict[str, object], Callable[[str], bool]], ...] = (
        ({"structured_outputs": {"choice": words}}, lambda text: text in words),
        (
            {"structured_outputs": {"regex": "[a-c]{1,9}-[0-9]{2}"}},
            lambda text: re.fullmatch("[a-c]{1,9}-[0-9]{2}", text) is not None,
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "city", "schema": CITY},
                }
            },
            lambda text: set(json.loads(text)) == {"ok", "kind"},
        ),
    )
    way, holds = rng.choice(ways)
    fields = {"prompt": _words(rng, 8), "max_tokens": 80, "seed": rng.getrandbits(40), **way}
    return _with(_order("constrained", TEXT, fields, _manner(rng)), holds=holds)


def _tools(rng: random.Random, known: Sequence[Known]) -> Order:
    fields: dict[str, object] = {
        "messages": [{"role": "user", "content": _words(rng, 4)}],
        "tools": [WEATHER],
        "tool_choice": rng.choice(("auto", "required", "none")),
        "parallel_tool_calls": False,
        "max_tokens": 120,
    }
    return _order("tools", CHAT, fields, _manner(rng))


def _big(rng: random.Random, known: Sequence[Known]) -> Order:
    """A stream of many bytes, read slowly, so that they pile up on their way."""
    fields: dict[str, object] = {
        "prompt": [_words(rng, 2), _words(rng, 3)],
        "max_tokens": 60,
        "ignore_eos": True,
        "logprobs": 20,
    }
    made = _order("slow reader", TEXT, fields, "slow")
    return Order(kind=made.kind, path=made.path, body=made.body, num_choices=2, manner=made.manner)


def _long(rng: random.Random, known: Sequence[Known]) -> Order:
    """A prompt of many hundred tokens, often one that begins like another."""
    text = _words(rng, rng.choice(LONG)) + _words(rng, 3)
    fields: dict[str, object] = {"prompt": text, "max_tokens": rng.randint(1, 20)}
    return _order("long prompt", TEXT, fields, _manner(rng))


def _leaving(rng: random.Random, known: Sequence[Known]) -> Order:
    fields: dict[str, object] = {
        "prompt": _words(rng, 8),
        "max_tokens": 300,
        "ignore_eos": True,
    }
    manner: Manner = rng.choice(("leave", "leave early", "half a body"))
    return _order("leaves", TEXT, fields, manner, rng.choice((1, 2)))


def _bad(rng: random.Random, known: Sequence[Known]) -> Order:
    """Requests that can't be served; each must be refused with a 4xx and a reason."""
    bodies: tuple[tuple[str, object], ...] = (
        (TEXT, {"prompt": "x", "temperature": "hot"}),
        (TEXT, {"prompt": "x", "suffix": "y"}),
        (TEXT, {"prompt": "x", "nn": 1}),
        (TEXT, {"prompt": "x", "n": 1000}),
        (TEXT, {"prompt": [9_999_999]}),
        (TEXT, {"prompt": "x" * 5000}),
        (TEXT, {"prompt": "x", "structured_outputs": {"regex": "(("}}),
        (TEXT, {"prompt": "x", "structured_outputs": {"grammar": "root ::= nothing"}}),
        (CHAT, {"messages": []}),
        (CHAT, {"messages": [{"role": "user", "content": "x"}], "chat_template": "{{ 1 }}"}),
        (CHAT, {"messages": [{"role": "user", "content": "x"}], "tool_choice": "required"}),
        (CHAT, {"model": "other", "messages": [{"role": "user", "content": "x"}]}),
        ("/tokenize", {"prompt": 3}),
        ("/detokenize", {"tokens": [-1]}),
        ("/nowhere", {}),
    )
    path, body = rng.choice(bodies)
    data = json.dumps(body).encode()
    if rng.random() < 0.2:
        data = rng.choice((b"", b"{", b"\xff", data[:-1], b"[" * 5000))
    return Order(kind="bad", path=path, body=data, num_choices=0)


def _with(
    order: Order, known: Known | None = None, holds: Callable[[str], bool] | None = None
) -> Order:
    return Order(
        kind=order.kind,
        path=order.path,
        body=order.body,
        num_choices=order.num_choices,
        manner=order.manner,
        holds=holds,
        known=known,
    )


def _words(rng: random.Random, count: int) -> str:
    """One of a few texts of this many words, so that caches of texts are full after warm-up."""
    own = random.Random(NUM_TEXTS * count + rng.randrange(NUM_TEXTS))
    return " ".join("".join(own.choices(LETTERS, k=own.randint(2, 7))) for _ in range(count))
