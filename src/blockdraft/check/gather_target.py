"""Reads a target's files into `TargetFacts`: configuration, headers, tokenizer, chat template.

No weights are read; a file that can't be read becomes a problem in the facts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from blockdraft.check.attempt import attempt
from blockdraft.check.facts import DrafterRecord, TargetFacts, TargetFormat
from blockdraft.check.gguf_facts import read_gguf
from blockdraft.check.locate import Located
from blockdraft.check.loose import Loose, as_object
from blockdraft.target.tokenizer_facts import read_tokenizer
from blockdraft.data.rendering import Renderer, RenderingConfig
from blockdraft.native import why_not_native
from blockdraft.target.folder import check_model_folder, read_json
from blockdraft.target.hf_config import read_model_config
from blockdraft.target.hf_load import load_text
from blockdraft.target.text import TextCodec

_SPECIAL_KEYS = ("bos_token_id", "eos_token_id", "pad_token_id")


def gather_target(located: Located, record: DrafterRecord) -> TargetFacts:
    """What the target's folder (or GGUF file) says; `record` names the template to compare."""
    if located.folder.suffix == ".gguf":
        found, problem = attempt(lambda: read_gguf(located.folder, drafter=False))
        raw = {} if found is None else found.raw
        return replace(
            _read_config(located.source, raw, None),
            format="gguf",
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
    weights_problem = None
    if located.has_weights:
        _, weights_problem = attempt(lambda: check_model_folder(folder))
    tokenizer, tokenizer_problem = attempt(lambda: read_tokenizer(folder))
    codec, codec_problem = attempt(lambda: load_text(folder, located.source))
    return replace(
        facts,
        weights_problem=weights_problem,
        tokenizer=tokenizer,
        tokenizer_problem=tokenizer_problem or codec_problem,
        chat_template=None if codec is None else codec.chat_template,
        template_digest=_digest(codec, record),
        why_not_native=_why_not_native(folder),
    )


def _read_config(source: str, raw: Mapping[str, object], folder: Path | None) -> TargetFacts:
    text = as_object(raw.get("text_config"))
    keys = Loose(text, raw)
    generation: Mapping[str, object] = {}
    if folder is not None and (folder / "generation_config.json").exists():
        found, _ = attempt(lambda: read_json(folder / "generation_config.json"))
        generation = found or {}
    quantization = raw.get("quantization_config") or raw.get("compression_config")
    method = as_object(quantization).get("quant_method")
    hidden, heads = keys.integer("hidden_size"), keys.integer("num_attention_heads")
    return TargetFacts(
        source=source,
        format="hf",
        architectures=Loose(raw).texts("architectures"),
        model_type=keys.text("model_type"),
        hidden_size=hidden,
        num_layers=keys.integer("num_hidden_layers"),
        head_dim=keys.integer("head_dim") or (hidden // heads if hidden and heads else None),
        vocab_size=keys.integer("vocab_size"),
        position_limit=keys.integer("max_position_embeddings"),
        dtype=keys.text("dtype") or keys.text("torch_dtype"),
        quantization=None if not quantization else str(method or "an unnamed method"),
        samples_by_default=bool(Loose(generation).flag("do_sample")),
        special_ids={name: _ids(generation.get(name) or keys.raw(name)) for name in _SPECIAL_KEYS},
    )


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


def _why_not_native(folder: Path) -> str | None:
    config, problem = attempt(lambda: read_model_config(folder, revision=None, from_hub=False))
    return problem if config is None else why_not_native(config)
