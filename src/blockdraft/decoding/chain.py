"""Builds the processor chain of a request, in the one fixed order that the docs promise.

Order: bias; allowed and banned tokens, bad words, min_tokens; extra processors (grammars);
repetition penalty (prompt and output); presence and frequency penalties (output); temperature;
top-k; top-p; min-p. What would do nothing is left out.
"""

from collections.abc import Callable, Sequence
from functools import partial

from blockdraft.decoding.constraints import (
    BadWords,
    MinTokens,
    OutputPenalties,
    RepetitionPenalty,
    add_bias,
    forbid,
    keep_only,
)
from blockdraft.decoding.params import SamplingParams
from blockdraft.decoding.rows import RowChain, RowProcessor, Stateless, VocabRow
from blockdraft.decoding.shaping import apply_temperature, keep_min_p, keep_top_k, keep_top_p
from blockdraft.errors import RequestError


def build_chain(
    params: SamplingParams, prompt_ids: Sequence[int], stop_ids: Sequence[int]
) -> RowChain:
    """A fresh chain for a request whose output may end with one of `stop_ids`."""
    chain = _constraints(params, prompt_ids, stop_ids)
    if not params.is_greedy:
        chain += _shaping(params)
    return RowChain(chain)


def _constraints(
    params: SamplingParams, prompt_ids: Sequence[int], stop_ids: Sequence[int]
) -> list[RowProcessor]:
    chain: list[RowProcessor] = []
    if params.logit_bias:
        chain.append(Stateless(partial(add_bias, bias=params.logit_bias)))
    if params.allowed_ids is not None:
        chain.append(Stateless(partial(keep_only, allowed_ids=params.allowed_ids)))
    if params.banned_ids:
        chain.append(Stateless(partial(forbid, banned_ids=params.banned_ids)))
    if params.bad_words:
        chain.append(BadWords(params.bad_words))
    if params.min_tokens and stop_ids:
        chain.append(MinTokens(params.min_tokens, stop_ids))
    chain += [_made(make) for make in params.processors]
    if params.repetition_penalty != 1.0:
        chain.append(RepetitionPenalty(params.repetition_penalty, prompt_ids))
    if params.presence_penalty or params.frequency_penalty:
        chain.append(OutputPenalties(params.presence_penalty, params.frequency_penalty))
    return chain


def _made(make: Callable[[], RowProcessor]) -> RowProcessor:
    try:
        return make()
    except Exception as error:
        raise RequestError(
            f"a processor of the request can't be made ({type(error).__name__}: {error})"
        ) from error


def _shaping(params: SamplingParams) -> list[RowProcessor]:
    steps: list[Callable[[VocabRow], VocabRow]] = []
    if params.temperature != 1.0:
        steps.append(partial(apply_temperature, temperature=params.temperature))
    if params.top_k:
        steps.append(partial(keep_top_k, k=params.top_k))
    if params.top_p < 1.0:
        steps.append(partial(keep_top_p, p=params.top_p))
    if params.min_p > 0.0:
        steps.append(partial(keep_min_p, min_p=params.min_p))
    return [Stateless(step, keeps_argmax=True) for step in steps]
