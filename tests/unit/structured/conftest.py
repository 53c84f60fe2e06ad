"""A small byte-level tokenizer of the kind that Qwen and SmolLM2 have, and grammars compiled for it
in this very process."""

from collections.abc import Callable, Iterator
from typing import cast

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from blockdraft.structured.compile_job import compile_job
from blockdraft.structured.compile_request import CompileJob
from blockdraft.structured.compiler import GrammarCompiler
from blockdraft.structured.limits import GrammarLimits
from blockdraft.structured.native import CompiledGrammar, Vocabulary, load_compiled, read_vocabulary
from blockdraft.structured.processor import GrammarProcessor
from blockdraft.structured.source import grammar_source
from blockdraft.structured.spec import GrammarSpec
from blockdraft.target.text import TextCodec
from blockdraft.target.text import Tokenizer as TargetTokenizer

CORPUS = [
    '{"name": "Ada", "age": 36, "tags": ["x", "yy"], "ok": true, "none": null, "no": false}',
    "yes no maybe aaa aaaa abc abcabc 127.0.0.1 <tool_call> caf\u00e9",
]
NUM_PADDING_ROWS = 21

Make = Callable[[GrammarSpec], GrammarProcessor]


@pytest.fixture(scope="session")
def codec() -> TextCodec:
    """320 learned tokens, two special ones, and one added token that is text (as in Qwen)."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=8,
    )
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    tokenizer.add_special_tokens(["<|end|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken("<tool_call>", special=False)])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>")
    return TextCodec(cast(TargetTokenizer, fast), "tiny")


@pytest.fixture(scope="session")
def stop_ids(codec: TextCodec) -> tuple[int, ...]:
    (end,) = codec.encode("<|end|>", add_special_tokens=False)
    (turn_end,) = codec.encode("<|im_end|>", add_special_tokens=False)
    return (end, turn_end)


@pytest.fixture(scope="session")
def vocabulary(codec: TextCodec, stop_ids: tuple[int, ...]) -> Vocabulary:
    """More rows than tokens, as models have."""
    return read_vocabulary(codec.tokenizer, codec.vocab_size + NUM_PADDING_ROWS, stop_ids)


@pytest.fixture(scope="session")
def compiled(vocabulary: Vocabulary) -> Callable[[GrammarSpec], CompiledGrammar]:
    kept: dict[GrammarSpec, CompiledGrammar] = {}

    def compile_here(spec: GrammarSpec) -> CompiledGrammar:
        if spec not in kept:
            source = grammar_source(spec, GrammarLimits())
            job = CompileJob(
                title=spec.title,
                dialect=source.dialect,
                text=source.text,
                seconds=60.0,
                wall_seconds=60.0,
                max_bytes=2**30,
                max_compiled_bytes=2**25,
                step_seconds=5.0,
            )
            kept[spec] = load_compiled(compile_job(job, vocabulary.info, lambda: ""), vocabulary)
        return kept[spec]

    return compile_here


@pytest.fixture(scope="session")
def make(vocabulary: Vocabulary, compiled: Callable[[GrammarSpec], CompiledGrammar]) -> Make:
    return lambda spec: GrammarProcessor(compiled(spec), vocabulary, GrammarLimits())


@pytest.fixture(scope="session")
def compiler(codec: TextCodec, stop_ids: tuple[int, ...]) -> Iterator[GrammarCompiler]:
    """The real thing, with its own process; short limits so that hostile grammars end soon."""
    limits = GrammarLimits(compile_seconds=1.0, compile_bytes=2**28, max_compiled_bytes=2**20)
    made = GrammarCompiler(codec, codec.vocab_size + NUM_PADDING_ROWS, stop_ids, limits)
    yield made
    made.close()
