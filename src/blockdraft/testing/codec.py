"""`ByteTextCodec`: text as its UTF-8 bytes, so that every accented letter is split over tokens.

It learns nothing and has no merges; streaming code that emits half a character shows at once.
"""

from collections.abc import Mapping, Sequence

from blockdraft.target.text import Message

NUM_BYTES = 256
BOS_ID, END_ID, USER_ID, ASSISTANT_ID, MASK_ID = range(NUM_BYTES, NUM_BYTES + 5)
SPECIAL_TEXT = {
    BOS_ID: "<bos>",
    END_ID: "<end>",
    USER_ID: "<user>",
    ASSISTANT_ID: "<assistant>",
    MASK_ID: "<mask>",
}


class ByteTextCodec:
    """The same calls as `TextCodec`: ids 0..255 are bytes, the five above are special tokens."""

    vocab_size = NUM_BYTES + len(SPECIAL_TEXT)
    has_chat_template = True

    def encode(self, text: str) -> list[int]:
        return [BOS_ID, *text.encode("utf-8")]

    def chat(
        self, messages: Sequence[Message], template_args: Mapping[str, object] | None = None
    ) -> list[int]:
        """<bos>, then for each message its role, text and <end>, then <assistant>."""
        ids = [BOS_ID]
        for message in messages:
            ids.append(ASSISTANT_ID if message["role"] == "assistant" else USER_ID)
            ids += [*message["content"].encode("utf-8"), END_ID]
        return [*ids, ASSISTANT_ID]

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of `ids`; a byte sequence that is no UTF-8 (yet) becomes U+FFFD."""
        raw = bytearray()
        for token_id in ids:
            if token_id < NUM_BYTES:
                raw.append(token_id)
            elif not skip_special_tokens:
                raw += SPECIAL_TEXT[token_id].encode()
        return raw.decode("utf-8", errors="replace")
