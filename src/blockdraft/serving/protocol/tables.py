"""The parameter tables of docs/http-api.md, made from the models and lists that the server uses.

It writes no file; a test compares the text with the document.
"""

from collections.abc import Sequence

from pydantic import BaseModel

from blockdraft.serving.protocol.chat import ChatRequest
from blockdraft.serving.protocol.completions import CompletionRequest
from blockdraft.serving.protocol.other_fields import IGNORED, REFUSED


def parameter_tables() -> str:
    """Markdown: what both endpoints honor, what only one does, what is ignored and refused."""
    chat, completion = _described(ChatRequest), _described(CompletionRequest)
    both = {name: text for name, text in chat.items() if completion.get(name) == text}
    only_chat = {name: text for name, text in chat.items() if name not in both}
    only_completion = {name: text for name, text in completion.items() if name not in both}
    refused = {
        name: f"{why.reason}. {_neutral(why.neutral)}".strip() for name, why in REFUSED.items()
    }
    return "\n".join(
        (
            *_table("Honored by both endpoints", both),
            *_table("Honored by `/v1/chat/completions`", only_chat),
            *_table("Honored by `/v1/completions`", only_completion),
            *_table("Ignored, since they can't change an answer", IGNORED),
            *_table("Refused with 400", refused),
        )
    )


def _described(model: type[BaseModel]) -> dict[str, str]:
    return {
        field.alias or name: field.description or "" for name, field in model.model_fields.items()
    }


def _table(title: str, rows: dict[str, str]) -> list[str]:
    lines = [f"### {title}", "", "| parameter | |", "| --- | --- |"]
    lines += [f"| `{name}` | {rows[name]} |" for name in sorted(rows)]
    return [*lines, ""]


def _neutral(values: Sequence[object]) -> str:
    if not values:
        return ""
    shown = {str(value).lower() if isinstance(value, bool) else repr(value) for value in values}
    return f"Asks for nothing, and passes: {', '.join(sorted(shown))}."
