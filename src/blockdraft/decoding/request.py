"""Checks a request against the target and gathers what decoding one request needs.

It raises before any model runs, so that a bad request costs nothing.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from blockdraft.decoding.chain import build_chain
from blockdraft.decoding.choose import Chooser
from blockdraft.decoding.emission import Emission
from blockdraft.decoding.interfaces import TargetSpec
from blockdraft.decoding.params import MAX_SEED, SamplingParams, check_ids_in_vocab
from blockdraft.decoding.rows import RowChain
from blockdraft.decoding.text import DecodeText
from blockdraft.errors import RequestError


@dataclass(frozen=True, slots=True)
class Request:
    """One request's own state: its processors, its choices and what it has emitted."""

    chain: RowChain
    chooser: Chooser
    emission: Emission


def open_request(
    spec: TargetSpec,
    prompt_ids: Sequence[int],
    params: SamplingParams,
    decode_text: DecodeText | None,
) -> Request:
    """A checked request. Raises RequestError for a prompt or setting that can't be served."""
    check_ids_in_vocab("the prompt", tuple(prompt_ids), spec.vocab_size)
    params.check_ids(spec.vocab_size)
    if params.stop and decode_text is None:
        raise RequestError(
            "stop strings need a tokenizer and this model has none; use stop_ids instead"
        )
    stop_ids = params.stop_ids if params.ignore_eos else (*spec.stop_ids, *params.stop_ids)
    seed = params.seed if params.seed is not None else secrets.randbelow(MAX_SEED)
    chain = build_chain(params, prompt_ids, stop_ids)
    emission = Emission(
        max_tokens=_max_tokens(spec, len(prompt_ids), params.max_new_tokens),
        min_tokens=params.min_tokens,
        stop_ids=stop_ids,
        stop=params.stop,
        decode_text=decode_text,
    )
    return Request(chain, Chooser(params, chain, seed, spec.vocab_size), emission)


def choose_block_size(asked: int | None, most: int) -> int:
    """The block size of a request: `most` (the drafter's own), or a narrower one if asked for."""
    if asked is None:
        return most
    if asked < 1:
        raise RequestError(f"block_size is {asked}; it must be at least 1 (the anchor alone)")
    return min(asked, most)


def _max_tokens(spec: TargetSpec, prompt_len: int, max_new_tokens: int) -> int:
    if prompt_len == 0:
        raise RequestError(
            "the prompt has no tokens; give at least one (a chat template or a BOS token adds some)"
        )
    if spec.max_context_len is None:
        return max_new_tokens
    room = spec.max_context_len - prompt_len
    if room < 1:
        raise RequestError(
            f"the prompt has {prompt_len} tokens and the target's context holds "
            f"{spec.max_context_len}, prompt and output together; shorten the prompt"
        )
    return min(max_new_tokens, room)
