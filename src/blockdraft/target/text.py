"""`TextCodec`: text and chat messages to token ids and back, around a Hugging Face tokenizer.

It streams nothing and knows no model; a target without a tokenizer simply has none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypedDict, cast, runtime_checkable

from jinja2.exceptions import TemplateError

from blockdraft.errors import ConfigError, RequestError


class Message(TypedDict):
    """One chat message: `role` is system, user or assistant."""

    role: str
    content: str


ChatMessage = Mapping[str, object]
"""A message with whatever else a template reads (`tool_calls`, `name`, ...); Message is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """What else a conversation is rendered with.

    `tools` are function definitions in the OpenAI shape. `continue_final` leaves the last message
    open, so that the model writes on in it; `add_generation_prompt` opens the assistant's turn.
    `template` replaces the tokenizer's own chat template and is code: never take it from a client
    who is not trusted.
    """

    template_args: Mapping[str, object] | None = None
    tools: Sequence[Mapping[str, object]] | None = None
    add_generation_prompt: bool = True
    continue_final: bool = False
    template: str | None = None


@runtime_checkable
class Tokenizer(Protocol):
    """The part of a transformers tokenizer that is used here."""

    chat_template: object

    def __len__(self) -> int: ...

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...

    def decode(
        self, ids: list[int], *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool
    ) -> str: ...

    def apply_chat_template(
        self,
        conversation: list[ChatMessage],
        *,
        add_generation_prompt: bool,
        tokenize: bool,
        **template_args: object,
    ) -> str: ...


_RESERVED = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "conversation",
        "tokenize",
        "tools",
    }
)


class TextCodec:
    """Text in, ids out, and back; one for each target."""

    def __init__(self, tokenizer: Tokenizer, name: str) -> None:
        self._tokenizer = tokenizer
        self._name = name

    @property
    def vocab_size(self) -> int:
        """Number of token ids with a text, special ones included; the model may have more rows."""
        return len(self._tokenizer)

    @property
    def has_chat_template(self) -> bool:
        return bool(self._tokenizer.chat_template)

    @property
    def chat_template(self) -> str | None:
        """The text of the (default) chat template, None without one."""
        template = self._tokenizer.chat_template
        if isinstance(template, Mapping):
            template = cast(Mapping[str, object], template).get("default")
        return template if isinstance(template, str) else None

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer itself, for libraries that want a whole one."""
        return self._tokenizer

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The ids of raw text, with the special tokens that the tokenizer itself adds (BOS)."""
        return list(self._tokenizer.encode(text, add_special_tokens=add_special_tokens))

    def chat(
        self, messages: Sequence[ChatMessage], template_args: Mapping[str, object] | None = None
    ) -> list[int]:
        """The ids of a conversation, ready for the assistant's next turn.

        `template_args` reach the chat template as variables (`enable_thinking`, ...). Raises
        ConfigError when the tokenizer has no template, RequestError when the template refuses.
        """
        return self.encode_rendered(self.render(messages, ChatOptions(template_args=template_args)))

    def encode_rendered(self, text: str) -> list[int]:
        """The ids of a rendered conversation: its template wrote the special tokens already."""
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def render(self, messages: Sequence[ChatMessage], options: ChatOptions) -> str:
        """The text of a conversation. Raises as `chat` does."""
        if not self.has_chat_template and options.template is None:
            raise ConfigError(
                f"the tokenizer of {self._name} has no chat template: "
                "give the prompt as raw text (--raw) or as ids"
            )
        args = dict(options.template_args or {})
        if wrong := _RESERVED.intersection(args):
            raise ConfigError(f"template argument {min(wrong)} is set by Blockdraft: leave it out")
        if options.tools is not None:
            args["tools"] = [dict(tool) for tool in options.tools]
        if options.continue_final:
            args["continue_final_message"] = True
        if options.template is not None:
            args["chat_template"] = options.template
        try:
            return self._tokenizer.apply_chat_template(
                list(messages),
                add_generation_prompt=options.add_generation_prompt and not options.continue_final,
                tokenize=False,
                **args,
            )
        except (TemplateError, ValueError, TypeError) as error:
            raise RequestError(f"the chat template of {self._name} refused: {error}") from error

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of `ids`, spaces as the model wrote them."""
        return self._tokenizer.decode(
            list(ids), skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False
        )
