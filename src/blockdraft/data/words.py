"""Texts to words, and words to shingles: what two prompts are compared by.

It compares nothing itself (`duplicates.py`).
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence

SHINGLE_WORDS = 8
# Chinese and Japanese put no spaces between words: each character counts as a word.
_SPACELESS = re.compile("([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")
_QUOTES = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"'})
_MARKS = ".,;:!?\"'"


def words_of(text: str) -> list[str]:
    """The words of `text`, without case, kinds of spaces and quotes, and marks around words.

    Signs between spaces are words, since prompts may differ in nothing else ("3 + 5", "3 - 5").
    """
    plain = unicodedata.normalize("NFKC", text).translate(_QUOTES).casefold()
    words = _SPACELESS.sub(r" \1 ", plain).split()
    stripped = (word.strip(_MARKS) for word in words)
    return [word for word in stripped if word] or words


def shingles_of(words: Sequence[str]) -> set[int]:
    """Hashes of all runs of 8 words; the whole text is one shingle when it has fewer.

    The hashes are the same in every process (signed, 64 bits).
    """
    last_start = max(len(words) - SHINGLE_WORDS, 0)
    runs = (words[start : start + SHINGLE_WORDS] for start in range(last_start + 1))
    return {_hash64(" ".join(run)) for run in runs}


def fingerprint(turns: Iterable[Sequence[str]]) -> bytes:
    """16 bytes that are the same for conversations of the same words."""
    text = "\n".join(" ".join(words) for words in turns)
    return hashlib.blake2b(text.encode("utf-8"), digest_size=16).digest()


def _hash64(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
