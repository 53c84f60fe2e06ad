"""The Python front door: load a target, load a drafter, generate or stream.

Text and messages in, text and ids out; the algorithm is in `decoding`, the models in `target` and
`drafter`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

import torch

from blockdraft.builtin import builtin_drafter_path
from blockdraft.checkpoint import load_dflash
from blockdraft.checkpoint.default_drafter import (
    drafter_text,
    known_default,
    local_id,
    without_default,
)
from blockdraft.decoding import (
    Commit,
    Completion,
    Drafter,
    NoDrafter,
    PromptLookupDrafter,
    SamplingParams,
    TargetModel,
    collect,
    decode,
)
from blockdraft.decoding.text import DecodeText
from blockdraft.engine import fast_drafter
from blockdraft.errors import ConfigError, RequestError
from blockdraft.native import (
    EngineKind,
    NativeTarget,
    Quantize,
    TargetOptions,
    load_engine_target,
)
from blockdraft.target import HFTarget, Message, TextCodec
from blockdraft.target.load import Report

__all__ = [
    "Prompt",
    "PromptOptions",
    "TextTarget",
    "choose_drafter",
    "encode_prompt",
    "generate",
    "load_drafter",
    "load_target",
    "stream",
]

Prompt = str | Sequence[Message] | Sequence[int]
"""A user message, a conversation, or ready token ids."""


class TextTarget(TargetModel, Protocol):
    """A target that may come with a tokenizer (None: prompts are token ids, and text is empty)."""

    @property
    def text(self) -> TextCodec | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptOptions:
    """How a prompt becomes token ids.

    A string is wrapped as one user message in the chat template, unless `raw`. A model without a
    chat template takes it raw. `template_args` are the template's own (`enable_thinking`, ...).
    """

    raw: bool = False
    template_args: Mapping[str, object] | None = None


def load_target(
    source: str | Path,
    *,
    engine: EngineKind = "auto",
    dtype: str | torch.dtype = "float32",
    device: str | torch.device | None = None,
    revision: str | None = None,
    batch_invariant: int | None = None,
    quantize: Quantize | None = None,
    report: Report | None = None,
) -> NativeTarget | HFTarget:
    """The target `source`, its tokenizer included (`.text`, None when it has none).

    `source` is a built-in name, a folder with safetensors weights, a GGUF file, or a hub id
    `owner/name[@revision]`. The native decoder runs it where it fits, transformers otherwise
    (`engine` overrides). `dtype` "auto" takes the faster of float32 and bfloat16, `quantize`
    rounds the weights to "int8" or "int4", `batch_invariant` = n makes a token's logits
    independent of what is verified with it, at n rows a pass. Raises CheckpointError for a source
    that is missing or damaged, FetchError when it can't be downloaded, UnsupportedTarget for a
    model that can't be rolled back, ConfigError for a setting that makes no sense.
    """
    options = TargetOptions(
        engine=engine,
        dtype=dtype,
        device=device,
        revision=revision,
        batch_invariant=batch_invariant,
        quantize=quantize,
    )
    return load_engine_target(source, options, report=report)


def load_drafter(
    source: str,
    target: TargetModel,
    *,
    taps: Sequence[int] | None = None,
    block_size: int | None = None,
    revision: str | None = None,
    dtype: str | None = None,
) -> Drafter:
    """The drafter `source` for `target`: built-in name, folder, hub id, "none" or "prompt-lookup".

    Beside a native target a block drafter comes in its packed form, which drafts the same, faster.
    `taps` overrides (or supplies) the checkpoint's target layers, `block_size` narrows its block,
    `dtype` None follows the target's. Raises CheckpointError for a checkpoint that is damaged, of
    another format, or does not fit the target.
    """
    if source == "none":
        return NoDrafter()
    if source == "prompt-lookup":
        return PromptLookupDrafter(block_size or 8)
    path = builtin_drafter_path(source) or source
    drafter = load_dflash(
        path, target, taps=taps, block_size=block_size, revision=revision, dtype=dtype
    )
    return fast_drafter(target, drafter, takes=True)


def choose_drafter(
    target: str, drafter: str | None, *, revision: str | None = None, download: bool = False
) -> str:
    """The drafter to use: the one given, the built-in one, or the published one of a hub id.

    A published one that is not in the hub's cache is returned with `download` only, so that nothing
    large is fetched unasked; ConfigError says what it is and how large. ConfigError also where none
    is known: one for a similar target is then suggested, never taken.
    """
    if drafter is not None:
        return drafter
    if builtin_drafter_path(target) is not None:
        return target
    default = known_default(target)
    if default is None:
        raise ConfigError(without_default(target))
    local = local_id(default.chosen, revision)
    if local is not None:
        return local
    if download:
        return default.chosen.id
    raise ConfigError(
        f"{drafter_text(default.chosen)} is not on this machine: name it as the drafter (--drafter "
        f"{default.chosen.id}) to download it, or give none for plain decoding"
    )


def encode_prompt(
    target: TextTarget, prompt: Prompt, options: PromptOptions | None = None
) -> tuple[int, ...]:
    """Token ids of a prompt. Raises RequestError for text when the target has no tokenizer."""
    options = options or PromptOptions()
    if not isinstance(prompt, str):
        is_list = isinstance(cast(object, prompt), Sequence)
        ids = [part for part in prompt if isinstance(part, int)] if is_list else []
        if is_list and len(ids) == len(prompt):
            return tuple(ids)
        if not is_list or not all(isinstance(part, dict) for part in prompt):
            raise RequestError(
                "the prompt must be a string, a list of messages (role, content), or a list of "
                "whole numbers, its token ids (of a tensor: .tolist())"
            )
    codec = target.text
    if codec is None:
        raise RequestError(
            f"{target.spec.name} has no tokenizer, so the prompt must be token ids (--prompt-ids)"
        )
    if isinstance(prompt, str):
        if options.raw or not codec.has_chat_template:
            return tuple(codec.encode(prompt))
        return tuple(codec.chat([Message(role="user", content=prompt)], options.template_args))
    messages = [part for part in prompt if not isinstance(part, int)]
    return tuple(codec.chat(messages, options.template_args))


def generate(
    target: TextTarget,
    drafter: Drafter,
    prompt: Prompt,
    params: SamplingParams | None = None,
    *,
    options: PromptOptions | None = None,
    block_size: int | None = None,
) -> Completion:
    """Decode one prompt to its end with the reference decoder.

    The answer is exactly what `target` alone would give (docs/losslessness.md says in which
    sense). Raises RequestError for a prompt or a setting that can't be served.
    """
    prompt_ids = encode_prompt(target, prompt, options)
    return collect(prompt_ids, stream(target, drafter, prompt_ids, params, block_size=block_size))


def stream(
    target: TextTarget,
    drafter: Drafter,
    prompt: Prompt,
    params: SamplingParams | None = None,
    *,
    options: PromptOptions | None = None,
    block_size: int | None = None,
) -> Iterator[Commit]:
    """Like `generate`, one `Commit` a step: new ids, and text that never splits a character.

    Lazy: decoding, and an error in the request, comes with the first commit asked for. Seconds in
    the stats include what the consumer does between steps.
    """
    prompt_ids = encode_prompt(target, prompt, options)
    codec = target.text
    decode_text: DecodeText | None = None if codec is None else codec.decode
    return decode(
        target,
        drafter,
        prompt_ids,
        params or SamplingParams(),
        block_size=block_size,
        decode_text=decode_text,
    )
