"""`TextCodec`: text and chat messages to token ids and back, around a Hugging Face tokenizer.

It streams nothing and knows no model; a target without a tokenizer simply has none.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypedDict, runtime_checkable

from jinja2.exceptions import TemplateError

from blockdraft.errors import ConfigError, RequestError


class Message(TypedDict):
    """One chat message: `role` is system, user or assistant."""

    role: str
    content: str


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
        conversation: list[Message],
        *,
        add_generation_prompt: bool,
        tokenize: bool,
        **template_args: object,
    ) -> str: ...


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

    def encode(self, text: str) -> list[int]:
        """The ids of raw text, with the special tokens that the tokenizer itself adds (BOS)."""
        return list(self._tokenizer.encode(text, add_special_tokens=True))

    def chat(
        self, messages: Sequence[Message], template_args: Mapping[str, object] | None = None
    ) -> list[int]:
        """The ids of a conversation, ready for the assistant's next turn.

        `template_args` reach the chat template as variables (`enable_thinking`, ...). Raises
        ConfigError when the tokenizer has no template, RequestError when the template refuses.
        """
        if not self.has_chat_template:
            raise ConfigError(
                f"the tokenizer of {self._name} has no chat template: "
                "give the prompt as raw text (--raw) or as ids"
            )
        reserved = {"add_generation_prompt", "tokenize", "conversation"}
        if wrong := reserved.intersection(template_args or {}):
            raise ConfigError(f"template argument {min(wrong)} is set by Blockdraft: leave it out")
        try:
            text = self._tokenizer.apply_chat_template(
                list(messages), add_generation_prompt=True, tokenize=False, **(template_args or {})
            )
        except (TemplateError, ValueError, TypeError) as error:
            raise RequestError(f"the chat template of {self._name} refused: {error}") from error
        # The template writes its own special tokens, so none may be added on top of them.
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of `ids`, spaces as the model wrote them."""
        return self._tokenizer.decode(
            list(ids), skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False
        )
