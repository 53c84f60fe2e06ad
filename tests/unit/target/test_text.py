"""Text to ids and back, with and without a chat template."""

from pathlib import Path

import pytest

from blockdraft.errors import CheckpointError, ConfigError, RequestError
from blockdraft.target.hf_load import load_text
from blockdraft.target.text import Message, TextCodec
from blockdraft.testing import ByteTextCodec

BOS, EOS, USER, ASSISTANT, NO_THINK = range(256, 261)
TEXT = "Hi , there's an \u00e9 and a \U0001f600"


@pytest.fixture
def codec(model_folder: Path) -> TextCodec:
    loaded = load_text(model_folder, "tiny")
    assert loaded is not None
    return loaded


def test_encode_adds_what_the_tokenizer_adds(codec: TextCodec) -> None:
    assert codec.encode(TEXT) == [BOS, *TEXT.encode()]
    assert codec.vocab_size == 261


def test_decode_keeps_spaces_and_hides_special_tokens(codec: TextCodec) -> None:
    """The tokenizer's own clean-up would turn "Hi ," into "Hi,": not what the model wrote."""
    assert codec.decode(codec.encode(TEXT)) == TEXT
    assert codec.decode([BOS, 72, EOS]) == "H"
    assert codec.decode([BOS, 72, EOS], skip_special_tokens=False) == "<s>H</s>"
    assert codec.decode([0xF0, 0x9F]) == "\ufffd"
    assert codec.decode([]) == ""


def test_chat_ends_where_the_assistant_begins(codec: TextCodec) -> None:
    messages = [Message(role="user", content="Hi")]
    assert codec.has_chat_template
    assert codec.chat(messages) == [USER, *b"Hi", ASSISTANT]
    assert codec.chat(messages, {"enable_thinking": True})[-1] == ASSISTANT
    assert codec.chat(messages, {"enable_thinking": False})[-1] == NO_THINK


def test_templates_that_refuse_and_settings_that_are_ours(codec: TextCodec) -> None:
    with pytest.raises(RequestError, match="chat template of tiny refused: no system role"):
        codec.chat([Message(role="system", content="Hi")])
    with pytest.raises(RequestError, match="chat template of tiny refused"):
        codec.chat([])
    with pytest.raises(ConfigError, match="template argument tokenize"):
        codec.chat([Message(role="user", content="Hi")], {"tokenize": True})


def test_without_a_template_chat_is_refused(model_folder: Path) -> None:
    config = model_folder / "tokenizer_config.json"
    config.write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    codec = load_text(model_folder, "tiny")
    assert codec is not None and not codec.has_chat_template
    with pytest.raises(ConfigError, match="no chat template"):
        codec.chat([Message(role="user", content="Hi")])


def test_no_tokenizer_and_a_broken_one(model_folder: Path) -> None:
    for text in ("{broken", '{"model": {"type": "BPE", "vocab": {}, "merges": [["a", "b"]]}}'):
        (model_folder / "tokenizer.json").write_text(text)
        with pytest.raises(CheckpointError, match="tokenizer"):
            load_text(model_folder, "tiny")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (model_folder / name).unlink()
    assert load_text(model_folder, "tiny") is None


def test_the_byte_codec_has_the_same_calls(codec: TextCodec) -> None:
    messages = [Message(role="user", content="\u00e9"), Message(role="assistant", content="y")]
    for each in (codec, ByteTextCodec()):
        assert each.decode(each.encode(TEXT)) == TEXT
        assert each.decode(each.chat(messages, {"enable_thinking": True})) == "\u00e9y"
        assert each.decode(each.encode("\u00e9")[:-1]) == "\ufffd"
        assert each.has_chat_template
    special = ByteTextCodec().chat(messages)[-1]
    assert ByteTextCodec().decode([special], skip_special_tokens=False) == "<assistant>"
