"""A tokenizer as `tokenizer.json` describes it: ids, special tokens, and a hash to compare by.

It encodes no text and loads no library for it.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from blockdraft.errors import CheckpointError
from blockdraft.json_values import as_list, as_object, read_object

TOKENIZER_FILE = "tokenizer.json"
SHA_KEY = "vocabulary_sha256"
SPECIAL_KEY = "special_tokens"


@dataclass(frozen=True, slots=True)
class TokenizerFacts:
    """`vocabulary_sha256` is over ordinary tokens and their ids; special ones are listed apart."""

    vocabulary_sha256: str
    tokens: Mapping[int, str]
    special: Mapping[str, int]

    def record(self) -> dict[str, object]:
        """What a drafter's provenance may keep (under `tokenizer`) to be compared later."""
        return {SHA_KEY: self.vocabulary_sha256, SPECIAL_KEY: dict(self.special)}


def read_tokenizer(folder: Path) -> TokenizerFacts | None:
    """The tokenizer in `folder`, None without a tokenizer.json; CheckpointError if damaged."""
    path = folder / TOKENIZER_FILE
    if not path.exists():
        return None
    try:
        raw = read_object(path)
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} is no readable JSON object ({error}): fetch it again"
        ) from error
    vocab = _vocabulary(as_object(raw.get("model")).get("vocab"))
    if not vocab:
        raise CheckpointError(f"{path} has no vocabulary: fetch it again")
    special: dict[str, int] = {}
    for entry in as_list(raw.get("added_tokens")):
        token = as_object(entry)
        token_id, content = token.get("id"), token.get("content")
        if isinstance(token_id, int) and isinstance(content, str):
            if token.get("special"):
                special[content] = token_id
            else:
                vocab[content] = token_id
    ordinary = {token: token_id for token, token_id in vocab.items() if token not in special}
    tokens = {token_id: token for token, token_id in (ordinary | special).items()}
    return TokenizerFacts(_hash(ordinary), tokens, dict(sorted(special.items())))


def _vocabulary(value: object) -> dict[str, int]:
    """Token to id; models of the kind Unigram list [token, score] in the order of ids."""
    if isinstance(value, list):
        entries = cast("list[object]", value)
        pieces = [cast("list[object]", e)[0] for e in entries if isinstance(e, list) and e]
        return {str(piece): token_id for token_id, piece in enumerate(pieces)}
    return {
        token: token_id for token, token_id in as_object(value).items() if isinstance(token_id, int)
    }


def _hash(vocab: Mapping[str, int]) -> str:
    rows = sorted((token_id, token) for token, token_id in vocab.items())
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()
