"""A target's tokenizer as GGUF files carry it, read from the files of its folder.

It tokenizes nothing. Only byte-level BPE is read: Llama 3, SmolLM2, Qwen.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import gguf

from blockdraft.errors import CheckpointError
from blockdraft.interop.gguf.file import Kind, Metadata, Value, flag, text, u32
from blockdraft.interop.gguf.pretokenizer import pretokenizer_name
from blockdraft.interop.gguf.special import SpecialTokens, read_special
from blockdraft.json_values import as_object
from blockdraft.target.folder import read_json

TOKENIZER_FILE = "tokenizer.json"
TEMPLATE_FILE = "chat_template.jinja"
_PREFIX = "tokenizer.ggml"
_NORMAL = int(gguf.TokenType.NORMAL)
_CONTROL = int(gguf.TokenType.CONTROL)
_USER_DEFINED = int(gguf.TokenType.USER_DEFINED)
_UNUSED = int(gguf.TokenType.UNUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTokenizer:
    """Every token of the model's vocabulary, rows without a token included.

    `pre` is llama.cpp's name of the pre-tokenizer; `types` are its token types, one a token.
    """

    tokens: tuple[str, ...]
    types: tuple[int, ...]
    merges: tuple[str, ...]
    pre: str
    special: SpecialTokens
    chat_template: str | None = None

    def metadata(self) -> Metadata:
        """The `tokenizer.*` keys, the same for a target and its drafter."""
        merges = self.merges or (_merge_of_nothing(self.tokens),)
        metadata: Metadata = {
            f"{_PREFIX}.model": text("gpt2"),
            f"{_PREFIX}.pre": text(self.pre),
            f"{_PREFIX}.tokens": Value(Kind.STRING, self.tokens),
            f"{_PREFIX}.token_type": Value(Kind.INT32, self.types),
            f"{_PREFIX}.merges": Value(Kind.STRING, merges),
        }
        for name, token_id in self.special.ids.items():
            metadata[f"{_PREFIX}.{name}_token_id"] = u32(token_id)
        metadata[f"{_PREFIX}.add_bos_token"] = flag(self.special.add_bos)
        metadata[f"{_PREFIX}.add_eos_token"] = flag(self.special.add_eos)
        if self.chat_template is not None:
            metadata["tokenizer.chat_template"] = text(self.chat_template)
        return metadata


def read_tokenizer(folder: str | Path) -> TargetTokenizer:
    """The tokenizer of the model in `folder`, padded to the rows of the model's embedding.

    Raises CheckpointError for one that llama.cpp would not reproduce, with the reason.
    """
    folder = Path(folder)
    where = str(folder / TOKENIZER_FILE)
    if not (folder / TOKENIZER_FILE).is_file():
        raise CheckpointError(
            f"{folder} has no {TOKENIZER_FILE}, which a GGUF file needs in full: save the"
            " tokenizer there (tokenizer.save_pretrained)"
        )
    raw = read_json(folder / TOKENIZER_FILE)
    config = read_json(folder / "config.json")
    settings = _read_optional(folder / "tokenizer_config.json")
    generation = _read_optional(folder / "generation_config.json")
    model = _byte_level_model(raw, where)
    ids = _ids(model, raw, where)
    tokens, types = _rows(ids, raw, _vocab_size(config, folder), where)
    return TargetTokenizer(
        tokens=tokens,
        types=types,
        merges=_merges(model, where),
        pre=pretokenizer_name(raw, where),
        special=read_special(raw, settings, _overlaid(config, generation), ids),
        chat_template=_chat_template(folder, settings),
    )


def _read_optional(path: Path) -> Mapping[str, object]:
    empty: dict[str, object] = {}
    return read_json(path) if path.is_file() else empty


def _overlaid(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    return {**below, **{key: value for key, value in above.items() if value is not None}}


def _byte_level_model(raw: Mapping[str, object], where: str) -> Mapping[str, object]:
    model = as_object(raw.get("model"))
    kind = model.get("type", "unknown")
    if kind != "BPE" or model.get("byte_fallback"):
        shown = f"{kind} with byte fallback" if model.get("byte_fallback") else kind
        raise CheckpointError(
            f"{where}: the tokenizer is {shown}; only byte-level BPE (Llama 3, SmolLM2, Qwen) is"
            " written as GGUF, since SentencePiece vocabularies need scores that this file does"
            " not have"
        )
    for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key):
            raise CheckpointError(
                f"{where}: the tokenizer's {key} is {model[key]!r}, which llama.cpp does not"
                " know; convert the target with llama.cpp's own converter"
            )
    return model


def _ids(model: Mapping[str, object], raw: Mapping[str, object], where: str) -> dict[str, int]:
    """Token to id, added tokens included."""
    vocab = model.get("vocab")
    if not isinstance(vocab, dict):
        raise CheckpointError(f"{where} has no vocabulary: fetch it again")
    ids = dict(cast("dict[str, int]", vocab))
    for added in added_tokens(raw):
        ids[str(added["content"])] = cast("int", added["id"])
    return ids


def added_tokens(raw: Mapping[str, object]) -> list[Mapping[str, object]]:
    found = raw.get("added_tokens")
    return cast("list[Mapping[str, object]]", found) if isinstance(found, list) else []


def _rows(
    ids: Mapping[str, int], raw: Mapping[str, object], vocab_size: int, where: str
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Token and type of every row of the embedding."""
    highest = max(ids.values(), default=-1)
    if highest >= vocab_size:
        raise CheckpointError(
            f"{where} has a token {highest}, but the model has {vocab_size} rows (vocab_size in"
            " config.json): tokenizer and model do not belong together"
        )
    # A name for rows without a token; llama.cpp's converter uses the same.
    tokens = [f"[PAD{row}]" for row in range(vocab_size)]
    types = [_UNUSED] * vocab_size
    for token, token_id in ids.items():
        tokens[token_id] = token
        types[token_id] = _NORMAL
    for added in added_tokens(raw):
        types[cast("int", added["id"])] = _CONTROL if added.get("special") else _USER_DEFINED
    if len(set(tokens)) < vocab_size:
        twice = next(token for token in tokens if tokens.count(token) > 1)
        raise CheckpointError(
            f"{where}: two rows would be named {twice!r}, at which llama.cpp gives up: give the"
            " token another name"
        )
    return tuple(tokens), tuple(types)


