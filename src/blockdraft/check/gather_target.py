"""Reads a target's files into `TargetFacts`: configuration, headers, tokenizer, chat template.

No weights are read; a file that can't be read becomes a problem in the facts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from blockdraft.check.attempt import attempt
from blockdraft.check.facts import DrafterRecord, TargetFacts, TargetFormat
from blockdraft.check.gguf_facts import GGUF_KEYS, read_gguf
from blockdraft.check.locate import Located
from blockdraft.check.loose import Loose
from blockdraft.check.target_config import (
    SPECIAL_KEYS,
    TargetReading,
    ask_transformers,
    find_faults,
    read_sizes,
)
from blockdraft.data.rendering import Renderer, RenderingConfig
from blockdraft.json_values import as_object
from blockdraft.target.folder import check_model_folder, read_json
from blockdraft.target.hf_config import is_known_type
from blockdraft.target.hf_load import load_text
from blockdraft.target.text import TextCodec
from blockdraft.target.tokenizer_facts import read_tokenizer

_TEMPLATE_FILE = "chat_template.jinja"


def gather_target(located: Located, record: DrafterRecord) -> TargetFacts:
    """What the target's folder (or GGUF file) says; `record` names the template to compare."""
    if located.folder.suffix == ".gguf":
        found, problem = attempt(lambda: read_gguf(located.folder, drafter=False))
        raw = {} if found is None else found.raw
        faults = [f"{name} is missing" for name in GGUF_KEYS if found and raw.get(name) is None]
        raw = {name: value for name, value in raw.items() if value is not None}
        read = _read_config(located.source, raw, None)
        return replace(
            read,
            format="gguf",
            faults=(*faults, *read.faults),
            config_problem=problem,
            chat_template=None if found is None else found.chat_template,
        )
    folder = located.folder
    raw, problem = attempt(lambda: read_json(folder / "config.json"))
    facts = replace(
        _read_config(located.source, raw or {}, folder),
        config_problem=problem,
        format="unreadable" if problem is not None else _format_of(raw or {}),
    )
    if facts.format != "hf":
        return facts
    reading = ask_transformers(folder, raw or {})
    weights_problem = None
    if located.has_weights:
        _, weights_problem = attempt(lambda: check_model_folder(folder))
    tokenizer, tokenizer_problem = attempt(lambda: read_tokenizer(folder))
    codec, codec_problem = attempt(lambda: _load_text(folder, located.source, reading))
    if reading.refusal is not None:
        codec_problem = None  # it may well be that of the configuration, which has its own finding
    return replace(
        facts,
        unread=reading.refusal,
        weights_problem=weights_problem,
        tokenizer=tokenizer,
        tokenizer_problem=tokenizer_problem or codec_problem,
        chat_template=_written_template(folder) if codec is None else codec.chat_template,
        template_digest=_digest(codec, record),
        why_not_native=reading.why_not_native,
    )


def _load_text(folder: Path, source: str, reading: TargetReading) -> TextCodec | None:
    """None where the configuration, which the library may read too, is no good."""
    return None if reading.refusal is not None else load_text(folder, source)


def _written_template(folder: Path) -> str | None:
    """The template's own file, for targets whose tokenizer was not loaded."""
    try:
        return (folder / _TEMPLATE_FILE).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None


def _read_config(source: str, raw: Mapping[str, object], folder: Path | None) -> TargetFacts:
    text = as_object(raw.get("text_config"))
    keys = Loose(text, raw)
    generation, generation_problem = _read_generation(folder)
    faults = find_faults(raw, generation)
    if generation_problem is not None:
        faults = (*faults, generation_problem)
    quantization = raw.get("quantization_config") or raw.get("compression_config")
    method = as_object(quantization).get("quant_method")
    sizes = read_sizes(keys)
    hidden, heads = sizes.hidden_size, sizes.num_heads
    return TargetFacts(
        source=source,
        format="hf",
        architectures=Loose(raw).texts("architectures"),
        model_type=keys.text("model_type"),
        hidden_size=hidden,
        num_layers=sizes.num_layers,
        head_dim=sizes.head_dim or (hidden // heads if hidden and heads else None),
        vocab_size=sizes.vocab_size,
        position_limit=sizes.position_limit,
        dtype=keys.text("dtype") or keys.text("torch_dtype"),
        quantization=None if not quantization else str(method or "an unnamed method"),
        samples_by_default=bool(Loose(generation).flag("do_sample")),
        special_ids={name: _ids(generation.get(name) or keys.raw(name)) for name in SPECIAL_KEYS},
        faults=faults,
        has_own_code=bool(as_object(raw.get("auto_map"))),
        is_known_type=is_known_type(keys.text("model_type")),
    )


def _read_generation(folder: Path | None) -> tuple[Mapping[str, object], str | None]:
    if folder is None or not (folder / "generation_config.json").exists():
        return {}, None
    found, problem = attempt(lambda: read_json(folder / "generation_config.json"))
    return found or {}, problem


def _ids(value: object) -> tuple[int, ...]:
    listed = cast("Sequence[object]", value) if isinstance(value, list) else [value]
    return tuple(item for item in listed if isinstance(item, int))


def _format_of(raw: Mapping[str, object]) -> TargetFormat:
    names = Loose(raw).texts("architectures")
    is_drafter = "dflash_config" in raw or "speculators_model_type" in raw
    return "drafter" if is_drafter or any(n.startswith("DFlash") for n in names) else "hf"


def _digest(codec: TextCodec | None, record: DrafterRecord) -> str | None:
    """What the target's template makes of the probes, with the arguments of the training."""
    if codec is None or record.template_sha256 is None or not codec.has_chat_template:
        return None
    config = RenderingConfig(template_args=dict(record.template_args or {}))
    digest, _ = attempt(lambda: Renderer(codec, config, ()).template_digest())
    return digest
