"""POST /tokenize and /detokenize.

They run the tokenizer on a thread and never the model.
"""

import asyncio

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from blockdraft.serving.answers.plans import render_only
from blockdraft.serving.answers.serving import Serving
from blockdraft.serving.errors import ApiError
from blockdraft.serving.limits import read_body
from blockdraft.serving.protocol.reading import parse_object, parse_request
from blockdraft.serving.protocol.tokenizing import DetokenizeRequest, TokenizeChat, TokenizeText


async def tokenize(serving: Serving, request: Request) -> Response:
    """Ids of a text, or of a rendered conversation when there are messages."""
    fields = await _fields(serving, request)
    model = TokenizeChat if "messages" in fields else TokenizeText
    asked = parse_request(model, fields)
    serving.check_model(asked.model)
    ids = await asyncio.to_thread(_encode, serving, asked)
    document: dict[str, object] = {
        "count": len(ids),
        "max_model_len": serving.service.max_model_len,
        "tokens": ids,
        "token_strs": [serving.tokens.text(i) for i in ids] if asked.return_token_strs else None,
    }
    return JSONResponse(document)


async def detokenize(serving: Serving, request: Request) -> Response:
    """The text of ids, special tokens shown."""
    asked = parse_request(DetokenizeRequest, await _fields(serving, request))
    serving.check_model(asked.model)
    codec, vocab_size = serving.codec, serving.service.vocab_size
    for token_id in asked.tokens:
        if token_id >= vocab_size:
            raise ApiError(
                f"tokens: {token_id} is outside the vocabulary [0, {vocab_size})", param="tokens"
            )
    text = await asyncio.to_thread(codec.decode, asked.tokens, skip_special_tokens=False)
    return JSONResponse({"prompt": text})


def _encode(serving: Serving, asked: TokenizeText | TokenizeChat) -> list[int]:
    if isinstance(asked, TokenizeChat):
        return list(render_only(serving, asked).ids)
    add_special = asked.add_special_tokens is not False
    return serving.codec.encode(asked.prompt, add_special_tokens=add_special)


async def _fields(serving: Serving, request: Request) -> dict[str, object]:
    config = serving.config
    body = await read_body(request, max_bytes=config.max_body_bytes, seconds=config.body_seconds)
    return parse_object(body)
