"""What goes over the wire to an OpenAI-compatible server, and what its replies say.

Values only, no connection: that is `endpoint.py`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from blockdraft.data.answer_requests import TurnRequest
from blockdraft.data.answer_row import AnswerEnd
from blockdraft.data.rendering import Renderer
from blockdraft.json_values import as_list

OWN_FIELDS = ("tools",)
"""Arguments of the template that are fields of a request."""


class BadReply(Exception):
    """A reply that no answer can be read from; `is_final`: another try would bring the same."""

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.is_final = is_final


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer from a server. `num_counted` is the number of ids that it says it generated."""

    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]
    finish_reason: AnswerEnd
    from_server: bool
    num_counted: int | None


def request_path(request: TurnRequest) -> str:
    return "completions" if request.messages is None else "chat/completions"


def request_body(request: TurnRequest, model: str, *, asks_for_ids: bool) -> dict[str, object]:
    """The JSON of one request."""
    sampling = request.sampling
    body: dict[str, object] = {"model": model}
    if request.messages is None:
        body["prompt"] = request.raw_text
    else:
        body["messages"] = list(request.messages)
        args = request.template_args
        body |= {name: args[name] for name in OWN_FIELDS if name in args}
        if rest := {name: value for name, value in args.items() if name not in OWN_FIELDS}:
            body["chat_template_kwargs"] = rest
    body["max_tokens"] = sampling.max_new_tokens
    body["temperature"] = sampling.temperature
    if sampling.temperature > 0:
        body |= {"top_p": sampling.top_p, "seed": sampling.seed}
    if asks_for_ids:
        body["return_token_ids"] = True
    return body


def read_reply(text: str, request: TurnRequest, renderer: Renderer, end_id: int | None) -> Reply:
    """The answer in a reply with status 200.

    Ids that the server sent are taken as they are; otherwise the prompt's are those rendered here,
    and the answer's text is tokenized here, `end_id` put after an answer that ended by itself.
    Raises BadReply.
    """
    document = _object(_parsed(text), "the reply")
    choices = document.get("choices")
    if not isinstance(choices, list) or not choices:
        raise BadReply("the reply has no choices")
    choice = _object(cast("list[object]", choices)[0], "its choice")
    reason = choice.get("finish_reason")
    if reason not in ("stop", "length"):
        raise BadReply(
            f"the answer ended with {reason!r}, not by itself or its limit", is_final=True
        )
    ending: AnswerEnd = "stop" if reason == "stop" else "length"
    sent = _ids(choice.get("token_ids"))
    if sent is not None:
        prompt_ids = _ids(choice.get("prompt_token_ids")) or _ids(document.get("prompt_token_ids"))
        answer_ids = sent
    else:
        prompt_ids = None
        answer_ids = renderer.encode_plain(_answer_text(choice, request))
    if ending == "stop" and end_id is not None and answer_ids[-1:] != (end_id,):
        is_ended = bool(answer_ids) and answer_ids[-1] in renderer.stop_ids
        answer_ids = answer_ids if is_ended else (*answer_ids, end_id)
    return Reply(
        prompt_ids=prompt_ids or request.prompt_ids,
        answer_ids=answer_ids,
        finish_reason=ending,
        from_server=sent is not None,
        num_counted=_num_counted(document),
    )


def read_model_names(text: str) -> tuple[str, ...]:
    """The names in a list of models; none where the reply is something else."""
    try:
        models = as_list(_object(_parsed(text), "the reply").get("data"))
        return tuple(str(_object(model, "a model").get("id")) for model in models)
    except BadReply:
        return ()


def _answer_text(choice: Mapping[str, object], request: TurnRequest) -> str:
    if request.messages is None:
        text = choice.get("text")
    else:
        message = _object(choice.get("message"), "its message")
        if message.get("reasoning_content") or message.get("reasoning"):
            raise BadReply(
                "the server cuts reasoning out of answers, so their ids are lost: start it without "
                "a reasoning parser, or use --return-token-ids",
                is_final=True,
            )
        text = message.get("content")
    if text is None:
        return ""
    if not isinstance(text, str):
        raise BadReply("the answer is not text")
    return text


def _num_counted(document: Mapping[str, object]) -> int | None:
    usage = document.get("usage")
    if not isinstance(usage, dict):
        return None
    counted = cast("dict[str, object]", usage).get("completion_tokens")
    return counted if isinstance(counted, int) else None


def _parsed(text: str) -> object:
    try:
        return cast(object, json.loads(text))
    except (ValueError, RecursionError) as error:
        raise BadReply(f"the reply is not JSON ({error})") from error


def _object(value: object, what: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise BadReply(f"{what} is not a JSON object")
    return cast("dict[str, object]", value)


def _ids(value: object) -> tuple[int, ...] | None:
    """Token ids that a server sent; None where it sent none."""
    if not isinstance(value, list):
        return None
    ids = cast("list[object]", value)
    if not all(type(part) is int and part >= 0 for part in ids):
        raise BadReply("token_ids of the reply are not whole numbers")
    return tuple(cast("list[int]", ids))
