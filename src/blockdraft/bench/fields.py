"""Fields of logged requests: which go along with a request, which don't matter, which can't be had.

It reads values of no field; that is `logged.py`.
"""

from typing import NamedTuple

SAMPLING = frozenset(
    (
        *("top_p", "top_k", "min_p", "stop", "stop_token_ids", "min_tokens", "logit_bias"),
        *("presence_penalty", "frequency_penalty", "repetition_penalty"),
    )
)
"""What our own sampling has too, under OpenAI's names (and vLLM's)."""

SHAPING = frozenset(
    (
        *("response_format", "tool_choice", "parallel_tool_calls", "reasoning_effort", "verbosity"),
        *("structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar"),
        *("json_schema", "grammar", "regex", "ebnf", "bad_words", "allowed_token_ids"),
        *("include_stop_str_in_output", "skip_special_tokens", "truncate_prompt_tokens"),
        *(
            "chat_template",
            "documents",
            "include_reasoning",
            "suffix",
            "typical_p",
            "repeat_penalty",
        ),
        *("add_special_tokens", "spaces_between_special_tokens", "separate_reasoning"),
    )
)
"""What a server may understand; it refuses what it doesn't."""

READ = frozenset(
    (
        *("messages", "prompt", "prompt_ids", "turns", "system", "id", "category"),
        *("max_tokens", "max_completion_tokens", "temperature", "seed", "ignore_eos"),
        *("tools", "chat_template_kwargs"),
    )
)
"""What `rows.py` and `logged.py` read themselves."""

WITHOUT_EFFECT = frozenset(
    (
        *("model", "stream", "stream_options", "user", "metadata", "store", "service_tier"),
        *("safety_identifier", "prompt_cache_key", "request_id", "priority", "cache_salt"),
        *("logprobs", "top_logprobs", "return_token_ids", "return_meta_info", "blockdraft"),
        *("custom_id", "method", "url", "timestamp", "created"),
    )
)
"""What leaves the answer's tokens as they are, or is the bench's own to say."""

DEFAULTS: dict[str, object] = {
    "n": 1,
    "best_of": 1,
    "echo": False,
    "use_beam_search": False,
    "add_generation_prompt": True,
    "continue_final_message": False,
}
"""What can't be measured here unless it has this value, which asks for nothing."""


class FieldRules(NamedTuple):
    """What becomes of a row's fields. `taken` go along with its request; `ignored` (the caller's
    choice) are passed over although they would matter.

    `is_sent`: to a server, which may understand contents that are not text, and which judges the
    values of fields.
    """

    taken: frozenset[str]
    is_sent: bool
    ignored: frozenset[str] = frozenset()

    def ignoring(self, names: frozenset[str]) -> "FieldRules":
        return self._replace(ignored=names)


ENDPOINT = FieldRules(SAMPLING | SHAPING, is_sent=True)
IN_PROCESS = FieldRules(SAMPLING, is_sent=False)
