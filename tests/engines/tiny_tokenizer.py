"""A byte-level BPE tokenizer of 300 tokens with a chat template, as a tiny model's own.

It is split like Qwen2's, since other engines recognize a tokenizer by how it splits text.
"""

from pathlib import Path
from typing import Protocol, cast

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

END_OF_TEXT, IM_START, IM_END, MASK = range(4)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>")
VOCAB_SIZE = 300

QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CORPUS = (
    "a block of drafts is verified at once, and what the target would not have said is dropped",
    "the drafter reads the features of the target, the target reads nothing of the drafter",
    "one two three four five six seven eight nine ten, and then the other ten of them",
)


class Savable(Protocol):
    """What is used of a transformers tokenizer, which its own package leaves untyped."""

    def save_pretrained(self, save_directory: str) -> object: ...


def make_tokenizer() -> Tokenizer:
    """All 256 bytes, four special tokens in front, and 40 merges learned from three sentences."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer=trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """As transformers saves it: tokenizer.json, tokenizer_config.json and the chat template."""
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=SPECIAL[IM_END], pad_token=SPECIAL[END_OF_TEXT]
    )
    wrapped.chat_template = CHAT_TEMPLATE
    cast(Savable, wrapped).save_pretrained(str(folder))
