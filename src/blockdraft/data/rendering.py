"""`Renderer`: conversations to the token ids that a target is fed, and answers back to text.

It generates nothing; what template and arguments do is recorded, so that a manifest can name it.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from blockdraft.data.conversations import Conversation
from blockdraft.errors import ConfigError, RequestError
from blockdraft.target import Message

PROBE = "What is a probe?"


class Codec(Protocol):
    """The calls of `TextCodec` that are used here."""

    @property
    def has_chat_template(self) -> bool: ...
    @property
    def vocab_size(self) -> int: ...
    def encode(self, text: str) -> list[int]: ...
    def chat(
        self, messages: Sequence[Message], template_args: Mapping[str, object] | None = None
    ) -> list[int]: ...
    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderingConfig:
    """How a conversation becomes a prompt.

    `system` is for conversations that bring none of their own; None leaves those to the template,
    which may add its own default. `raw` takes the user turn as it is, without a template.
    """

    raw: bool = False
    system: str | None = None
    template_args: Mapping[str, object] = field(default_factory=dict[str, object])

    def __post_init__(self) -> None:
        if self.raw and (self.system is not None or self.template_args):
            raise ConfigError("--raw applies no chat template; drop --system and --template-arg")


class Renderer:
    """Prompts for one target, always by the same rules."""

    def __init__(self, codec: Codec, config: RenderingConfig, stop_ids: Sequence[int]) -> None:
        """Raises ConfigError for a tokenizer without a chat template, unless `raw`."""
        if not config.raw and not codec.has_chat_template:
            raise ConfigError(
                "the target has no chat template, so its answers to chat turns are not defined: "
                "use a target with one, or `data regenerate --raw` for prompts that are "
                "continued as they stand"
            )
        self.codec = codec
        self.config = config
        self.stop_ids = frozenset(stop_ids)

    def messages(self, conversation: Conversation, answers: Sequence[str]) -> list[Message]:
        """The chat up to the user turn that follows `answers`."""
        system = conversation.system or self.config.system
        chat = [] if system is None else [Message(role="system", content=system)]
        for turn, answer in zip(conversation.turns, answers, strict=False):
            chat.append(Message(role="user", content=turn))
            chat.append(Message(role="assistant", content=answer))
        return [*chat, Message(role="user", content=conversation.turns[len(answers)])]

    def template_args(self, conversation: Conversation) -> dict[str, object]:
        """The template's arguments, the conversation's tools among them."""
        args = dict(self.config.template_args)
        if conversation.tools is not None:
            args["tools"] = list(conversation.tools)
        return args

    def prompt_ids(self, conversation: Conversation, answers: Sequence[str]) -> tuple[int, ...]:
        """All ids before the answer that follows `answers`.

        Raises RequestError for a conversation that the template does not take, or several raw
        turns.
        """
        if self.config.raw:
            if len(conversation.turns) != 1 or conversation.system or conversation.tools:
                raise RequestError("more than one raw turn (or a system text) can't be joined")
            return tuple(self.codec.encode("".join(conversation.turns)))
        messages = self.messages(conversation, answers)
        try:
            return tuple(self.codec.chat(messages, self.template_args(conversation)))
        except (ArithmeticError, AttributeError, LookupError) as error:
            # Templates are programs: they also stumble over what no template error is made for.
            raise RequestError(
                f"the chat template failed ({type(error).__name__}: {error})"
            ) from error

    def answer_text(self, answer_ids: Sequence[int]) -> str:
        """What an answer says, as later turns quote it: no stop token, no special tokens."""
        ended = bool(answer_ids) and answer_ids[-1] in self.stop_ids
        return self.codec.decode(answer_ids[:-1] if ended else answer_ids)

    def encode_plain(self, text: str) -> tuple[int, ...]:
        """The ids of `text` without those that the tokenizer puts around every text."""
        ids, around = self.codec.encode(text), self.codec.encode("")
        num_leading = 0
        while num_leading < len(around) and ids[num_leading] == around[num_leading]:
            num_leading += 1
        return tuple(ids[num_leading : len(ids) - (len(around) - num_leading)])

    def describe(self) -> dict[str, object]:
        """What a manifest says of the template.

        `template_sha256` is that of what the template makes of probes with and without a system
        text and with an earlier answer: another template, or another version of it, differs.
        """
        described: dict[str, object] = {
            "raw": self.config.raw,
            "system": self.config.system,
            "template_args": dict(self.config.template_args),
        }
        if not self.config.raw:
            described["template_sha256"] = self._fingerprint()
            bare = self._probe(None, 0)
            described["rendered_example"] = self.codec.decode(bare, skip_special_tokens=False)
        return described

    def end_of_answer(self) -> int | None:
        """The stop token that the template puts after an answer; None where it puts none."""
        if self.config.raw:
            return min(self.stop_ids, default=None)
        first, second = self._probe(None, 0), self._probe(None, 1)
        later = second[len(first) :] if second[: len(first)] == first else second
        return next((i for i in later if i in self.stop_ids), min(self.stop_ids, default=None))

    def _probe(self, system: str | None, num_answers: int) -> tuple[int, ...]:
        conversation = Conversation(id="probe", source="", system=system, turns=(PROBE, PROBE))
        return self.prompt_ids(conversation, ["A thing that probes."] * num_answers)

    def _fingerprint(self) -> str:
        bare = Renderer(self.codec, replace(self.config, system=None), tuple(self.stop_ids))
        return bare.template_digest()

    def template_digest(self) -> str:
        """The SHA-256 of what the template makes of the probes."""
        rendered: list[object] = []
        for system in (None, "Be short."):
            for num_answers in (0, 1):
                try:
                    rendered.append(self._probe(system, num_answers))
                except RequestError as error:  # some templates take no system text
                    rendered.append(str(error))
        return hashlib.sha256(json.dumps(rendered).encode()).hexdigest()
