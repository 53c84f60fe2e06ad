"""Bodies of /tokenize and /detokenize.

They carry no sampling.
"""

from typing import Annotated

from pydantic import Field

from blockdraft.serving.protocol.chat import ChatPromptFields
from blockdraft.serving.protocol.wire import TokenId, Wire


class TokenizeText(Wire):
    """Raw text."""

    model: str | None = None
    prompt: str
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class TokenizeChat(ChatPromptFields):
    """A conversation, rendered as a chat request would be."""

    model: str | None = None
    return_token_strs: bool | None = None


class DetokenizeRequest(Wire):
    model: str | None = None
    tokens: Annotated[list[TokenId], Field(max_length=1_000_000)]
