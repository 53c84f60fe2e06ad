"""The Python front door: what a prompt may be, which drafters have names, lazy public names."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import Tensor

import blockdraft
from blockdraft import (
    PromptOptions,
    SamplingParams,
    encode_prompt,
    generate,
    load_drafter,
    load_target,
    stream,
)
from blockdraft.api import TextTarget, choose_drafter
from blockdraft.decoding import LMHead, NoDrafter, PromptLookupDrafter, TargetModel
from blockdraft.engine import fast_drafter
from blockdraft.errors import CheckpointError, ConfigError, RequestError
from blockdraft.native import NativeTarget, PackedDrafter
from blockdraft.target import ChatMessage, HFTarget, TextCodec
from blockdraft.testing import ByteTextCodec, ScriptedTarget, hashed_logits
from blockdraft.testing.scripted import ScriptedState


@dataclass
class WithText:
    """A scripted target that has a tokenizer."""

    inner: ScriptedTarget
    text: TextCodec | None = field(default_factory=lambda: TextCodec(Bytes(), "bytes"))

    def __post_init__(self) -> None:
        self.spec = self.inner.spec

    def embed(self, ids: Tensor) -> Tensor:
        return self.inner.embed(ids)

    def head(self, vocab_ids: Tensor | None = None) -> LMHead:
        return self.inner.head(vocab_ids)

    def open(self, taps: Sequence[int] = ()) -> ScriptedState:
        return self.inner.open(taps)


class Bytes:
    """The byte codec with the calls of a transformers tokenizer."""

    chat_template: object = "a template"

    def __len__(self) -> int:
        return ByteTextCodec.vocab_size

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return ByteTextCodec().encode(text)[0 if add_special_tokens else 1 :]

    def decode(
        self, ids: list[int], *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool
    ) -> str:
        return ByteTextCodec().decode(ids, skip_special_tokens=skip_special_tokens)

    def apply_chat_template(
        self,
        conversation: list[ChatMessage],
        *,
        add_generation_prompt: bool,
        tokenize: bool,
        **template_args: object,
    ) -> str:
        turns = "".join(f"{m['role']}: {m['content']}\n" for m in conversation)
        return f"{turns}{template_args or ''}>"


VOCAB = ByteTextCodec.vocab_size
SCRIPTED = ScriptedTarget(hashed_logits(VOCAB, seed=4), VOCAB)


def target_with_text() -> TextTarget:
    return WithText(SCRIPTED)  # pyright: ignore[reportReturnType] - shape-less test double


def text_of(ids: Sequence[int]) -> str:
    return ByteTextCodec().decode(ids)


def test_a_string_is_wrapped_in_the_chat_template_unless_raw() -> None:
    target = target_with_text()
    assert text_of(encode_prompt(target, "hi")) == "user: hi\n>"
    assert text_of(encode_prompt(target, "hi", PromptOptions(raw=True))) == "hi"


def test_messages_and_template_arguments() -> None:
    target = target_with_text()
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    options = PromptOptions(template_args={"enable_thinking": False})
    text = text_of(encode_prompt(target, messages, options))  # pyright: ignore[reportArgumentType] - plain dicts, as users write them
    assert text == "system: be brief\nuser: hi\n{'enable_thinking': False}>"


def test_ids_stand_for_themselves() -> None:
    assert encode_prompt(target_with_text(), [1, 2, 3]) == (1, 2, 3)


@pytest.mark.parametrize("prompt", [torch.tensor([1, 2]), [1.5], [1, {"role": "user"}], [None]])
def test_what_is_no_prompt_says_what_one_is(prompt: object) -> None:
    with pytest.raises(RequestError, match="a string, a list of messages"):
        encode_prompt(target_with_text(), prompt)  # pyright: ignore[reportArgumentType] - wrong on purpose


def test_text_for_a_target_without_a_tokenizer_is_refused() -> None:
    target = WithText(SCRIPTED, text=None)
    with pytest.raises(RequestError, match="no tokenizer"):
        encode_prompt(target, "hi")  # pyright: ignore[reportArgumentType] - test double


def test_streamed_pieces_are_the_generated_answer() -> None:
    target = target_with_text()
    params = SamplingParams(max_new_tokens=20, temperature=1.0, seed=3)
    whole = generate(target, PromptLookupDrafter(4), "hi", params)
    commits = list(stream(target, NoDrafter(), "hi", params))
    assert tuple(i for commit in commits for i in commit.ids) == whole.token_ids
    assert "".join(commit.text for commit in commits) == whole.text == text_of(whole.token_ids)


def test_drafters_with_names() -> None:
    target: TargetModel = SCRIPTED
    assert isinstance(load_drafter("none", target), NoDrafter)
    lookup = load_drafter("prompt-lookup", target, block_size=5)
    assert isinstance(lookup, PromptLookupDrafter) and lookup.block_size == 5


def test_the_built_in_drafter_is_refused_for_another_target() -> None:
    with pytest.raises(CheckpointError):
        load_drafter("smollm2", SCRIPTED)


def test_the_engine_follows_the_model_unless_one_is_named(data_dir: Path) -> None:
    case = data_dir / "golden" / "generate_llama_v1_full"
    native = load_target(case / "target")
    assert isinstance(native, NativeTarget)
    assert isinstance(load_drafter(str(case / "draft"), native), PackedDrafter)
    plain = load_target(case / "target", engine="hf")
    assert isinstance(plain, HFTarget)
    drafter = load_drafter(str(case / "draft"), plain)
    assert not isinstance(drafter, PackedDrafter) and fast_drafter(plain, drafter) is drafter
    params = SamplingParams(max_new_tokens=12)
    answers = [
        generate(target, load_drafter(str(case / "draft"), target), [12, 7], params).token_ids
        for target in (native, plain)
    ]
    assert answers[0] == answers[1]


def test_settings_that_contradict_each_other(data_dir: Path) -> None:
    target = data_dir / "golden" / "generate_llama_v1_full" / "target"
    with pytest.raises(ConfigError, match="drop --engine hf"):
        load_target(target, engine="hf", quantize="int8")
    with pytest.raises(ConfigError, match="use auto, native or hf"):
        load_target(target, engine="fast")  # pyright: ignore[reportArgumentType] - wrong on purpose


def test_no_drafter_is_guessed() -> None:
    """U09."""
    assert choose_drafter("smollm2", None) == "smollm2"
    assert choose_drafter("anything", "none") == "none"
    with pytest.raises(ConfigError, match="no drafter is known for anything: give"):
        choose_drafter("anything", None)


def test_importing_the_package_loads_no_model_library() -> None:
    code = "import blockdraft, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    assert set(blockdraft.__all__) >= {"generate", "stream", "load_target", "load_drafter"}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = blockdraft.nothing  # pyright: ignore[reportAttributeAccessIssue] - wrong on purpose
