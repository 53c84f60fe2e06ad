"""Markers that a vocabulary holds as special tokens: text for a grammar when they are named."""

import pytest

from blockdraft.structured.spec import GrammarSpec
from blockdraft.testing.chat import END_ID, START_ID, TEXT_END_ID, VOCAB_SIZE, chat_codec

pytest.importorskip("xgrammar")
import xgrammar

from blockdraft.structured.native import CompiledGrammar, Matcher, read_vocabulary, unpack

ANY_TEXT = GrammarSpec(kind="regex", value=".*")


def allowed_first(markers: list[str]) -> set[int]:
    """The special tokens that may begin any text."""
    vocabulary = read_vocabulary(chat_codec().tokenizer, VOCAB_SIZE, [END_ID], markers)
    compiler = xgrammar.GrammarCompiler(vocabulary.info, max_threads=1, cache_enabled=False)
    compiled = CompiledGrammar(compiler.compile_regex(ANY_TEXT.value), 0)
    allowed = unpack(Matcher(compiled, vocabulary).allowed(), VOCAB_SIZE)
    return {i for i in (START_ID, END_ID, TEXT_END_ID) if allowed[i]}


def test_named_markers_are_text() -> None:
    assert allowed_first([]) == {END_ID}
    assert allowed_first(["<|im_start|>"]) == {START_ID, END_ID}


def test_a_stop_token_is_no_marker() -> None:
    """It ends the text, whatever it is called."""
    assert allowed_first(["<|im_end|>", "<|endoftext|>"]) == {END_ID, TEXT_END_ID}
