"""Parameters that are not in the models: the refused ones with reasons, and the ignored ones.

The ignored list is short on purpose: what changes an answer is honored or refused.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a parameter is refused, and the values of it that ask for nothing (null always does)."""

    reason: str
    neutral: tuple[object, ...] = ()


_USE_STRUCTURED = "use structured_outputs"
_NO_BEAMS = "there is no beam search here"
_TEXT_ONLY = "this server takes and gives text only"

REFUSED: dict[str, Refused] = {
    "audio": Refused(_TEXT_ONLY),
    "cache_salt": Refused("the prefix cache is shared by all clients of this server"),
    "early_stopping": Refused(_NO_BEAMS, (False,)),
    "function_call": Refused("use tool_choice"),
    "functions": Refused("use tools"),
    "guided_choice": Refused(_USE_STRUCTURED),
    "guided_grammar": Refused(_USE_STRUCTURED),
    "guided_json": Refused(_USE_STRUCTURED),
    "guided_regex": Refused(_USE_STRUCTURED),
    "kv_transfer_params": Refused("one server does all of a request here"),
    "length_penalty": Refused(_NO_BEAMS, (1, 1.0)),
    "logits_processors": Refused("code from a client is not run"),
    "mm_processor_kwargs": Refused(_TEXT_ONLY),
    "modalities": Refused(_TEXT_ONLY, (["text"],)),
    "prediction": Refused("drafts come from the server's own drafter"),
    "priority": Refused("requests are served in order of arrival", (0,)),
    "prompt_logprobs": Refused("log-probabilities of the prompt are not computed here"),
    "spaces_between_special_tokens": Refused("the text is as the tokenizer writes it", (True,)),
    "suffix": Refused("the model writes on, it does not fill in", ("",)),
    "top_a": Refused("this sampling rule is not implemented", (0, 0.0)),
    "typical_p": Refused("this sampling rule is not implemented", (1, 1.0)),
    "use_beam_search": Refused(_NO_BEAMS, (False,)),
    "verbosity": Refused("the model has no such setting"),
    "web_search_options": Refused("this server searches nothing"),
}
"""Name -> why it gives 400."""

IGNORED: dict[str, str] = {
    "metadata": "nothing is stored",
    "prompt_cache_key": "prefixes are found by their tokens",
    "safety_identifier": "nothing is stored",
    "service_tier": "there is one tier",
    "store": "nothing is stored",
    "user": "nothing is stored",
}
"""Name -> why it may be ignored: it can't change an answer."""
