"""Prompts of a workload for a model that is loaded here: ids and sampling settings."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from blockdraft.api import TextTarget
from blockdraft.bench import IN_PROCESS, BenchPrompt, RequestSettings
from blockdraft.bench.encoding import encode_bench_prompt
from blockdraft.bench.rows import read_bench_row
from blockdraft.bench.sampling import sampling_of
from blockdraft.decoding import SamplingParams
from blockdraft.errors import RequestError
from blockdraft.target.text import ChatMessage, TextCodec

Row = dict[str, object]
USER = {"role": "user", "content": "hi"}


class Letters:
    """A tokenizer whose ids are code points, and whose template shows all that it is given."""

    chat_template: object = "shows everything"

    def __len__(self) -> int:
        return 128

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return [*([1] if add_special_tokens else []), *map(ord, text)]

    def decode(
        self, ids: list[int], *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool
    ) -> str:
        return "".join(map(chr, ids))

    def apply_chat_template(
        self,
        conversation: Sequence[ChatMessage],
        *,
        add_generation_prompt: bool,
        tokenize: bool,
        **template_args: object,
    ) -> str:
        said = " ".join(f"{message['role']}:{message['content']}" for message in conversation)
        return f"{said} {sorted(template_args.items())}"


TARGET = cast(
    TextTarget, SimpleNamespace(text=TextCodec(Letters(), "tiny"), spec=SimpleNamespace(name="t"))
)
WITHOUT_TEXT = cast(TextTarget, SimpleNamespace(text=None, spec=SimpleNamespace(name="t")))


def read(row: Row) -> BenchPrompt:
    return read_bench_row(row, 2, "rows, line 2", IN_PROCESS).prompt


def text_of(row: Row, settings: RequestSettings | None = None) -> str:
    ids = encode_bench_prompt(TARGET, read(row), settings or RequestSettings())
    return "".join(map(chr, ids))


def test_every_kind_of_row() -> None:
    thinking = RequestSettings(template_args={"enable_thinking": True})
    assert text_of({"prompt": "hi"}) == "user:hi []"
    assert text_of({"prompt": "hi"}, thinking) == "user:hi [('enable_thinking', True)]"
    assert text_of({"prompt": "hi"}, RequestSettings(raw=True)) == "\x01hi"
    assert text_of({"model": "m", "prompt": "hi"}, thinking) == "\x01hi"
    assert text_of({"prompt": "hi", "system": "s"}) == "system:s user:hi []"
    assert text_of({"prompt_ids": [65, 66]}) == "AB"
    kwargs: Mapping[str, object] = {"enable_thinking": False, "x": 1}
    logged: Row = {"messages": [USER], "chat_template_kwargs": kwargs}
    assert text_of(logged, thinking) == "user:hi [('enable_thinking', True), ('x', 1)]"


def test_a_whole_chat_with_tools_and_parts() -> None:
    tool = {"type": "function", "function": {"name": "clock"}}
    parts = [{"type": "text", "text": "what "}, {"type": "text", "text": "time?"}]
    messages = [USER, {"role": "assistant", "content": "yes"}, {"role": "user", "content": parts}]
    text = text_of({"messages": messages, "tools": [tool]})
    assert text == f"user:hi assistant:yes user:what time? [('tools', [{tool!r}])]"


def test_errors_name_the_row() -> None:
    chat = read({"messages": [USER, {"role": "assistant", "content": "a"}, USER]})
    for prompt in (chat, read({"prompt": "x"})):
        with pytest.raises(RequestError, match="rows, line 2: t has no tokenizer"):
            encode_bench_prompt(WITHOUT_TEXT, prompt, RequestSettings())


def sampling(row: Row, settings: RequestSettings | None = None, number: int = 3) -> SamplingParams:
    asks = read({"messages": [USER], **row}).asks
    return sampling_of((settings or RequestSettings()).of(asks), asks, number)


def test_sampling_is_the_rows_own() -> None:
    assert sampling({}) == SamplingParams(max_new_tokens=128)
    row: Row = {
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": -1,
        "min_p": 0.1,
        "min_tokens": 2,
        "repetition_penalty": 1.5,
        "presence_penalty": 0.25,
        "frequency_penalty": -0.5,
        "stop": "\n",
        "stop_token_ids": [4],
        "logit_bias": {"12": -3},
        "ignore_eos": True,
    }
    settings = RequestSettings(seed=10, explicit=("seed",))
    assert sampling(row, settings) == SamplingParams(
        max_new_tokens=9,
        temperature=0.5,
        top_p=0.9,
        min_p=0.1,
        min_tokens=2,
        repetition_penalty=1.5,
        presence_penalty=0.25,
        frequency_penalty=-0.5,
        stop=("\n",),
        stop_ids=(4,),
        logit_bias={12: -3.0},
        ignore_eos=True,
        seed=13,
    )
    assert sampling({"temperature": 1, "seed": 5}).seed == 5
    explicit = RequestSettings(max_tokens=4, explicit=("max_tokens",))
    assert sampling(row, explicit).max_new_tokens == 4


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"top_p": "high"}, "'top_p' is 'high', not a number"),
        ({"top_p": 3}, "top_p"),
        ({"stop": 3}, "'stop' is 3, not a text"),
        ({"stop": ["a", 3]}, "not a text or a list of texts"),
        ({"stop_token_ids": ["a"]}, "'stop_token_ids' must be a list"),
        ({"logit_bias": {"a": 1}}, "'logit_bias' must be an object"),
    ],
)
def test_values_that_make_no_sense(row: Row, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        sampling(row)
