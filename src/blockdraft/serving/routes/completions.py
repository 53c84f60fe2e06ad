"""POST /v1/completions.

The flow is in `answering.py`; this is its completion side.
"""

from starlette.requests import Request
from starlette.responses import Response

from blockdraft.serving.answers.completion_shape import CompletionChoice
from blockdraft.serving.answers.head import Head
from blockdraft.serving.answers.options import shown
from blockdraft.serving.answers.plans import plan_completion
from blockdraft.serving.answers.replies import Reply
from blockdraft.serving.answers.running import Answer, Plan
from blockdraft.serving.answers.serving import Serving
from blockdraft.serving.protocol.completions import CompletionRequest
from blockdraft.serving.routes.answering import Endpoint, respond


def _reply(
    serving: Serving, request: CompletionRequest, plan: Plan, answer: Answer, head: Head
) -> Reply:
    extras = shown(
        request,
        logprobs=request.logprobs is not None,
        default=serving.config.spec_decode_metrics,
    )
    choices = [
        CompletionChoice(place * plan.n + choice, extras, serving.tokens, planned.prompt.ids)
        for place, planned in enumerate(plan.prompts)
        for choice in range(plan.n)
    ]
    return Reply(
        answer=answer,
        choices=choices,
        openings=(),
        head=head,
        shown=extras,
        num_spec_tokens=serving.service.num_spec_tokens,
        root={},
    )


COMPLETIONS = Endpoint(
    model=CompletionRequest,
    id_prefix="cmpl",
    kind="text_completion",
    plan=plan_completion,
    reply=_reply,
)


async def completions(serving: Serving, request: Request) -> Response:
    """What follows one prompt or several, whole or as a stream."""
    return await respond(serving, COMPLETIONS, request)
