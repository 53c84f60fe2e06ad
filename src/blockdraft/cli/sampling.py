"""`SamplingParams` from command-line flags.

A flag that was not given is left to `SamplingParams`, which owns defaults and ranges.
"""

import logging
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from blockdraft.decoding import SamplingParams
from blockdraft.decoding.params import param_names
from blockdraft.errors import ConfigError, RequestError
from blockdraft.target import TextCodec

NEEDS_CODEC = "bad_words"
NOT_A_FLAG = "processors"
ONLY_SAMPLING = ("top_k", "top_p", "min_p", "seed", "law")
"""Settings that change nothing in greedy decoding."""

_LOGGER = logging.getLogger("blockdraft")


def read_sampling(args: Namespace) -> SamplingParams:
    """All settings but bad words, which need the target's tokenizer (`add_bad_words`).

    Raises RequestError for a setting out of range, ConfigError for a token with two biases.
    """
    names = set(param_names()) - {NEEDS_CODEC, NOT_A_FLAG}
    given = {name: getattr(args, name, None) for name in names}
    chosen: dict[str, object] = {name: value for name, value in given.items() if value is not None}
    if "logit_bias" in chosen:
        chosen["logit_bias"] = _biases(args.logit_bias)
    if "stop" in chosen:
        chosen["stop"] = tuple(args.stop)
    if any(not text for text in args.bad_words or ()):
        raise RequestError("--bad-words holds an empty text; remove it")
    return replace(SamplingParams(), **chosen)


def warn_of_no_effect(params: SamplingParams, drafter: str) -> None:
    """Tell, one line a reason, which of the chosen settings can't change anything."""
    default = SamplingParams()
    if params.is_greedy:
        idle = [name for name in ONLY_SAMPLING if getattr(params, name) != getattr(default, name)]
        if idle:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in idle)
            _LOGGER.warning(
                "no effect in greedy decoding: %s; give --temperature above 0 to sample", flags
            )
    elif params.law == "sampled" and drafter in ("none", "prompt-lookup"):
        _LOGGER.warning(
            "no effect with --drafter %s: --law sampled; it has no probabilities to draw drafts "
            "from, so the argmax law applies",
            drafter,
        )
    if params.min_tokens >= params.max_new_tokens:
        _LOGGER.warning(
            "--min-tokens %d reaches the limit of %d new tokens, so no stop can come before it",
            params.min_tokens,
            params.max_new_tokens,
        )


def add_bad_words(
    params: SamplingParams, texts: Sequence[str] | None, codec: TextCodec | None
) -> SamplingParams:
    """`params` with `texts` banned, each as it stands and after a space."""
    if not texts:
        return params
    if codec is None:
        raise ConfigError("--bad-words needs a tokenizer and this model has none; use --banned-ids")
    words = [_word_ids(codec, spelled) for text in texts for spelled in (text, f" {text}")]
    return replace(params, bad_words=tuple(dict.fromkeys(words)))


def _biases(pairs: Sequence[tuple[int, float]]) -> dict[int, float]:
    token_id, times = Counter(token_id for token_id, _ in pairs).most_common(1)[0]
    if times > 1:
        raise ConfigError(f"--logit-bias for token id {token_id} is given twice; give one value")
    return dict(pairs)


def _word_ids(codec: TextCodec, text: str) -> tuple[int, ...]:
    """The ids of `text` alone, without the special tokens that the tokenizer puts around it."""
    ids, around = codec.encode(text), codec.encode("")
    num_leading = 0
    while num_leading < len(around) and ids[num_leading] == around[num_leading]:
        num_leading += 1
    return tuple(ids[num_leading : len(ids) - (len(around) - num_leading)])
