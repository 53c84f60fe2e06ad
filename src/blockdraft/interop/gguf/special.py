"""Special tokens of a tokenizer: which ids, and which are put around a text without being asked.

It reads objects of JSON files, not the files.
"""

from collections.abc import Mapping
from typing import NamedTuple, cast


class SpecialTokens(NamedTuple):
    """`ids` by llama.cpp's names: bos, eos, unknown, padding, and eot, eom for further stops."""

    ids: Mapping[str, int]
    add_bos: bool
    add_eos: bool


_SETTINGS = {"bos": "bos_token", "unknown": "unk_token", "padding": "pad_token"}
_FURTHER_STOPS = ("eot", "eom")


def read_special(
    raw: Mapping[str, object],
    settings: Mapping[str, object],
    config: Mapping[str, object],
    ids: Mapping[str, int],
) -> SpecialTokens:
    """From tokenizer.json, tokenizer_config.json, config.json (overlaid with
    generation_config.json), and the id of every token.

    The tokenizer's own eos token is `eos`; what else stops this model comes after it.
    """
    found: dict[str, int] = {}
    for name, key in _SETTINGS.items():
        token_id = _token_id(settings.get(key), ids)
        if token_id is None:
            token_id = _first(config.get(f"{key}_id"))
        if token_id is not None:
            found[name] = token_id
    stops = _list(config.get("eos_token_id"))
    own = _token_id(settings.get("eos_token"), ids)
    if own is not None and (own in stops or not stops):
        stops = [own, *(stop for stop in stops if stop != own)]
    if stops:
        found["eos"] = stops[0]
    found |= dict(zip(_FURTHER_STOPS, stops[1:], strict=False))
    before, after = _template_ends(raw.get("post_processor"))
    return SpecialTokens(
        ids={name: found[name] for name in sorted(found)},
        add_bos=_added(before, found.get("bos"), ids, settings.get("add_bos_token")),
        add_eos=_added(after, found.get("eos"), ids, settings.get("add_eos_token")),
    )


def _added(end: str | None, token_id: int | None, ids: Mapping[str, int], asked: object) -> bool:
    """Whether a text gets the token: the post-processor does it, or there is none and it is asked
    for.
    """
    if token_id is None:
        return False
    return asked is True if end is None else ids.get(end) == token_id


def _template_ends(processor: object) -> tuple[str | None, str | None]:
    """The special tokens before and after a text ("" for none); None without a template."""
    if not isinstance(processor, dict):
        return None, None
    known = cast("dict[str, object]", processor)
    if known.get("type") == "Sequence":
        for inner in cast("list[object]", known.get("processors", [])):
            ends = _template_ends(inner)
            if ends != (None, None):
                return ends
    if known.get("type") != "TemplateProcessing":
        return None, None
    single = cast("list[dict[str, dict[str, str]]]", known.get("single", []))
    ends = [
        item["SpecialToken"]["id"] if "SpecialToken" in item else ""
        for item in (single[:1] + single[-1:])
    ]
    return (ends[0], ends[1]) if ends else ("", "")


def _token_id(token: object, ids: Mapping[str, int]) -> int | None:
    """Settings name a token by its text, by itself or in an object."""
    if isinstance(token, dict):
        token = cast("dict[str, object]", token).get("content")
    return ids.get(token) if isinstance(token, str) else None


def _list(value: object) -> list[int]:
    if isinstance(value, list):
        return [item for item in cast("list[object]", value) if isinstance(item, int)]
    return [value] if isinstance(value, int) else []


def _first(value: object) -> int | None:
    listed = _list(value)
    return listed[0] if listed else None
