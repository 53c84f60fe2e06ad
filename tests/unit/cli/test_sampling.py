"""Bad words: texts to the id sequences that may not be written."""

from collections.abc import Sequence

import pytest

from blockdraft.cli.sampling import add_bad_words
from blockdraft.decoding import SamplingParams
from blockdraft.errors import ConfigError
from blockdraft.target import Message, TextCodec


class OrdinalTokenizer:
    """One id a character, between a BOS (1) and, if wanted, an EOS (2)."""

    chat_template: object = None

    def __init__(self, ending: Sequence[int] = ()) -> None:
        self.ending = list(ending)

    def __len__(self) -> int:
        return 256

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        ids = [ord(character) for character in text]
        return [1, *ids, *self.ending] if add_special_tokens else ids

    def decode(
        self, ids: list[int], *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool
    ) -> str:
        return "".join(chr(token_id) for token_id in ids)

    def apply_chat_template(
        self,
        conversation: list[Message],
        *,
        add_generation_prompt: bool,
        tokenize: bool,
        **template_args: object,
    ) -> str:
        raise NotImplementedError


@pytest.mark.parametrize("ending", [(), (2,)])
def test_words_are_banned_alone_and_after_a_space(ending: Sequence[int]) -> None:
    codec = TextCodec(OrdinalTokenizer(ending), "ordinal")
    params = add_bad_words(SamplingParams(), ["ab", "c"], codec)
    assert params.bad_words == ((97, 98), (32, 97, 98), (99,), (32, 99))


def test_no_words_change_nothing() -> None:
    params = SamplingParams()
    assert add_bad_words(params, None, None) is params


def test_words_need_a_tokenizer() -> None:
    with pytest.raises(ConfigError, match="use --banned-ids"):
        add_bad_words(SamplingParams(), ["ab"], None)
