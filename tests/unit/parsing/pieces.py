"""A vocabulary of bytes and longer pieces, whose borders lie across those of the tags."""

from collections.abc import Sequence

# Tokens hold several characters and their borders lie across those of the tags, as in real
# vocabularies; the three pieces of the emoji are no characters of their own.
MERGES = [
    "</think>", "\n\n", "<tool_call>", "</tool_call>", "<|python_tag|>", '{"', "name", '":', ' "',
    "find", '",', "argu", "ments", "param", "eters", '}}', "}\n", "; ", "<fun", "ction=", "</fun",
    "ction>", ">\n<", "</par", "ameter>", "ameter=", "call>\n", '"}', " it", "look",
]  # fmt: skip
STOP_ID = 256
VOCAB_SIZE = STOP_ID + 1 + len(MERGES)
PROMPT = (10, 11)


def encode(text: str) -> list[int]:
    """The longest merge at each place, else one byte."""
    ids: list[int] = []
    while text:
        merge = max((m for m in MERGES if text.startswith(m)), key=len, default="")
        ids += [STOP_ID + 1 + MERGES.index(merge)] if merge else text[0].encode()
        text = text[len(merge) or 1 :]
    return ids


def decode_text(ids: Sequence[int]) -> str:
    pieces = [token_bytes(token_id) for token_id in ids]
    return b"".join(pieces).decode("utf-8", errors="replace")


def token_bytes(token_id: int) -> bytes:
    """What a token stands for; the stop token is shown."""
    if token_id > STOP_ID:
        return MERGES[token_id - STOP_ID - 1].encode()
    return bytes([token_id]) if token_id < STOP_ID else b"<end>"
