"""POST /v1/chat/completions.

The flow is in `answering.py`; this is its chat side.
"""

from starlette.requests import Request
from starlette.responses import Response

from blockdraft.serving.answers.chat_shape import ChatChoice
from blockdraft.serving.answers.head import Head
from blockdraft.serving.answers.options import shown
from blockdraft.serving.answers.plans import plan_chat
from blockdraft.serving.answers.replies import Reply
from blockdraft.serving.answers.running import Answer, Plan
from blockdraft.serving.answers.serving import Serving
from blockdraft.serving.protocol.chat import ChatRequest
from blockdraft.serving.routes.answering import Endpoint, respond


def _reply(serving: Serving, request: ChatRequest, plan: Plan, answer: Answer, head: Head) -> Reply:
    extras = shown(
        request,
        logprobs=bool(request.logprobs),
        default=serving.config.spec_decode_metrics,
    )
    choices = [ChatChoice(index, extras, serving.tokens) for index in range(plan.n)]
    prompt_ids = list(plan.prompts[0].prompt.ids)
    return Reply(
        answer=answer,
        choices=choices,
        openings=choices,
        head=head,
        shown=extras,
        num_spec_tokens=serving.service.num_spec_tokens,
        root={"prompt_token_ids": prompt_ids} if extras.token_ids else {},
    )


CHAT = Endpoint(
    model=ChatRequest,
    id_prefix="chatcmpl",
    kind="chat.completion",
    plan=plan_chat,
    reply=_reply,
)


async def chat_completions(serving: Serving, request: Request) -> Response:
    """One answer of the assistant, whole or as a stream."""
    return await respond(serving, CHAT, request)
