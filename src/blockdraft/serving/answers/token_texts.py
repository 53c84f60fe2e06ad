"""`TokenTexts`: the text and the bytes of single tokens, for log-probabilities and /tokenize.

A token may be half a character; its bytes are exact where the tokenizer says them.
"""

from functools import cache
from typing import Protocol, cast, runtime_checkable

from blockdraft.target.text import TextCodec

_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"


@runtime_checkable
class HasTokenStrings(Protocol):
    """A tokenizer that tells how its vocabulary writes a token."""

    def convert_ids_to_tokens(self, ids: int) -> object: ...


class TokenTexts:
    """Looks at the tokenizer once for each token id."""

    def __init__(self, codec: TextCodec | None) -> None:
        self._codec = codec
        self._known: dict[int, tuple[str, bytes]] = {}
        self._special: dict[int, bool] = {}
        self._anchor = [] if codec is None else codec.encode("a", add_special_tokens=False)[-1:]

    def text(self, token_id: int) -> str:
        """The token's text; `bytes:\\xe2\\x82` for one that is only a part of a character."""
        return self._look(token_id)[0]

    def data(self, token_id: int) -> bytes:
        """The token's bytes."""
        return self._look(token_id)[1]

    def shown(self, token_id: int) -> bytes:
        """The token's bytes in a text without special tokens: none for a special one."""
        return b"" if self.is_special(token_id) else self.data(token_id)

    def is_special(self, token_id: int) -> bool:
        """Whether a text without special tokens leaves it out."""
        found = self._special.get(token_id)
        if found is None:
            found = self._special[token_id] = self._is_left_out(token_id)
        return found

    def _is_left_out(self, token_id: int) -> bool:
        codec = self._codec
        if codec is None:
            return True
        # After another token: by itself the lone blank of a SentencePiece vocabulary leaves nothing
        # either.
        return codec.decode([*self._anchor, token_id]) == codec.decode(self._anchor)

    def _look(self, token_id: int) -> tuple[str, bytes]:
        found = self._known.get(token_id)
        if found is None:
            found = self._known[token_id] = self._read(token_id)
        return found

    def _read(self, token_id: int) -> tuple[str, bytes]:
        if self._codec is None:
            return f"token_id:{token_id}", b""
        # After another token, since many decoders drop a space at the very start of a text.
        before = self._codec.decode(self._anchor, skip_special_tokens=False)
        both = self._codec.decode([*self._anchor, token_id], skip_special_tokens=False)
        text = both[len(before) :]
        if _INCOMPLETE not in text:
            return text, text.encode("utf-8")
        data = self._raw(token_id)
        if data is None:
            return text, text.encode("utf-8")
        try:
            return data.decode("utf-8"), data
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data), data

    def _raw(self, token_id: int) -> bytes | None:
        """The bytes as a byte-level or byte-fallback vocabulary writes them."""
        tokenizer = None if self._codec is None else cast(object, self._codec.tokenizer)
        if not isinstance(tokenizer, HasTokenStrings):
            return None
        written = tokenizer.convert_ids_to_tokens(token_id)
        if not isinstance(written, str):
            return None
        if len(written) == 6 and written.startswith("<0x") and written.endswith(">"):
            return bytes([int(written[3:5], 16)])
        letters = _byte_of_letter()
        if all(letter in letters for letter in written):
            return bytes(letters[letter] for letter in written)
        return None


@cache
def _byte_of_letter() -> dict[str, int]:
    """The alphabet of byte-level BPE: printable Latin-1 stands for itself, the rest from U+0100."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(0x100 + place): byte for place, byte in enumerate(others)})
    return alphabet
