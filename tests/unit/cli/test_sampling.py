"""Bad words become id sequences, and settings that change nothing are told."""

from collections.abc import Sequence

import pytest

from blockdraft.cli.sampling import add_bad_words, warn_of_no_effect
from blockdraft.decoding import SamplingParams
from blockdraft.errors import ConfigError
from blockdraft.target import ChatMessage, TextCodec


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
        conversation: list[ChatMessage],
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


SAMPLED = SamplingParams(temperature=1.0, law="sampled", top_k=5, seed=1)


@pytest.mark.parametrize(
    ("params", "drafter", "messages"),
    [
        (SamplingParams(), "none", []),
        (SamplingParams(top_k=0, top_p=1.0), "toy", []),
        (SamplingParams(top_k=5), "toy", ["greedy decoding: --top-k;"]),
        (
            SamplingParams(top_p=0.5, min_p=0.1, seed=0, law="sampled"),
            "prompt-lookup",
            ["greedy decoding: --top-p, --min-p, --seed, --law;"],
        ),
        (SAMPLED, "toy", []),
        (SAMPLED, "none", ["with --drafter none: --law sampled"]),
        (SAMPLED, "prompt-lookup", ["with --drafter prompt-lookup: --law sampled"]),
        (SamplingParams(min_tokens=7, max_new_tokens=8), "toy", []),
        (SamplingParams(min_tokens=8, max_new_tokens=8), "toy", ["limit of 8 new tokens"]),
    ],
)
def test_settings_without_effect_are_told(
    params: SamplingParams,
    drafter: str,
    messages: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """S15: a setting that is taken and does nothing is not passed over in silence."""
    warn_of_no_effect(params, drafter)
    assert len(caplog.messages) == len(messages)
    assert all(part in told for part, told in zip(messages, caplog.messages, strict=True))
