"""Tokenizers compared by their files: special tokens apart from the rest (L17)."""

import json
from pathlib import Path

import pytest

from blockdraft.errors import CheckpointError
from blockdraft.target.tokenizer_facts import SHA_KEY, TokenizerFacts, read_tokenizer


def written(folder: Path, vocab: object, added: list[dict[str, object]]) -> TokenizerFacts:
    raw = {"model": {"vocab": vocab}, "added_tokens": added}
    (folder / "tokenizer.json").write_text(json.dumps(raw))
    found = read_tokenizer(folder)
    assert found is not None
    return found


def test_special_tokens_are_not_in_the_hash(tmp_path: Path) -> None:
    end: dict[str, object] = {"id": 2, "content": "<end>", "special": True}
    other: dict[str, object] = {"id": 2, "content": "<stop>", "special": True}
    first = written(tmp_path, {"a": 0, "b": 1, "<end>": 2}, [end])
    second = written(tmp_path, {"a": 0, "b": 1}, [other])
    assert first.vocabulary_sha256 == second.vocabulary_sha256
    assert (first.special, second.special) == ({"<end>": 2}, {"<stop>": 2})
    assert first.tokens == {0: "a", 1: "b", 2: "<end>"}
    assert first.record()[SHA_KEY] == first.vocabulary_sha256


def test_order_of_ids_is_in_the_hash(tmp_path: Path) -> None:
    first = written(tmp_path, {"a": 0, "b": 1}, [])
    assert first.vocabulary_sha256 != written(tmp_path, {"a": 1, "b": 0}, []).vocabulary_sha256


def test_added_ordinary_tokens_count(tmp_path: Path) -> None:
    added: dict[str, object] = {"id": 2, "content": "    ", "special": False}
    assert written(tmp_path, {"a": 0, "b": 1}, [added]).tokens[2] == "    "


def test_unigram_pieces_are_numbered(tmp_path: Path) -> None:
    assert written(tmp_path, [["a", -1.0], ["b", -2.0]], []).tokens == {0: "a", 1: "b"}


def test_no_file_is_no_tokenizer(tmp_path: Path) -> None:
    assert read_tokenizer(tmp_path) is None


@pytest.mark.parametrize("text", ["{", "{}", "[]", '{"model": {"vocab": {}}}'])
def test_damage_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(CheckpointError, match="fetch it again"):
        read_tokenizer(tmp_path)
