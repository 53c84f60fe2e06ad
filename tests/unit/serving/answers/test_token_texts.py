"""Single tokens: which of them a text without special tokens leaves out."""

from typing import cast

from tokenizers import Tokenizer, decoders, models, normalizers
from transformers import PreTrainedTokenizerFast

from blockdraft.serving.answers.token_texts import TokenTexts
from blockdraft.target.text import TextCodec
from blockdraft.target.text import Tokenizer as CodecTokenizer

BLANK, LETTER, END = 0, 1, 2


def sentencepiece_codec() -> TextCodec:
    """As of Llama 2, Mistral and Phi-3, whose decoders drop a space at the start of a text."""
    inner = Tokenizer(models.BPE(vocab={"\u2581": BLANK, "a": LETTER}, merges=[]))
    inner.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    inner.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    inner.add_special_tokens(["</s>"])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="</s>", clean_up_tokenization_spaces=False
    )
    return TextCodec(cast(CodecTokenizer, cast(object, tokenizer)), "pieces")


def test_a_lone_blank_is_no_special_token() -> None:
    texts = TokenTexts(sentencepiece_codec())
    assert [texts.is_special(one) for one in (BLANK, LETTER, END)] == [False, False, True]
    assert [texts.shown(one) for one in (BLANK, LETTER, END)] == [b" ", b"a", b""]


def test_without_a_tokenizer_nothing_is_shown() -> None:
    assert TokenTexts(None).is_special(LETTER)
