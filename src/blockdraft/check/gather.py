"""Reads a pair's files into `PairFacts`, however broken they are.

It judges nothing and reads no weights of a target; a drafter's are looked at once, tensor by
tensor, for values that are not finite or too large for float16.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from blockdraft.check.attempt import attempt
from blockdraft.check.facts import (
    DrafterFacts,
    DrafterFormat,
    DrafterRecord,
    MaskRow,
    PairFacts,
    TensorFacts,
)
from blockdraft.check.gather_target import gather_target
from blockdraft.check.gguf_facts import read_gguf
from blockdraft.check.locate import Located
from blockdraft.check.loose import Loose
from blockdraft.check.refusal import own_refusal
from blockdraft.check.shape import read_shape
from blockdraft.checkpoint.contents import StoredTensor
from blockdraft.checkpoint.mask_embedding import MASK_FILE, load_mask_file
from blockdraft.checkpoint.provenance import PROVENANCE_FILE, TAU_KEY
from blockdraft.checkpoint.tensors import list_tensors, read_json, read_tensors
from blockdraft.json_values import as_object
from blockdraft.target.tokenizer_facts import SHA_KEY, SPECIAL_KEY, read_tokenizer

_TARGET_SUFFIXES = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
_DFLASH_KEYS = ("dflash_config", "block_size", "mask_token_id", "target_layer_ids")


def gather_pair(
    target: Located, drafter: Located, template_args: Mapping[str, object] | None = None
) -> PairFacts:
    """The facts of a pair; raises nothing for what is missing or damaged in it."""
    drafter_facts = gather_drafter(drafter)
    target_facts = gather_target(target, drafter_facts.record)
    refusal = own_refusal(drafter, target_facts)
    return PairFacts(
        drafter=replace(drafter_facts, own_refusal=refusal),
        target=target_facts,
        template_args=template_args or {},
    )


def gather_drafter(located: Located) -> DrafterFacts:
    """What the drafter's folder (or GGUF file) says."""
    if located.folder.suffix == ".gguf":
        return _gather_gguf(located)
    folder, source = located.folder, located.source
    config, config_problem = attempt(lambda: read_json(folder / "config.json", source))
    raw = config or {}
    shape = read_shape(raw)
    stored, weights_problem = attempt(lambda: list_tensors(folder, source))
    tensors, read_problem = attempt(lambda: _look_at(folder, stored or {}, source))
    record, record_problem = attempt(lambda: _read_record(folder, source))
    mask_row, mask_row_problem = attempt(lambda: _read_mask_row(folder / MASK_FILE, source))
    return DrafterFacts(
        source=source,
        format=_format_of(raw, config_problem),
        raw=raw,
        shape=shape,
        tensors=tensors or {},
        config_problem=config_problem,
        weights_problem=weights_problem or read_problem,
        record=record or DrafterRecord(),
        record_problem=record_problem,
        has_record=(folder / PROVENANCE_FILE).exists(),
        mask_row=mask_row,
        mask_row_problem=mask_row_problem,
        draft_ids=_draft_ids(folder, stored or {}, source),
        key_norms=_key_norms(folder, stored or {}, shape.num_layers or 0, source),
    )


def _gather_gguf(located: Located) -> DrafterFacts:
    found, problem = attempt(lambda: read_gguf(located.folder, drafter=True))
    raw = {} if found is None else found.raw
    return DrafterFacts(
        source=located.source,
        format="gguf",
        raw=raw,
        shape=read_shape(raw),
        tensors={} if found is None else found.tensors,
        config_problem=problem,
        record=DrafterRecord(tau=None if found is None else found.tau),
    )


def _format_of(raw: Mapping[str, object], problem: str | None) -> DrafterFormat:
    if problem is not None:
        return "unreadable"
    if raw.get("speculators_model_type") is not None or raw.get("transformer_layer_config"):
        return "speculators"
    names = Loose(raw).texts("architectures")
    if any(raw.get(key) is not None for key in _DFLASH_KEYS):
        return "hf"
    return "target" if any(name.endswith(_TARGET_SUFFIXES) for name in names) else "hf"


