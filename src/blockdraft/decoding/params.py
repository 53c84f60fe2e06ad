"""`SamplingParams`: everything one request may ask of the decoder, validated once, never mutated.

It holds values only; what they do to logits is in `constraints.py` and `shaping.py`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Literal, cast

from blockdraft.decoding.rows import RowProcessor
from blockdraft.errors import RequestError

Law = Literal["argmax", "sampled"]

MIN_TEMPERATURE = 1e-4
MAX_SEED = 2**63 - 1
MAX_LOGPROBS = 1000
MAX_BIAS = 1e4


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """One request's settings. Raises RequestError for a value out of range.

    `temperature` 0 is greedy decoding. `law` names what the drafter's tokens are taken to be:
    "argmax" proposes the most likely token of each slot (a one-hot proposal), "sampled" draws it
    and applies full rejection sampling. `stop_ids` add to the target's own end-of-sequence ids,
    which `ignore_eos` switches off. `stop` strings are looked for in the decoded text.
    `bad_words` are token sequences that may not appear in the output. `min_tokens` is how many
    tokens come before any stop is allowed. `logprobs` None = off, 0 = of the emitted token, n = of
    the n most likely ones too. `max_draft_tokens` caps the drafts of a step (None = as many as the
    drafter has, 0 = plain decoding of this request). `processors` make extra `RowProcessor`s, one
    fresh set a request.
    """

    max_new_tokens: int = 256
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict[int, float])
    allowed_ids: tuple[int, ...] | None = None
    banned_ids: tuple[int, ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    min_tokens: int = 0
    stop_ids: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    seed: int | None = None
    logprobs: int | None = None
    law: Law = "argmax"
    max_draft_tokens: int | None = None
    processors: tuple[Callable[[], RowProcessor], ...] = ()

    def __post_init__(self) -> None:
        _whole("max_new_tokens", self.max_new_tokens, 1, None)
        _whole("top_k", self.top_k, 0, None)
        _whole("min_tokens", self.min_tokens, 0, None)
        _real("temperature", self.temperature, 0.0, 100.0)
        if 0 < self.temperature < MIN_TEMPERATURE:
            raise RequestError(
                f"temperature {self.temperature} is too small to divide by; "
                f"use 0 for greedy decoding, or at least {MIN_TEMPERATURE}"
            )
        _real("top_p", self.top_p, 0.0, 1.0, open_low=True)
        _real("min_p", self.min_p, 0.0, 1.0)
        _real("repetition_penalty", self.repetition_penalty, 0.0, 100.0, open_low=True)
        _real("presence_penalty", self.presence_penalty, -100.0, 100.0)
        _real("frequency_penalty", self.frequency_penalty, -100.0, 100.0)
        for token_id, bias in self.logit_bias.items():
            _whole("logit_bias id", token_id, 0, None)
            _real(f"logit_bias[{token_id}]", bias, -MAX_BIAS, MAX_BIAS)
        if self.seed is not None:
            _whole("seed", self.seed, 0, MAX_SEED)
        if self.logprobs is not None:
            _whole("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        if self.max_draft_tokens is not None:
            _whole("max_draft_tokens", self.max_draft_tokens, 0, None)
        if self.law not in ("argmax", "sampled"):
            raise RequestError(f"law is {self.law!r}; use 'argmax' or 'sampled'")
        if self.allowed_ids is not None and not self.allowed_ids:
            raise RequestError("allowed_ids is empty, so no token may be emitted; leave it unset")
        for name in ("allowed_ids", "banned_ids", "stop_ids"):
            _id_tuple(name, getattr(self, name))
        for word in self.bad_words:
            _id_tuple("bad_words", word)
        if any(not text for text in self.stop):
            raise RequestError("stop contains an empty string, which matches everywhere; remove it")
        if any(not word for word in self.bad_words):
            raise RequestError("bad_words contains an empty sequence; remove it")

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0

    def widest_block(self, remaining: int) -> int:
        """The most positions, anchor included, that a step may verify with `remaining` to emit."""
        if self.max_draft_tokens is None:
            return remaining
        return min(remaining, 1 + self.max_draft_tokens)

    def check_ids(self, vocab_size: int) -> None:
        """Raise RequestError when a token id named here is not one of the target's vocabulary."""
        named = {
            "logit_bias": tuple(self.logit_bias),
            "allowed_ids": self.allowed_ids or (),
            "banned_ids": self.banned_ids,
            "bad_words": tuple(i for word in self.bad_words for i in word),
            "stop_ids": self.stop_ids,
        }
        for name, ids in named.items():
            check_ids_in_vocab(name, ids, vocab_size)
        if self.logprobs is not None and self.logprobs > vocab_size:
            raise RequestError(f"logprobs {self.logprobs} exceeds the vocabulary of {vocab_size}")


def check_ids_in_vocab(name: str, ids: tuple[int, ...] | list[int], vocab_size: int) -> None:
    """Raise RequestError naming the first id outside [0, vocab_size)."""
    for token_id in ids:
        if not 0 <= token_id < vocab_size:
            raise RequestError(
                f"{name} contains token id {token_id}, outside the target's vocabulary "
                f"[0, {vocab_size}); check which tokenizer made it"
            )


def param_names() -> tuple[str, ...]:
    """The names of all settings, for front ends that map their own fields onto them."""
    return tuple(f.name for f in fields(SamplingParams))


def _id_tuple(name: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, Sequence) or not all(
        isinstance(part, int) for part in cast(Sequence[object], value)
    ):
        raise RequestError(f"{name} is {value!r}; it must be a sequence of token ids")


def _whole(name: str, value: object, low: int, high: int | None) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise RequestError(f"{name} is {value!r}; it must be a whole number")
    if value < low or (high is not None and value > high):
        bounds = f"at least {low}" if high is None else f"from {low} to {high}"
        raise RequestError(f"{name} is {value}; it must be {bounds}")


def _real(name: str, value: object, low: float, high: float, *, open_low: bool = False) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise RequestError(f"{name} is {value!r}; it must be a finite number")
    if value < low or value > high or (open_low and value == low):
        opening = "above" if open_low else "from"
        raise RequestError(f"{name} is {value}; it must be {opening} {low:g} up to {high:g}")
