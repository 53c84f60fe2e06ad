"""The Python front door: load a target, load a drafter, generate or stream.

Text and messages in, text and ids out; the algorithm is in `decoding`, the models in `target` and
`drafter`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from blockdraft.builtin import builtin_drafter_path
from blockdraft.checkpoint import load_dflash
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
from blockdraft.errors import RequestError
from blockdraft.target import Message, TextCodec, load_target

__all__ = [
    "Prompt",
    "PromptOptions",
    "TextTarget",
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

    `taps` overrides (or supplies) the checkpoint's target layers, `block_size` narrows its block,
    `dtype` None follows the target's. Raises CheckpointError for a checkpoint that is damaged, of
    another format, or does not fit the target.
    """
    if source == "none":
        return NoDrafter()
    if source == "prompt-lookup":
        return PromptLookupDrafter(block_size or 8)
    path = builtin_drafter_path(source) or source
    return load_dflash(
        path, target, taps=taps, block_size=block_size, revision=revision, dtype=dtype
    )


def encode_prompt(
    target: TextTarget, prompt: Prompt, options: PromptOptions | None = None
) -> tuple[int, ...]:
    """Token ids of a prompt. Raises RequestError for text when the target has no tokenizer."""
    options = options or PromptOptions()
    if not isinstance(prompt, str):
        ids = [part for part in prompt if isinstance(part, int)]
        if len(ids) == len(prompt):
            return tuple(ids)
        if not all(isinstance(part, dict) for part in prompt):
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