def _look_at(
    folder: Path, stored: Mapping[str, StoredTensor], source: str
) -> dict[str, TensorFacts]:
    """One tensor at a time, so that a large drafter does not have to fit into memory."""
    looked: dict[str, TensorFacts] = {}
    for name, entry in stored.items():
        tensor = read_tensors(folder, {name: entry}, source)[name]
        looked[name] = _summary(entry.shape, tensor)
    return looked


def _summary(shape: tuple[int, ...], tensor: Tensor) -> TensorFacts:
    if not tensor.is_floating_point() or tensor.numel() == 0 or tensor.itemsize < 2:
        return TensorFacts(shape)
    low, high = tensor.aminmax()
    largest = float(torch.maximum(low.abs(), high.abs()))
    finite = largest < float("inf")
    return TensorFacts(shape, largest if finite else None, finite)


def _draft_ids(
    folder: Path, stored: Mapping[str, StoredTensor], source: str
) -> tuple[int, ...] | None:
    if "d2t" not in stored:
        return None
    tensors, _ = attempt(lambda: read_tensors(folder, {"d2t": stored["d2t"]}, source))
    if tensors is None or tensors["d2t"].ndim != 1 or tensors["d2t"].is_floating_point():
        return None
    offsets = tensors["d2t"].long()
    return tuple(cast("list[int]", (offsets + torch.arange(len(offsets))).tolist()))


def _key_norms(
    folder: Path, stored: Mapping[str, StoredTensor], num_layers: int, source: str
) -> tuple[tuple[float, ...], ...]:
    if num_layers > len(stored):  # also keeps a nonsensical number from being counted to
        return ()
    wanted = [f"layers.{layer}.self_attn.k_norm.weight" for layer in range(num_layers)]
    names = [name if name in stored else f"model.{name}" for name in wanted]
    if any(name not in stored for name in names):
        return ()
    tensors, _ = attempt(
        lambda: read_tensors(folder, {name: stored[name] for name in names}, source)
    )
    if tensors is None or any(tensors[name].ndim != 1 for name in names):
        return ()
    return tuple(tuple(cast("list[float]", tensors[name].tolist())) for name in names)


def _read_mask_row(path: Path, source: str) -> MaskRow | None:
    if not path.exists():
        return None
    entries = as_object(load_mask_file(path, source))
    token_id = entries.get("mask_token_id")
    return MaskRow(token_id if isinstance(token_id, int) else None, "per_position" in entries)


def _read_record(folder: Path, source: str) -> DrafterRecord | None:
    if not (folder / PROVENANCE_FILE).exists():
        return None
    raw = read_json(folder / PROVENANCE_FILE, source)
    drafter = Loose(as_object(raw.get("drafter")))
    training = as_object(raw.get("training"))
    settings = as_object(as_object(training.get("settings")).get("target"))
    quantize = Loose(settings, training)
    templates = raw.get("template")
    listed = cast("list[object]", templates) if isinstance(templates, list) else [templates]
    template = _shared([as_object(entry) for entry in listed if entry])
    tokenizer = _recorded_tokenizer(folder, as_object(raw.get("tokenizer")))
    special = as_object(tokenizer.get(SPECIAL_KEY))
    return DrafterRecord(
        tau=Loose(raw).number(TAU_KEY),
        taps=drafter.integers("taps"),
        block_size=drafter.integer("block_size"),
        target=Loose(training).text("target"),
        is_target_quantized=None if not training else quantize.raw("quantize") is not None,
        template_args=as_object(template["template_args"]) if "template_args" in template else None,
        template_sha256=Loose(template).text("template_sha256"),
        is_raw=bool(Loose(template).flag("raw")),
        tokenizer_sha256=Loose(tokenizer).text(SHA_KEY),
        special_tokens={k: v for k, v in special.items() if isinstance(v, int)} or None,
    )


def _shared(templates: Sequence[Mapping[str, object]]) -> Mapping[str, object]:
    """The template of all answers; nothing when a drafter was trained on several."""
    if not templates or any(template != templates[0] for template in templates):
        return as_object(None)
    return templates[0]


def _recorded_tokenizer(folder: Path, recorded: Mapping[str, object]) -> Mapping[str, object]:
    """What the provenance says, else what a tokenizer beside the drafter amounts to."""
    if recorded:
        return recorded
    beside = read_tokenizer(folder)
    return {} if beside is None else beside.record()
