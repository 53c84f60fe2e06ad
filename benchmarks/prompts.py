"""The benchmark's prompts: the first 32 each of GSM8K test, HumanEval and MT-Bench, as token ids.

Ids are made once, by the target's tokenizer, and handed to every system. It runs no model.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from blockdraft.target import Message, TextCodec

SETS = ("gsm8k", "humaneval", "mt_bench")
NUM_PROMPTS = 32
DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkPrompt:
    """The first user turn of one problem. Later turns would depend on each system's own answer."""

    id: str
    category: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPrompt:
    """A prompt in the target's chat template, ready to decode."""

    id: str
    category: str
    ids: tuple[int, ...]


def read_set(name: str, limit: int = NUM_PROMPTS) -> tuple[BenchmarkPrompt, ...]:
    """The first `limit` prompts of a set, in the set's own order.

    Raises ValueError for another name or a limit outside 1 to 32.
    """
    if name not in SETS:
        raise ValueError(f"prompt set {name!r}: choose from {', '.join(SETS)}")
    if not 1 <= limit <= NUM_PROMPTS:
        raise ValueError(f"{limit} prompts: choose 1 to {NUM_PROMPTS}")
    lines = (DATA / f"{name}.jsonl").read_text(encoding="ascii").split("\n")
    return tuple(_prompt(line) for line in lines[:limit])


def encode(prompts: Sequence[BenchmarkPrompt], codec: TextCodec) -> tuple[TokenPrompt, ...]:
    """Each prompt as one user message of the target's chat template, with its reply opened."""
    return tuple(
        TokenPrompt(
            id=prompt.id,
            category=prompt.category,
            ids=tuple(codec.chat([Message(role="user", content=prompt.text)])),
        )
        for prompt in prompts
    )


def _prompt(line: str) -> BenchmarkPrompt:
    record = json.loads(line)
    turns = cast(list[str], record["turns"])
    return BenchmarkPrompt(id=record["id"], category=record["category"], text=turns[0])
