"""JSON schemas of what the server answers, for the OpenAPI document.

Answers are built elsewhere, as plain objects; a fuzz test compares them with these.
"""

from collections.abc import Mapping

Schema = dict[str, object]

STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
NUMBER_OR_NULL: Schema = {"type": ["number", "null"]}
STRING_OR_NULL: Schema = {"type": ["string", "null"]}
NULL: Schema = {"type": "null"}


def _object(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    return {
        "type": "object",
        "required": list(required),
        "properties": {**required, **(optional or {})},
    }


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, NULL]}


def _one_of(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


_ENDINGS = _one_of("stop", "length", "tool_calls")
_ENDED: dict[str, Schema] = {
    "finish_reason": _ENDINGS,
    "stop_reason": {"type": ["string", "integer", "null"]},
}
_IN_PROGRESS: dict[str, Schema] = {"finish_reason": _or_null(_ENDINGS)}
_STOP_REASON: dict[str, Schema] = {"stop_reason": _ENDED["stop_reason"]}
_TOKEN_EXTRAS: dict[str, Schema] = {"token_ids": _list(COUNT), "blockdraft": _ref("StepDetails")}
_ROOT_EXTRAS: dict[str, Schema] = {
    "metrics": _ref("RequestMetrics"),
    "meta_info": _ref("MetaInfo"),
    "sglext": _object({"spec_tokens_details": _ref("SpecDetails")}),
}
_TOKEN: dict[str, Schema] = {"token": STRING, "logprob": NUMBER, "bytes": _list(COUNT)}
_DELTA: dict[str, Schema] = {
    "role": _one_of("assistant"),
    "content": STRING,
    "reasoning": STRING,
    "reasoning_content": STRING,
    "tool_calls": _list(_ref("ToolCallDelta")),
}
_SPEC_DETAILS: dict[str, Schema] = {
    "spec_accept_rate": NUMBER,
    "spec_accept_length": NUMBER,
    "spec_verify_ct": COUNT,
    "spec_num_correct_drafts": COUNT,
    "spec_num_proposed_drafts": COUNT,
    "spec_correct_drafts_histogram": _list(COUNT),
}
_COUNTS: dict[str, Schema] = {"prompt_tokens": COUNT, "completion_tokens": COUNT}


def _document(kind: str, choice: str) -> dict[str, Schema]:
    return {
        "id": STRING,
        "object": _one_of(kind),
        "created": INTEGER,
        "model": STRING,
        "choices": _list(_ref(choice)),
    }


_PROMPT_IDS: dict[str, Schema] = {"prompt_token_ids": _list(COUNT)}

RESPONSE_SCHEMAS: dict[str, Schema] = {
    "Error": _object(
        {
            "error": _object(
                {
                    "message": STRING,
                    "type": STRING,
                    "param": STRING_OR_NULL,
                    "code": STRING_OR_NULL,
                }
            )
        }
    ),
    "ChatCompletion": _object(
        {**_document("chat.completion", "ChatChoice"), "usage": _ref("Usage")},
        {**_PROMPT_IDS, **_ROOT_EXTRAS},
    ),
    "ChatCompletionChunk": _object(
        _document("chat.completion.chunk", "ChatChunkChoice"),
        {"usage": _ref("Usage"), **_PROMPT_IDS, **_ROOT_EXTRAS},
    ),
    "ChatChoice": _object(
        {
            "index": COUNT,
            "message": _ref("AnswerMessage"),
            "logprobs": _or_null(_ref("ChatLogprobs")),
            **_ENDED,
        },
        _TOKEN_EXTRAS,
    ),
    "ChatChunkChoice": _object(
        {
            "index": COUNT,
            "delta": _object({}, _DELTA),
            "logprobs": _or_null(_ref("ChatLogprobs")),
            **_IN_PROGRESS,
        },
        {**_STOP_REASON, **_TOKEN_EXTRAS},
    ),
    "AnswerMessage": _object(
        {"role": _one_of("assistant"), "content": STRING_OR_NULL, "refusal": NULL},
        {
            "reasoning": STRING,
            "reasoning_content": STRING,
            "tool_calls": _list(_ref("MadeToolCall")),
        },
    ),
    "MadeToolCall": _object(
        {
            "id": STRING,
            "type": _one_of("function"),
            "function": _object({"name": STRING, "arguments": STRING}),
        }
    ),
    "ToolCallDelta": _object(
        {"index": COUNT, "function": _object({"arguments": STRING}, {"name": STRING})},
        {"id": STRING, "type": _one_of("function")},
    ),
    "ChatLogprobs": _object(
        {
            "content": _list(_object({**_TOKEN, "top_logprobs": _list(_object(_TOKEN))})),
            "refusal": NULL,
        }
    ),
    "Completion": _object(
        {**_document("text_completion", "CompletionChoice"), "usage": _ref("Usage")},
        _ROOT_EXTRAS,
    ),
    "CompletionChunk": _object(
        _document("text_completion", "CompletionChunkChoice"),
        {"usage": _ref("Usage"), **_ROOT_EXTRAS},
    ),
    "CompletionChoice": _object(
        {
            "index": COUNT,
            "text": STRING,
            "logprobs": _or_null(_ref("CompletionLogprobs")),
            **_ENDED,
        },
        {**_PROMPT_IDS, **_TOKEN_EXTRAS},
    ),
    "CompletionChunkChoice": _object(
        {
            "index": COUNT,
            "text": STRING,
            "logprobs": _or_null(_ref("CompletionLogprobs")),
            **_IN_PROGRESS,
        },
        {**_STOP_REASON, **_PROMPT_IDS, **_TOKEN_EXTRAS},
    ),
    "CompletionLogprobs": _object(
        {
            "tokens": _list(STRING),
            "token_logprobs": _list(NUMBER),
            "top_logprobs": _list({"type": "object", "additionalProperties": NUMBER}),
            "text_offset": _list(COUNT),
        }
    ),
    "Usage": _object(
        {
            **_COUNTS,
            "total_tokens": COUNT,
            "prompt_tokens_details": _object({"cached_tokens": COUNT}),
            "completion_tokens_details": _object({"reasoning_tokens": COUNT}),
        }
    ),
    "StepDetails": _object(
        {
            "tokens": _list(_object({"text": STRING, "drafted": {"type": "boolean"}})),
            "elapsed_ms": NUMBER,
        }
    ),
    "RequestMetrics": _object(
        {
            "speculative_decoding": _object(
                {
                    "mean_acceptance_length": NUMBER,
                    "draft_acceptance_rate": NUMBER,
                    "acceptance_histogram": _list(COUNT),
                    "num_spec_steps": COUNT,
                    "num_accepted_draft_tokens": COUNT,
                    "num_draft_tokens": COUNT,
                    "num_spec_tokens": COUNT,
                },
                {"per_step_accepted": _list(COUNT), "per_step_drafted": _list(COUNT)},
            )
        },
        {
            "time_to_first_token_ms": NUMBER,
            "generation_time_ms": NUMBER,
            "queue_time_ms": NUMBER,
            "mean_itl_ms": NUMBER_OR_NULL,
            "tokens_per_second": NUMBER_OR_NULL,
        },
    ),
    "SpecDetails": _object(_SPEC_DETAILS),
    "MetaInfo": _object({**_COUNTS, "cached_tokens": COUNT, **_SPEC_DETAILS}),
    "Model": _object(
        {
            "id": STRING,
            "object": _one_of("model"),
            "created": INTEGER,
            "owned_by": STRING,
            "root": STRING,
            "parent": NULL,
            "max_model_len": COUNT,
            "speculation": _object({"drafter": STRING_OR_NULL, "num_spec_tokens": COUNT}),
        }
    ),
    "ModelList": _object({"object": _one_of("list"), "data": _list(_ref("Model"))}),
    "Tokens": _object(
        {
            "count": COUNT,
            "max_model_len": COUNT,
            "tokens": _list(COUNT),
            "token_strs": _or_null(_list(STRING)),
        }
    ),
    "Text": _object({"prompt": STRING}),
    "State": _object({"status": STRING}),
    "Version": _object({"version": STRING}),
}
"""Name -> schema. Optional fields are those that a request asks for, or that not every chunk has.

More fields may come, so none of them forbids others.
"""
