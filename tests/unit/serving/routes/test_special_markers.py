"""Strict tools and grammars where the markers are special tokens, as in Hermes 3 and Llama 3."""

from collections.abc import Iterator
from typing import Any, cast

import pytest
import torch
from jaxtyping import Float64
from starlette.testclient import TestClient
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from blockdraft.engine import EngineConfig, build_engine, parse_width
from blockdraft.parsing import MARKERS, choose_reasoning_format, choose_tool_format
from blockdraft.serving.app import create_app
from blockdraft.serving.runner import EngineRunner
from blockdraft.serving.server_config import ServerConfig
from blockdraft.serving.service import Service
from blockdraft.structured.compiler import GrammarCompiler
from blockdraft.target.text import TextCodec
from blockdraft.target.text import Tokenizer as CodecTokenizer
from blockdraft.testing import OracleDrafter, ScriptedTarget
from blockdraft.testing.chat import CHATML, SPECIAL, last_end

ALL_SPECIAL = (*SPECIAL, *sorted(MARKERS))
VOCAB_SIZE = 256 + len(ALL_SPECIAL)
END_ID = 257
OPENING = "<|im_start|>assistant\n"
# The key is wrong, and as long as the right one.
CALL = '<tool_call>\n{"name": "look", "arguments": {"ax": "s"}}\n</tool_call>'
ANSWER = f"<think>hm</think>So: {CALL}."
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"at": {"type": "string"}},
            "required": ["at"],
            "additionalProperties": False,
        },
    },
}


def special_codec() -> TextCodec:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(letters)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(list(ALL_SPECIAL))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<|im_end|>", clean_up_tokenization_spaces=False
    )
    tokenizer.chat_template = CHATML
    return TextCodec(cast(CodecTokenizer, cast(object, tokenizer)), "special")


class SpecialTarget(ScriptedTarget):
    """Answers every conversation with ANSWER, and every other prompt with a marker and text."""

    dtype = torch.float64
    device = torch.device("cpu")

    def __init__(self, codec: TextCodec) -> None:
        self.text = codec
        opening = codec.encode_rendered(OPENING)
        answer = (*codec.encode_rendered(ANSWER), END_ID)
        completion = (*codec.encode_rendered("<think>ok"), END_ID)

        def logits_of(prefix: tuple[int, ...]) -> Float64[Tensor, " vocab"]:
            start = last_end(prefix, opening)
            ids, place = (answer, len(prefix) - start) if start else (completion, len(prefix) - 1)
            logits = torch.zeros(VOCAB_SIZE, dtype=torch.float64)
            logits[ids[min(place, len(ids) - 1)]] = 8.0
            return logits

        super().__init__(logits_of, VOCAB_SIZE, max_context_len=1024, stop_ids=(END_ID,))


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    pytest.importorskip("xgrammar")
    codec = special_codec()
    target = SpecialTarget(codec)
    config = EngineConfig(slots=2, kv_memory=1 << 26, width=parse_width("fixed:7"))
    built = build_engine(target, OracleDrafter(target, 7), config, decode_text=codec.decode)
    runner = EngineRunner(built.engine, max_waiting=8)
    runner.start()
    grammar = GrammarCompiler(codec, VOCAB_SIZE, [END_ID], markers=MARKERS)
    service = Service(
        model_name="special",
        runner=runner,
        codec=codec,
        vocab_size=VOCAB_SIZE,
        stop_ids=target.spec.stop_ids,
        max_model_len=built.capacity.max_context,
        num_spec_tokens=6,
        drafter_name="oracle",
        grammar=grammar,
        tool_format=choose_tool_format(CHATML),
        reasoning_format=choose_reasoning_format(CHATML),
    )
    with TestClient(create_app(service, ServerConfig())) as made:
        yield made
    runner.stop()
    grammar.close()


def post(client: TestClient, path: str, body: dict[str, object]) -> Any:
    response = client.post(path, json={"temperature": 0, "max_tokens": 200, **body})
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]


def test_a_model_may_write_its_special_markers(client: TestClient) -> None:
    body: dict[str, object] = {"messages": [{"role": "user", "content": "x"}], "tools": [TOOL]}
    made = post(client, "/v1/chat/completions", body)
    assert made["finish_reason"] == "tool_calls"
    message = made["message"]
    assert (message["reasoning"], message["content"]) == ("hm", "So:.")
    assert message["tool_calls"][0]["function"]["arguments"] == '{"at": "s"}'


def test_a_text_shows_what_its_grammar_has_counted(client: TestClient) -> None:
    """An answer that matches stays one: a marker is no token that is left out of it."""
    regex = {"regex": "<think>[a-z]+"}
    made = post(client, "/v1/completions", {"prompt": "x", "structured_outputs": regex})
    assert made["text"] == "<think>ok"
    free = post(client, "/v1/completions", {"prompt": "x"})
    assert free["text"] == "ok"
