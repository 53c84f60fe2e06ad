"""Which of llama.cpp's pre-tokenizers splits text as a tokenizer.json does.

llama.cpp has them by name, compiled in; one that can't be told for sure is refused.
"""

from collections.abc import Mapping
from typing import cast

from blockdraft.errors import CheckpointError

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

KNOWN = ("gpt-2", "smollm", "llama-bpe", "dbrx", "qwen2", "qwen35")
"""The names that can be told from a tokenizer.json; see `pretokenizer_name`."""


def pretokenizer_name(tokenizer: Mapping[str, object], where: str) -> str:
    """llama.cpp's name for how `tokenizer` (a tokenizer.json) splits text before merging.

    Raises CheckpointError for a normalizer or pre-tokenizer that llama.cpp may not have.
    """
    _check_normalizer(tokenizer.get("normalizer"), where)
    steps = _steps(tokenizer.get("pre_tokenizer"))
    whole_words = _flag(tokenizer, "ignore_merges")
    name = _name(steps, whole_words)
    if name is None:
        kinds = ", ".join(str(step.get("type")) for step in steps) or "none"
        raise CheckpointError(
            f"{where}: the pre-tokenizer ({kinds}) is not one that is known to exist in llama.cpp"
            f" ({', '.join(KNOWN)}), where text would be split otherwise; convert the target with"
            " llama.cpp's own converter"
        )
    return name


def _name(steps: list[Mapping[str, object]], whole_words: bool) -> str | None:
    if not steps or not _is_byte_level(steps[-1]):
        return None
    split_by_bytes = steps[-1].get("use_regex", True)
    before = steps[:-1]
    if split_by_bytes:
        if not before:
            return None if whole_words else "gpt-2"
        digits = {"type": "Digits", "individual_digits": True}
        return "smollm" if before == [digits] and not whole_words else None
    if len(before) != 1:
        return None
    pattern = _pattern(before[0])
    if pattern == _LLAMA3:
        return "llama-bpe" if whole_words else "dbrx"
    if whole_words:
        return None
    return {_QWEN2: "qwen2", _QWEN35: "qwen35"}.get(pattern or "")


def _steps(pre_tokenizer: object) -> list[Mapping[str, object]]:
    """The pre-tokenizers one after the other; nested sequences are not flattened."""
    if not isinstance(pre_tokenizer, dict):
        return []
    outer = cast("dict[str, object]", pre_tokenizer)
    inner = outer.get("pretokenizers")
    if outer.get("type") == "Sequence" and isinstance(inner, list):
        return cast("list[Mapping[str, object]]", inner)
    return [outer]


def _is_byte_level(step: Mapping[str, object]) -> bool:
    return step.get("type") == "ByteLevel" and step.get("add_prefix_space") is False


def _pattern(step: Mapping[str, object]) -> str | None:
    """The expression whose matches are pieces; None for a split of another kind."""
    pattern = step.get("pattern")
    isolated = step.get("behavior") == "Isolated" and step.get("invert") is False
    if step.get("type") != "Split" or not isolated or not isinstance(pattern, dict):
        return None
    expression = cast("dict[str, object]", pattern).get("Regex")
    return expression if isinstance(expression, str) else None


def _check_normalizer(normalizer: object, where: str) -> None:
    if normalizer is None:
        return
    kind = "unknown"
    if isinstance(normalizer, dict):
        kind = str(cast("dict[str, object]", normalizer).get("type"))
    # Composed characters are what nearly all text has; llama.cpp's own converter ignores it too.
    if kind != "NFC":
        raise CheckpointError(
            f"{where}: the normalizer {kind} has no counterpart in llama.cpp's byte-level"
            " tokenizers, where text would become other tokens; convert the target with"
            " llama.cpp's own converter"
        )


def _flag(tokenizer: Mapping[str, object], name: str) -> bool:
    model = tokenizer.get("model")
    return isinstance(model, dict) and bool(cast("dict[str, object]", model).get(name))
