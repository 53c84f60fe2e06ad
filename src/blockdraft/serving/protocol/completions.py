"""`CompletionRequest`: the body of /v1/completions.

It encodes nothing.
"""

from typing import Annotated

from pydantic import Field

from blockdraft.serving.protocol.sampling import AnswerFields
from blockdraft.serving.protocol.wire import TokenId

PromptIds = Annotated[list[TokenId], Field(min_length=1)]


class CompletionRequest(AnswerFields):
    """The body of /v1/completions."""

    prompt: (
        str
        | PromptIds
        | Annotated[list[str], Field(min_length=1)]
        | Annotated[list[PromptIds], Field(min_length=1)]
    ) = Field(description="Text, a list of texts, token ids, or a list of lists of token ids.")
    add_special_tokens: bool | None = Field(
        default=None, description="Default true: the tokenizer adds its own (BOS) to text."
    )
    logprobs: Annotated[int, Field(ge=0, le=1000)] | None = Field(
        default=None,
        description="Log-probabilities of emitted tokens and of the k likeliest, under the "
        "unmodified model.",
    )