def _merges(model: Mapping[str, object], where: str) -> tuple[str, ...]:
    """Merges as "left right", whether the file has them as pairs or as such strings."""
    found = model.get("merges")
    listed = cast("list[str | list[str]]", found) if isinstance(found, list) else []
    merges = tuple(item if isinstance(item, str) else " ".join(item) for item in listed)
    for merge in merges:
        if merge.count(" ") != 1:
            raise CheckpointError(
                f"{where}: the merge {merge!r} is no pair of byte-level tokens; convert the target"
                " with llama.cpp's own converter"
            )
    return merges


def _merge_of_nothing(tokens: tuple[str, ...]) -> str:
    """A merge for a vocabulary without any, since llama.cpp refuses a file without merges.

    Its result is no token, so llama.cpp takes it apart again, byte by byte.
    """
    known = set(tokens)
    for token in tokens:
        if len(token) == 1 and token.isascii() and token * 2 not in known:
            return f"{token} {token}"
    raise CheckpointError("the tokenizer has no merges: llama.cpp can't load it")


def _vocab_size(config: Mapping[str, object], folder: Path) -> int:
    size = config.get("vocab_size")
    if isinstance(size, int) and size > 0:
        return size
    raise CheckpointError(f"{folder}/config.json has no vocab_size: fetch it again")


def _chat_template(folder: Path, settings: Mapping[str, object]) -> str | None:
    if (folder / TEMPLATE_FILE).is_file():
        return (folder / TEMPLATE_FILE).read_text(encoding="utf-8")
    found = settings.get("chat_template")
    if isinstance(found, list):
        named = cast("list[Mapping[str, object]]", found)
        found = next((item["template"] for item in named if item.get("name") == "default"), None)
    return found if isinstance(found, str) else None
