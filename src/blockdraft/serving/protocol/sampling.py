"""`AnswerFields`: the fields that chat and completion requests share.

The descriptions are the documentation: docs/http-api.md is made from them.
"""

from typing import Annotated, Literal

from pydantic import Field

from blockdraft.decoding.params import MAX_SEED
from blockdraft.serving.protocol.structured import ResponseFormat, StructuredOutputs
from blockdraft.serving.protocol.wire import (
    MAX_COUNT,
    MAX_LISTED_IDS,
    MAX_STOP_STRINGS,
    Count,
    StopText,
    TokenId,
    Wire,
)


class StreamOptions(Wire):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class BlockdraftOptions(Wire):
    """What only this server has; the answer's law depends on none of it."""

    speculation: Literal["auto", "off"] | None = None
    max_draft_tokens: Annotated[int, Field(ge=0, le=MAX_COUNT)] | None = None
    metrics: Literal["none", "summary", "detailed"] | None = None
    step_details: bool | None = None


class AnswerFields(Wire):
    """Everything about an answer that does not depend on how its prompt is given."""

    model: str | None = Field(
        default=None, description="The served name; may be left out. Another one gives 404."
    )
    max_tokens: Count | None = Field(
        default=None,
        description="Most tokens to emit; the room left in the context cuts it. Above "
        "max_model_len gives 400. Default: 16 for completions, the room for chat.",
    )
    temperature: Annotated[float, Field(ge=0, le=100)] | None = Field(
        default=None,
        description="0 is greedy. Default: the model's generation configuration, else 1.",
    )
    top_p: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="Nucleus sampling. Default: the model's, else 1 (off)."
    )
    top_k: Annotated[int, Field(ge=-1, le=MAX_COUNT)] | None = Field(
        default=None,
        description="The k most likely tokens; 0 and -1 are off. Default: the model's, else off.",
    )
    min_p: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None, description="Least probability relative to the most likely token."
    )
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] | None = Field(
        default=None, description="Divides (multiplies) logits of tokens seen; 1 is off."
    )
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = Field(
        default=None, description="Taken from the logits of tokens already emitted."
    )
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = Field(
        default=None, description="The same, once for each time a token was emitted."
    )
    logit_bias: (
        Annotated[
            dict[str, Annotated[float, Field(ge=-100, le=100)]],
            Field(max_length=MAX_LISTED_IDS),
        ]
        | None
    ) = Field(default=None, description="Token id (as a string) to what its logit gains.")
    allowed_token_ids: (
        Annotated[list[TokenId], Field(min_length=1, max_length=1_000_000)] | None
    ) = Field(default=None, description="Only these tokens may be emitted.")
    bad_words: Annotated[list[StopText], Field(max_length=256)] | None = Field(
        default=None,
        description="Texts whose token sequences (with and without a leading space) are forbidden.",
    )
    n: Annotated[int, Field(ge=1, le=MAX_COUNT)] | None = Field(
        default=None,
        description="Choices for each prompt. Choice 0 uses `seed` itself, choice i > 0 a seed "
        "derived from (seed, i). Prompts times n is bounded by the server.",
    )
    best_of: Annotated[int, Field(ge=1, le=MAX_COUNT)] | None = Field(
        default=None, description="Only equal to n (nothing is ranked); else 400."
    )
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] | None = Field(
        default=None,
        description="The same seed draws the same numbers, whatever else the server does: the same "
        "answer, up to rounding (docs/losslessness.md).",
    )
    stop: StopText | Annotated[list[StopText], Field(max_length=MAX_STOP_STRINGS)] | None = Field(
        default=None,
        description="Text that ends the answer; the earliest in the text wins. At most 64.",
    )
    stop_token_ids: Annotated[list[TokenId], Field(max_length=MAX_LISTED_IDS)] | None = Field(
        default=None, description="Tokens that end the answer, besides the model's own."
    )
    include_stop_str_in_output: bool | None = Field(
        default=None, description="Keep the stop string (or the stop token's text) in the text."
    )
    ignore_eos: bool | None = Field(
        default=None, description="The model's own stop tokens do not end the answer."
    )
    min_tokens: Annotated[int, Field(ge=0, le=MAX_COUNT)] | None = Field(
        default=None,
        description="No stop before this many tokens; 400 where the context has no room for them.",
    )
    skip_special_tokens: bool | None = Field(
        default=None,
        description="Default true: they are left out of the text, stop tokens that `ignore_eos` "
        "lets through included. Markers of tools and reasoning are read either way.",
    )
    truncate_prompt_tokens: Annotated[int, Field(ge=-1, le=MAX_COUNT)] | None = Field(
        default=None,
        description="Keep the last k prompt tokens; -1 = as many as leave room for one token.",
    )
    stream: bool | None = Field(default=None, description="Server-sent events.")
    stream_options: StreamOptions | None = Field(
        default=None,
        description="include_usage: a last chunk with usage; continuous_usage_stats: usage in "
        "every chunk. Only with stream.",
    )
    response_format: ResponseFormat | None = Field(
        default=None,
        description="text, json_object, json_schema or structural_tag, through a grammar.",
    )
    structured_outputs: StructuredOutputs | None = Field(
        default=None,
        description="Exactly one of json, regex, choice, grammar, json_object, structural_tag.",
    )
    echo: bool | None = Field(
        default=None,
        description="Put the prompt (chat: the last assistant message) before the answer. "
        "Not together with logprobs for completions.",
    )
    return_token_ids: bool | None = Field(
        default=None, description="Adds token_ids and prompt_token_ids."
    )
    return_tokens_as_token_ids: bool | None = Field(
        default=None, description="Tokens in logprobs are written token_id:N."
    )
    request_id: Annotated[str, Field(pattern=r"^[!-~]{1,128}$")] | None = Field(
        default=None, description="Becomes part of the response's id."
    )
    return_meta_info: bool | None = Field(
        default=None, description="Adds meta_info with the figures of the drafts."
    )
    return_spec_tokens_details: bool | None = Field(
        default=None, description="Adds sglext.spec_tokens_details."
    )
    blockdraft: BlockdraftOptions | None = Field(
        default=None,
        description="Our own options, an object: speculation auto or off (plain decoding of this "
        "request), max_draft_tokens (fewer drafts a step), metrics none, summary or detailed (adds "
        "metrics.speculative_decoding), step_details (text, draft flag and time of each token).",
    )

    @property
    def own(self) -> BlockdraftOptions:
        return self.blockdraft or BlockdraftOptions()

    @property
    def choices(self) -> int:
        return self.n or 1
