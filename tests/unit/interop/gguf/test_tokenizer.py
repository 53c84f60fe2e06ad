"""Tokenizers from a target's files, special tokens included."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import cast

import gguf
import pytest
from tokenizers import Tokenizer

from blockdraft.errors import CheckpointError
from blockdraft.interop.gguf import read_tokenizer
from blockdraft.interop.gguf.pretokenizer import pretokenizer_name
from blockdraft.interop.gguf.special import read_special

SaveTokenizer = Callable[..., Tokenizer]
Json = dict[str, object]

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
BYTES: Json = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
RAW_BYTES: Json = {**BYTES, "use_regex": False}
DIGITS: Json = {"type": "Digits", "individual_digits": True}


def split(regex: str, behavior: str = "Isolated") -> Json:
    pattern = {"Regex": regex}
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": False}


def sequence(*steps: Json) -> Json:
    return {"type": "Sequence", "pretokenizers": list(steps)}


@pytest.mark.parametrize(
    ("pre_tokenizer", "ignore_merges", "name"),
    [
        (BYTES, False, "gpt-2"),
        (sequence(BYTES), False, "gpt-2"),
        (sequence(DIGITS, BYTES), False, "smollm"),
        (sequence(split(LLAMA3), RAW_BYTES), True, "llama-bpe"),
        (sequence(split(LLAMA3), RAW_BYTES), False, "dbrx"),
        (sequence(split(QWEN2), RAW_BYTES), False, "qwen2"),
    ],
)
def test_known_pre_tokenizers(pre_tokenizer: Json, ignore_merges: bool, name: str) -> None:
    raw: Json = {"pre_tokenizer": pre_tokenizer, "model": {"ignore_merges": ignore_merges}}
    raw["normalizer"] = {"type": "NFC"}
    assert pretokenizer_name(raw, "here") == name


@pytest.mark.parametrize(
    "pre_tokenizer",
    [
        None,
        {**BYTES, "add_prefix_space": True},
        {"type": "Metaspace"},
        sequence(split(QWEN2, "Removed"), RAW_BYTES),
        sequence(split(r"\s+"), RAW_BYTES),
        sequence(split(QWEN2), BYTES),
        sequence({**DIGITS, "individual_digits": False}, BYTES),
        sequence(split(QWEN2), DIGITS, RAW_BYTES),
    ],
)
def test_other_pre_tokenizers_are_refused(pre_tokenizer: object) -> None:
    with pytest.raises(CheckpointError, match=r"here: the pre-tokenizer .* llama\.cpp's own"):
        pretokenizer_name({"pre_tokenizer": pre_tokenizer}, "here")


def test_a_normalizer_that_changes_text_is_refused() -> None:
    with pytest.raises(CheckpointError, match="the normalizer Lowercase has no counterpart"):
        pretokenizer_name({"pre_tokenizer": BYTES, "normalizer": {"type": "Lowercase"}}, "here")


def test_all_rows_get_a_token_and_a_type(tmp_path: Path, save_tokenizer: SaveTokenizer) -> None:
    original = save_tokenizer(tmp_path)
    read = read_tokenizer(tmp_path)
    assert len(read.tokens) == len(read.types) == 264
    assert read.tokens[:262] == tuple(original.id_to_token(row) for row in range(262))
    assert read.tokens[262:] == ("[PAD262]", "[PAD263]")
    kinds = gguf.TokenType
    assert set(read.types[:259]) == {kinds.NORMAL}
    assert read.types[259:] == (
        kinds.CONTROL,
        kinds.CONTROL,
        kinds.USER_DEFINED,
        kinds.UNUSED,
        kinds.UNUSED,
    )
    assert read.merges == ("t h", "th e", "\u0120 the")
    assert read.pre == "gpt-2"
    assert dict(read.special.ids) == {"bos": 259, "eos": 260, "eot": 0}
    assert (read.special.add_bos, read.special.add_eos) == (True, False)
    assert read.chat_template is not None and "<|end|>" in read.chat_template


def test_metadata_table(tmp_path: Path, save_tokenizer: SaveTokenizer) -> None:
    save_tokenizer(tmp_path, bos=False)
    metadata = read_tokenizer(tmp_path).metadata()
    plain = {key: value.value for key, value in metadata.items() if not value.is_list}
    template = plain.pop("tokenizer.chat_template")
    assert isinstance(template, str)
    assert plain == {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.bos_token_id": 259,
        "tokenizer.ggml.eos_token_id": 260,
        "tokenizer.ggml.eot_token_id": 0,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_eos_token": False,
    }


def test_a_template_may_stand_in_the_settings(
    tmp_path: Path, save_tokenizer: SaveTokenizer
) -> None:
    save_tokenizer(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    assert read_tokenizer(tmp_path).chat_template is None
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    for given, expected in ((named, "D"), ("S", "S")):
        text = json.dumps({"chat_template": given})
        (tmp_path / "tokenizer_config.json").write_text(text, encoding="utf-8")
        assert read_tokenizer(tmp_path).chat_template == expected


def test_merges_as_strings_are_read_too(tmp_path: Path, save_tokenizer: SaveTokenizer) -> None:
    save_tokenizer(tmp_path)
    expected = read_tokenizer(tmp_path)
    edit(tmp_path, lambda model: model.update(merges=["t h", "th e", "\u0120 the"]))
    assert read_tokenizer(tmp_path) == expected


def test_without_merges_a_merge_of_nothing_is_written(
    tmp_path: Path, save_tokenizer: SaveTokenizer
) -> None:
    save_tokenizer(tmp_path)
    edit(tmp_path, lambda model: model.update(merges=[]))
    merges = read_tokenizer(tmp_path).metadata()["tokenizer.ggml.merges"].value
    assert merges == ("! !",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"type": "Unigram"}, "the tokenizer is Unigram; only byte-level BPE"),
        ({"byte_fallback": True}, "the tokenizer is BPE with byte fallback; only byte-level"),
        ({"dropout": 0.1}, "the tokenizer's dropout is 0.1"),
        ({"merges": ["a b c"]}, "the merge 'a b c' is no pair"),
        ({"vocab": {"a": 400}}, "has a token 400, but the model has 264 rows"),
        ({"vocab": {"[PAD5]": 4}}, r"two rows would be named '\[PAD5\]'"),
    ],
)
def test_refusals(
    tmp_path: Path, save_tokenizer: SaveTokenizer, change: Json, message: str
) -> None:
    save_tokenizer(tmp_path)
    edit(tmp_path, lambda model: model.update(change))
    with pytest.raises(CheckpointError, match=message):
        read_tokenizer(tmp_path)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no tokenizer\.json"):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("settings", "config", "expected"),
    [
        ({"eos_token": "e"}, {"eos_token_id": [7, 2, 8]}, {"eos": 2, "eot": 7, "eom": 8}),
        ({"eos_token": "e"}, {}, {"eos": 2}),
        ({"eos_token": "e"}, {"eos_token_id": 5}, {"eos": 5}),
        ({"unk_token": "u"}, {"bos_token_id": 1}, {"bos": 1, "unknown": 0}),
        ({"pad_token": "gone"}, {"pad_token_id": 4}, {"padding": 4}),
        ({}, {}, {}),
    ],
)
def test_special_ids(settings: Json, config: Json, expected: dict[str, int]) -> None:
    special = read_special({}, settings, config, {"u": 0, "b": 1, "e": 2})
    assert dict(special.ids) == expected


@pytest.mark.parametrize(
    ("processor", "asked", "adds"),
    [
        (None, True, (True, False)),
        (None, None, (False, False)),
        ({"type": "ByteLevel"}, True, (True, False)),
        (
            {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}]},
            True,
            (False, False),
        ),
        (
            {
                "type": "TemplateProcessing",
                "single": [
                    {"SpecialToken": {"id": "b"}},
                    {"Sequence": {"id": "A"}},
                    {"SpecialToken": {"id": "e"}},
                ],
            },
            None,
            (True, True),
        ),
    ],
)
def test_what_is_put_around_a_text(
    processor: object, asked: object, adds: tuple[bool, bool]
) -> None:
    raw: Json = {"post_processor": {"type": "Sequence", "processors": [processor]}}
    settings: Json = {"bos_token": "b", "eos_token": "e", "add_bos_token": asked}
    special = read_special(raw, settings, {}, {"b": 1, "e": 2})
    assert (special.add_bos, special.add_eos) == adds


def edit(folder: Path, change: Callable[[Json], None]) -> None:
    """Change the `model` object of a tokenizer.json."""
    path = folder / "tokenizer.json"
    raw = cast(Json, json.loads(path.read_text(encoding="utf-8")))
    change(cast(Json, raw["model"]))
    path.write_text(json.dumps(raw), encoding="utf-8")
