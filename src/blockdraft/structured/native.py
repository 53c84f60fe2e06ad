"""The only calls into xgrammar of a process that decodes: vocabulary, compiled grammar, matcher.

Import it late: it needs the optional package xgrammar. It compiles nothing, see `worker`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol, cast

import torch
import xgrammar
from jaxtyping import Int32
from torch import Tensor

from blockdraft.errors import ConfigError


class AddedToken(Protocol):
    """An entry of a tokenizer's table of added tokens."""

    content: str
    special: bool


class AddsTokens(Protocol):
    """The part of a transformers tokenizer that says which tokens are not text."""

    added_tokens_decoder: Mapping[int, AddedToken]
    all_special_ids: Sequence[int]


class Vocabulary(NamedTuple):
    """The bytes of every token as xgrammar knows them; `unusable` are no text (special, padding).

    `as_json` rebuilds it in another process.
    """

    info: xgrammar.TokenizerInfo
    unusable: frozenset[int]
    vocab_size: int
    stop_ids: tuple[int, ...]
    as_json: str


def read_vocabulary(
    tokenizer: object,
    vocab_size: int,
    stop_ids: Sequence[int],
    markers: Collection[str] = (),
) -> Vocabulary:
    """The bytes of ids [0, vocab_size), the rows of the model's logits.

    Special tokens and rows without a token get none, so that no grammar can ever let them through.
    `markers` are text all the same: whoever reads the output sees them. Raises ConfigError for a
    tokenizer whose bytes can't be known.
    """
    read = cast(Callable[..., xgrammar.TokenizerInfo], xgrammar.TokenizerInfo.from_huggingface)
    try:
        found = read(tokenizer, vocab_size=vocab_size, stop_token_ids=list(stop_ids))
        added = cast(AddsTokens, tokenizer).added_tokens_decoder
        special = set(cast(AddsTokens, tokenizer).all_special_ids)
    except (AttributeError, TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"the tokenizer can't be used with grammars ({error}); serve without them, or use a "
            "model with a fast tokenizer"
        ) from error
    token_bytes = list(found.decoded_vocab)
    for token_id, token in added.items():
        if token_id < vocab_size:
            token_bytes[token_id] = token.content.encode()
            if token.special:
                special.add(token_id)
            if token.content in markers and token_id not in stop_ids:
                special.discard(token_id)
    for token_id in special:
        if token_id < vocab_size:
            token_bytes[token_id] = b""
    info = xgrammar.TokenizerInfo(
        token_bytes,
        xgrammar.VocabType.RAW,
        vocab_size=vocab_size,
        stop_token_ids=list(stop_ids),
        add_prefix_space=found.add_prefix_space,
    )
    unusable = frozenset(i for i, text in enumerate(token_bytes) if not text) - set(stop_ids)
    return Vocabulary(info, unusable, vocab_size, tuple(stop_ids), info.serialize_json())


class CompiledGrammar(NamedTuple):
    """A grammar that is ready for any number of requests; `num_bytes` is a bound of its size."""

    grammar: xgrammar.CompiledGrammar
    num_bytes: int


def load_compiled(text: bytes, vocabulary: Vocabulary) -> CompiledGrammar:
    """What a worker has compiled for the same vocabulary."""
    grammar = xgrammar.CompiledGrammar.deserialize_json(text.decode(), vocabulary.info)
    return CompiledGrammar(grammar, max(len(text), grammar.memory_size_bytes))


class Matcher:
    """Where an output stands in its grammar. It never prints and never raises for a wrong token."""

    def __init__(self, compiled: CompiledGrammar, vocabulary: Vocabulary) -> None:
        self._matcher = xgrammar.GrammarMatcher(compiled.grammar)
        self._vocabulary = vocabulary
        self._words = xgrammar.allocate_token_bitmask(1, vocabulary.vocab_size)

    def accept(self, token_id: int) -> bool:
        """Go on with a token; False, and nothing changes, when the grammar does not allow it.

        Not to be called after a stop id was accepted.
        """
        # xgrammar writes a warning to stderr for these, at every draft that holds one.
        if token_id in self._vocabulary.unusable or not 0 <= token_id < self._vocabulary.vocab_size:
            return False
        return self._matcher.accept_token(token_id)

    def rollback(self, count: int) -> None:
        """Forget the last `count` accepted tokens."""
        self._matcher.rollback(count)

    def allowed(self) -> Int32[Tensor, " words"]:
        """Bit i % 32 of word i // 32 is set when token i may come next; a fresh tensor."""
        self._matcher.fill_next_token_bitmask(self._words)
        return self._words[0].clone()


def unpack(words: Int32[Tensor, " words"], vocab_size: int) -> Tensor:
    """One bool for each token, on the device of `words`."""
    shifts = torch.arange(32, dtype=torch.int32, device=words.device)
    bits = (words.unsqueeze(-1) >> shifts) & 1
    return bits.view(-1)[:vocab_size].bool()
