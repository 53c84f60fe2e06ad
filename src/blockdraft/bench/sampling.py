"""A row's own fields as our own sampling settings, for a model that is loaded here.

Which fields a row may have in process is `fields.IN_PROCESS`.
"""

from collections.abc import Mapping
from typing import cast

from blockdraft.bench.config import RequestSettings
from blockdraft.bench.documents import as_list, as_object
from blockdraft.bench.prompt import Asks
from blockdraft.decoding import SamplingParams
from blockdraft.errors import RequestError


def sampling_of(settings: RequestSettings, asks: Asks, number: int) -> SamplingParams:
    """Of request `number` of a level; `settings` are those with the row's own in them.

    Raises RequestError for a field whose value makes no sense.
    """
    fields = asks.fields
    return SamplingParams(
        max_new_tokens=settings.max_tokens,
        temperature=settings.temperature,
        seed=settings.seed_of(asks, number) if settings.temperature > 0 else None,
        ignore_eos=settings.ignore_eos,
        top_k=max(0, int(_number(fields, "top_k", 0))),  # vLLM's -1 means no limit
        top_p=_number(fields, "top_p", 1),
        min_p=_number(fields, "min_p", 0),
        repetition_penalty=_number(fields, "repetition_penalty", 1),
        presence_penalty=_number(fields, "presence_penalty", 0),
        frequency_penalty=_number(fields, "frequency_penalty", 0),
        min_tokens=int(_number(fields, "min_tokens", 0)),
        stop=_stop(fields),
        stop_ids=_stop_ids(fields),
        logit_bias=_logit_bias(fields),
    )


def _number(fields: Mapping[str, object], name: str, default: float) -> float:
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RequestError(f"{name!r} is {value!r:.40}, not a number")
    return float(value)


def _stop(fields: Mapping[str, object]) -> tuple[str, ...]:
    value = fields.get("stop", [])
    values = [value] if isinstance(value, str) else as_list(value)
    texts = tuple(text for text in values if isinstance(text, str))
    if len(texts) < len(values) or not isinstance(value, str | list):
        raise RequestError(f"'stop' is {value!r:.40}, not a text or a list of texts")
    return texts


def _stop_ids(fields: Mapping[str, object]) -> tuple[int, ...]:
    values = as_list(fields.get("stop_token_ids", []))
    ids = tuple(one for one in values if type(one) is int)
    if len(ids) < len(values):
        raise RequestError("'stop_token_ids' must be a list of token ids")
    return ids


def _logit_bias(fields: Mapping[str, object]) -> dict[int, float]:
    """OpenAI's keys are token ids as text."""
    given = as_object(fields.get("logit_bias", {}))
    try:
        return {int(key): float(cast(float, value)) for key, value in (given or {}).items()}
    except (TypeError, ValueError) as error:
        raise RequestError("'logit_bias' must be an object of token ids and numbers") from error
