"""A byte-level tokenizer with a ChatML template, and a scripted target that answers in it.

Every byte is a token, so any text can be answered, and every accented letter is split.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import cast

import torch
from jaxtyping import Float64
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from blockdraft.target.text import TextCodec
from blockdraft.target.text import Tokenizer as CodecTokenizer
from blockdraft.testing.scripted import ScriptedTarget

SPECIAL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
START_ID, END_ID, TEXT_END_ID = 256, 257, 258
VOCAB_SIZE = 256 + len(SPECIAL)

CHATML = (
    "{%- if tools %}{{ '<|im_start|>system\\n' }}{{ tools | tojson }}{{ '<|im_end|>\\n' }}"
    "{%- endif %}"
    "{%- for message in messages %}{{ '<|im_start|>' ~ message.role ~ '\\n' }}"
    "{%- if message.reasoning_content %}"
    "{{ '<think>\\n' ~ message.reasoning_content ~ '\\n</think>\\n\\n' }}{%- endif %}"
    "{{ message.content }}{%- for call in message.tool_calls or [] %}"
    "{{ '<tool_call>' ~ call.function.name ~ ' ' }}{{ call.function.arguments | tojson }}"
    "{{ '</tool_call>' }}{%- endfor %}{{ '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking %}{{ '<think>\\n' }}{%- endif %}{%- endif %}"
)
"""Reads tools (in the style of Hermes: <tool_call>), `arguments` and enable_thinking (<think>)."""


def chat_codec(template: str | None = CHATML) -> TextCodec:
    """The codec; ids 0..255 are bytes in an order of the tokenizer's own."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: place for place, letter in enumerate(letters)}
    inner = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(list(SPECIAL))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = template
    return TextCodec(cast(CodecTokenizer, cast(object, tokenizer)), "chatml")


class ChatTarget(ScriptedTarget):
    """Answers a conversation with the text that `answers` has for a part of its prompt.

    Greedy decoding gives exactly that text and <|im_end|>; without a match the answer is "Hello!".
    """

    dtype = torch.float64
    device = torch.device("cpu")

    def __init__(
        self, codec: TextCodec, answers: Mapping[str, str], *, max_context_len: int = 2048
    ) -> None:
        opening = tuple(codec.encode_rendered("<|im_start|>assistant\n"))
        self.text = codec

        @cache
        def answer_ids(prompt: tuple[int, ...]) -> tuple[int, ...]:
            text = codec.decode(prompt, skip_special_tokens=False)
            found = next((answer for part, answer in answers.items() if part in text), "Hello!")
            return (*codec.encode_rendered(found), END_ID)

        def logits_of(prefix: tuple[int, ...]) -> Float64[Tensor, " vocab"]:
            start = last_end(prefix, opening)
            ids, place = answer_ids(prefix[:start]), len(prefix) - start
            logits = torch.zeros(VOCAB_SIZE, dtype=torch.float64)
            logits[ids[place] if place < len(ids) else TEXT_END_ID] = 8.0
            return logits

        super().__init__(logits_of, VOCAB_SIZE, max_context_len=max_context_len, stop_ids=(END_ID,))


def last_end(ids: Sequence[int], part: Sequence[int]) -> int:
    """The end of the last place where `part` stands in `ids`; 0 where it does not."""
    for start in range(len(ids) - len(part), -1, -1):
        if tuple(ids[start : start + len(part)]) == tuple(part):
            return start + len(part)
    return 0
