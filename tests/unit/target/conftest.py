"""Small model folders on disk: weights, configuration, byte-level tokenizer with chat template."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from transformers import PreTrainedModel

from blockdraft.target.quiet import quiet
from blockdraft.testing.tiny import TinySize, tiny_model

CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}{% endfor %}"
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    "{% if enable_thinking is defined and not enable_thinking %}<nothink>{% endif %}"
)
SPECIAL = ["<s>", "</s>", "<|user|>", "<|assistant|>", "<nothink>"]
SIZE = TinySize(vocab_size=300, stop_ids=(257,))


def byte_letters() -> list[str]:
    """The 256 letters that byte-level tokenizers write for the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in plain}
    for offset, byte in enumerate(sorted(set(range(256)) - set(plain))):
        letters[byte] = chr(256 + offset)
    return [letters[byte] for byte in range(256)]


def write_tokenizer(folder: Path, *, chat_template: str | None = CHAT_TEMPLATE) -> None:
    """A byte-level tokenizer without merges: id = byte, special tokens from 256 on."""
    vocab = {letter: token_id for token_id, letter in enumerate(byte_letters())}
    added = [
        {
            "id": 256 + offset,
            "content": content,
            "special": True,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
        }
        for offset, content in enumerate(SPECIAL)
    ]
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    start = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    pair = {"Sequence": {"id": "B", "type_id": 0}}
    tokenizer: dict[str, object] = {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [start, text],
            "pair": [start, text, pair],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [256], "tokens": ["<s>"]}},
        },
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocab, "merges": list[str]()},
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "clean_up_tokenization_spaces": True,
    }
    if chat_template is not None:
        config["chat_template"] = chat_template
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def save(model: PreTrainedModel, folder: Path, max_shard_size: str = "1GB") -> Path:
    """Write a model the way it would be published."""
    write = cast(Callable[..., None], model.save_pretrained)  # pyright: ignore[reportUnknownMemberType] # transformers is untyped
    with quiet():
        write(folder, max_shard_size=max_shard_size)
    return folder


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    """A complete folder with one weight file."""
    folder = save(tiny_model("llama", size=SIZE), tmp_path / "model")
    write_tokenizer(folder)
    return folder


@pytest.fixture
def sharded_folder(tmp_path: Path) -> Path:
    """The same model in several weight files, without a tokenizer."""
    return save(tiny_model("llama", size=SIZE), tmp_path / "sharded", max_shard_size="50KB")


@pytest.fixture
def cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory of the user."""
    home = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    return home
