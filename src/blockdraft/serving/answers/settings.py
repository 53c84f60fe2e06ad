"""Request fields as `SamplingParams`: names, defaults and limits of the API mapped to the engine's.

What a setting does to logits is decided in `decoding`.
"""

import hashlib
from collections.abc import Callable
from typing import TypeVar

from blockdraft.decoding import SamplingParams
from blockdraft.decoding.params import MIN_TEMPERATURE
from blockdraft.decoding.rows import RowProcessor
from blockdraft.serving.answers.serving import Serving
from blockdraft.serving.errors import ApiError
from blockdraft.serving.protocol.sampling import AnswerFields

Number = TypeVar("Number", int, float)

MakeProcessor = Callable[[], RowProcessor]


def derived_seed(seed: int | None, choice: int) -> int | None:
    """The seed of choice number `choice` of a request: its own for 0, else drawn from both.

    The first 63 bits of SHA-256 of "seed:choice", so that anyone can repeat one choice alone.
    """
    if seed is None or choice == 0:
        return seed
    digest = hashlib.sha256(f"{seed}:{choice}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def sampling_params(
    serving: Serving,
    request: AnswerFields,
    *,
    max_tokens: int | None,
    logprobs: int | None,
    grammar: MakeProcessor | None,
) -> SamplingParams:
    """The engine's settings; `max_tokens` None = the room in the context.

    Raises ApiError or RequestError 400 for settings that can't be served as asked.
    """
    service = serving.service
    most = service.max_model_len
    if max_tokens is not None and max_tokens > most:
        raise ApiError(
            f"max_tokens is {max_tokens}, and the context holds {most} tokens, prompt and answer "
            "together; ask for fewer",
            param="max_tokens",
        )
    max_new_tokens = most if max_tokens is None else max_tokens
    min_tokens = request.min_tokens or 0
    if min_tokens > max_new_tokens:
        raise ApiError(
            f"min_tokens {min_tokens} is more than max_tokens {max_new_tokens}", param="min_tokens"
        )
    _check_best_of(request)
    defaults = service.defaults
    temperature = _first(request.temperature, defaults.temperature, 1.0)
    if 0 < temperature < MIN_TEMPERATURE:
        raise ApiError(
            f"temperature {temperature} is too small to divide by; use 0 for greedy decoding, or "
            f"at least {MIN_TEMPERATURE}",
            param="temperature",
        )
    top_k = max(0, _first(request.top_k, defaults.top_k, 0))
    allowed = _ids(serving, "allowed_token_ids", request.allowed_token_ids)
    return SamplingParams(
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=0 if top_k >= service.vocab_size else top_k,
        top_p=_first(request.top_p, defaults.top_p, 1.0),
        min_p=_first(request.min_p, defaults.min_p, 0.0),
        repetition_penalty=_first(request.repetition_penalty, defaults.repetition_penalty, 1.0),
        presence_penalty=request.presence_penalty or 0.0,
        frequency_penalty=request.frequency_penalty or 0.0,
        logit_bias=_logit_bias(serving, request.logit_bias),
        allowed_ids=allowed or None,
        bad_words=_bad_words(serving, request.bad_words),
        min_tokens=min_tokens,
        stop_ids=_ids(serving, "stop_token_ids", request.stop_token_ids),
        stop=stop_strings(request),
        ignore_eos=bool(request.ignore_eos),
        seed=request.seed,
        logprobs=logprobs,
        law=service.law,
        max_draft_tokens=0 if request.own.speculation == "off" else request.own.max_draft_tokens,
        processors=() if grammar is None else (grammar,),
    )


def stop_strings(request: AnswerFields) -> tuple[str, ...]:
    """The stop strings, none or more."""
    stop = request.stop
    if stop is None:
        return ()
    return (stop,) if isinstance(stop, str) else tuple(stop)


def _first(asked: Number | None, default: Number | None, otherwise: Number) -> Number:
    if asked is not None:
        return asked
    return otherwise if default is None else default


def _check_best_of(request: AnswerFields) -> None:
    if request.best_of is not None and request.best_of != request.choices:
        raise ApiError(
            f"best_of {request.best_of} is not supported: answers are not ranked; "
            "leave it out, or make it equal to n",
            param="best_of",
            code="unsupported_parameter",
        )


def _ids(serving: Serving, name: str, ids: list[int] | None) -> tuple[int, ...]:
    vocab_size = serving.service.vocab_size
    for token_id in ids or ():
        if not 0 <= token_id < vocab_size:
            raise ApiError(
                f"{name}: token id {token_id} is outside the vocabulary [0, {vocab_size})",
                param=name,
            )
    return tuple(ids or ())


def _logit_bias(serving: Serving, bias: dict[str, float] | None) -> dict[int, float]:
    made: dict[int, float] = {}
    for name, value in (bias or {}).items():
        # One spelling for each id, or the second of two would silently win over the first.
        is_id = name.isascii() and name.isdigit() and len(name) <= 10 and name == str(int(name))
        if not is_id:
            raise ApiError(f"logit_bias: {name[:40]!r} is no token id", param="logit_bias")
        made[int(name)] = value
    _ids(serving, "logit_bias", list(made))
    return made


def _bad_words(serving: Serving, words: list[str] | None) -> tuple[tuple[int, ...], ...]:
    """Each word as it is tokenized at the start of a text and after a space, without doubles."""
    if not words:
        return ()
    encode = serving.codec.encode
    spelled = [
        tuple(encode(text, add_special_tokens=False))
        for word in words
        for text in (word, f" {word.lstrip()}")
    ]
    return tuple(dict.fromkeys(ids for ids in spelled if ids))
