"""`ChatRequest`: the body of /v1/chat/completions, and what /tokenize shares with it.

It renders nothing.
"""

from typing import Annotated

from pydantic import Field

from blockdraft.serving.protocol.messages import ChatMessageIn, Tool, ToolChoice
from blockdraft.serving.protocol.sampling import AnswerFields
from blockdraft.serving.protocol.wire import Count, JsonObject, Wire


class ChatPromptFields(Wire):
    """What a conversation is rendered with."""

    messages: Annotated[list[ChatMessageIn], Field(min_length=1)] = Field(
        description="The conversation; content is text or a list of text parts."
    )
    tools: Annotated[list[Tool], Field(max_length=128)] | None = Field(
        default=None,
        description="Functions the model may call; calls of `strict` ones follow their schemas. "
        "400 where the model's template has no tools.",
    )
    add_generation_prompt: bool | None = Field(
        default=None, description="Default true: open the assistant's turn."
    )
    continue_final_message: bool | None = Field(
        default=None, description="Let the model write on in the last message."
    )
    add_special_tokens: bool | None = Field(
        default=None,
        description="Default: chat false (the template writes them), completions true.",
    )
    chat_template: Annotated[str, Field(max_length=200_000)] | None = Field(
        default=None,
        description="Code from the client: refused unless the server trusts its clients.",
    )
    chat_template_kwargs: JsonObject | None = Field(
        default=None,
        description="Variables for the chat template (enable_thinking, ...); a template takes "
        "what it reads.",
    )
    documents: Annotated[list[JsonObject], Field(max_length=1000)] | None = Field(
        default=None, description="For templates that read documents; 400 otherwise."
    )
    reasoning_effort: str | None = Field(
        default=None, description="For templates that read reasoning_effort; 400 otherwise."
    )


class ChatRequest(AnswerFields, ChatPromptFields):
    """The body of /v1/chat/completions."""

    max_completion_tokens: Count | None = Field(
        default=None, description="The newer name of max_tokens; both must agree."
    )
    tool_choice: ToolChoice | None = Field(
        default=None,
        description="none (tools are left out of the prompt), auto, required or a named function; "
        "the last two are forced by a grammar.",
    )
    parallel_tool_calls: bool | None = Field(
        default=None,
        description="False: only the first call is kept (forced or strict tools: only one is "
        "made).",
    )
    logprobs: bool | None = Field(
        default=None,
        description="Log-probabilities of emitted tokens under the unmodified model.",
    )
    top_logprobs: Annotated[int, Field(ge=0, le=1000)] | None = Field(
        default=None, description="And of the k likeliest; needs logprobs. At most the server's 20."
    )
    include_reasoning: bool | None = Field(
        default=None, description="Default true. False leaves the reasoning out of the answer."
    )
