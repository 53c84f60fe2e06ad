"""Pairs broken in one place, each with all findings that this adds to those of the good pair.

User reports: L01 and L03 (tapped layers), L04 (unused tensors), L05 (own head), L09 (block and
drafts), L10 (float16), L13 (positions), L16 (drafter as target), L17 (vocabularies), L22 (quantized
targets), T13 (thinking mode).
"""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, cast

import pytest
import torch
from safetensors.torch import (
    load_file,  # pyright: ignore[reportUnknownVariableType]: bare PathLike
    save_file,  # pyright: ignore[reportUnknownVariableType]: bare PathLike
)
from torch import Tensor

from blockdraft.check import ENGINE_NAMES, RULES, Finding, Located, gather_pair, judge_pair
from blockdraft.check.rules import live
from blockdraft.checkpoint import load_checkpoint, save_checkpoint
from blockdraft.checkpoint.contents import expected_shapes
from blockdraft.drafter import DFlash2Config

GOOD = {"DFL115", "DFL214", "DFL311", "DFL409", "DFL510"}
"""What engines want to be asked for: notes that every pair gets."""

Change = Callable[[Path], object]
"""Breaks a pair, given the folder that holds `target` and `drafter`."""

Raw = dict[str, object]

SLIDING = ["sliding_attention", "sliding_attention"]
SECOND_KEY_NORM = "layers.1.self_attn.k_norm.weight"
MIXED = ["sliding_attention", "full_attention"]
WINDOW: Mapping[str, object] = {"sliding_window": 8, "use_sliding_window": True}
IMAGE_ROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 6, 6]}
THINKING = {"enable_thinking": True}
FOUR_DRAFTS = {"proposal_methods": [{"speculative_tokens": 4}]}


def edit(root: Path, file: str, how: Callable[[Raw], None]) -> None:
    raw = cast(Raw, json.loads((root / file).read_text()))
    how(raw)
    (root / file).write_text(json.dumps(raw))


def update(raw: Raw, values: Mapping[str, object]) -> None:
    """Set keys; None removes one."""
    for name, value in values.items():
        raw[name] = value
        if value is None:
            del raw[name]


def change(file: str, **values: object) -> Change:
    return lambda root: edit(root, file, lambda raw: update(raw, values))


def top(**values: object) -> Change:
    return change("drafter/config.json", **values)


def goal(**values: object) -> Change:
    return change("target/config.json", **values)


def record(**values: object) -> Change:
    return change("drafter/provenance.json", **values)


def nest(**values: object) -> Change:
    """Keys of `dflash_config`."""

    def how(raw: Raw) -> None:
        update(cast(Raw, raw["dflash_config"]), values)

    return lambda root: edit(root, "drafter/config.json", how)


def second_version(root: Path) -> None:
    """A whole DFlash 2 drafter in place of the plain one, which every reader of it may load."""
    old = load_checkpoint(root / "drafter")
    config = replace(
        old.config,
        dflash2=DFlash2Config(
            conv_kernel_size=2, conv_group_size=16, selector_rank=4, selector_top_k=4
        ),
    )
    shapes = expected_shapes(config)
    state = {name: old.state.get(name, torch.zeros(shape)) for name, shape in shapes.items()}
    save_checkpoint(root / "second", replace(old, config=config, state=state, recorded_tau=None))
    for name in ("config.json", "model.safetensors"):
        (root / "second" / name).replace(root / "drafter" / name)


def template(**values: object) -> Change:
    """What provenance.json says of the chat template."""

    def how(raw: Raw) -> None:
        update(cast(list[Raw], raw["template"])[0], values)

    return lambda root: edit(root, "drafter/provenance.json", how)


def tensors(root: Path, how: Callable[[dict[str, Tensor]], object]) -> None:
    file = root / "drafter/model.safetensors"
    stored = load_file(file)
    how(stored)
    save_file(stored, file)


def tensor(name: str, *shape: int) -> Change:
    return lambda root: tensors(root, lambda stored: stored.update({name: torch.ones(shape)}))


def scale(name: str, factor: float) -> Change:
    return lambda root: tensors(root, lambda stored: stored.update({name: factor * stored[name]}))


def nudge(name: str) -> Change:
    """The next larger number in one place."""

    def how(stored: dict[str, Tensor]) -> None:
        stored[name][-1] = stored[name][-1].nextafter(torch.tensor(9.0))

    return lambda root: tensors(root, how)


def drop(name: str) -> Change:
    return lambda root: tensors(root, lambda stored: stored.pop(name))


def with_prefix(root: Path) -> None:
    """All tensors under `model.`, as some converters name them."""

    def how(stored: dict[str, Tensor]) -> None:
        for name in list(stored):
            stored[f"model.{name}"] = stored.pop(name)

    tensors(root, how)


def reduced(first: int) -> Change:
    """A draft vocabulary of 100 ids whose d2t holds `first`, `first` + 1, .. (0: only zeros)."""
    offsets = first + torch.arange(100) * (first > 0)

    def how(root: Path) -> None:
        nest(draft_vocab_size=100)(root)
        tensors(root, lambda stored: stored.update(d2t=offsets))

    return how


def remove(*files: str) -> Change:
    return lambda root: [(root / file).unlink() for file in files]


def write(file: str, text: str) -> Change:
    return lambda root: (root / file).write_text(text)


def truncate(file: str) -> Change:
    return lambda root: (root / file).write_bytes((root / file).read_bytes()[:-100])


def copy(source: str, place: str) -> Change:
    """`source` in the place of the other one."""

    def how(root: Path) -> None:
        shutil.rmtree(root / place)
        shutil.copytree(root / source, root / place)

    return how


def mask_row(**entries: object) -> Change:
    row = {"embedding": torch.zeros(128), **entries}
    return lambda root: torch.save(row, root / "drafter/mask_embedding.pt")


def both(*changes: Change) -> Change:
    return lambda root: [each(root) for each in changes]


def rename_special(root: Path) -> None:
    text = (root / "target/tokenizer.json").read_text()
    (root / "target/tokenizer.json").write_text(text.replace("<|endoftext|>", "<|other|>"))


def swap_letters(root: Path) -> None:
    """Another tokenizer of the same size."""

    def how(raw: Raw) -> None:
        vocab = cast(Raw, cast(Raw, raw["model"])["vocab"])
        vocab["a"], vocab["b"] = vocab["b"], vocab["a"]

    edit(root, "target/tokenizer.json", how)


def speculators(**values: object) -> Change:
    """The same drafter in the speculators layout."""

    def how(raw: Raw) -> None:
        layers = {name: value for name, value in raw.items() if name != "dflash_config"}
        raw.clear()
        raw |= {
            "architectures": ["DFlashDraftModel"],
            "speculators_model_type": "dflash",
            "block_size": 4,
            "draft_vocab_size": 260,
            "mask_token_id": 259,
            "aux_hidden_state_layer_ids": [1, 2, 3],
            "sliding_window_non_causal": True,
            "speculators_config": {"proposal_methods": [{"speculative_tokens": 3}]},
            "transformer_layer_config": layers,
        }
        update(raw, values)

    return lambda root: edit(root, "drafter/config.json", how)


class Case(NamedTuple):
    """`codes` are all that the good pair does not give; `template_args` are those of use."""

    name: str
    codes: str
    change: Change
    template_args: Mapping[str, object] | None = None


CASES = [
    Case("no drafter config", "DFL001 DFL600", remove("drafter/config.json")),
    Case("drafter config no JSON", "DFL001 DFL600", write("drafter/config.json", "{")),
    Case("no drafter weights", "DFL002 DFL600", remove("drafter/model.safetensors")),
    Case("truncated drafter", "DFL002 DFL600", truncate("drafter/model.safetensors")),
    Case("no target config", "DFL003", remove("target/config.json")),
    Case("truncated target", "DFL004", truncate("target/model.safetensors")),
    Case("tokenizer no JSON", "DFL005", write("target/tokenizer.json", "{")),
    Case("no tokenizer", "DFL006 DFL408",
         remove("target/tokenizer.json", "target/tokenizer_config.json")),
    Case("provenance no JSON", "DFL007 DFL065 DFL600", write("drafter/provenance.json", "[")),
    Case("no provenance", "DFL065 DFL069", remove("drafter/provenance.json")),
    Case("mask row no tensor", "DFL008 DFL600", write("drafter/mask_embedding.pt", "x")),
    Case("target as drafter (L16)", "DFL009 DFL065 DFL600", copy("target", "drafter")),
    Case("drafter as target (L16)",
         "DFL010 DFL025 DFL051 DFL114 DFL202 DFL310 DFL401 DFL509 DFL600",
         copy("drafter", "target")),
    Case("layer missing", "DFL011 DFL600", top(num_hidden_layers=3, layer_types=None)),
    Case("unused tensor (L04)", "DFL012 DFL600", tensor("rotary.inv_freq", 4)),
    Case("not finite", "DFL013 DFL600", scale("fc.weight", float("nan"))),
    Case("no head_dim", "DFL020 DFL600", top(head_dim=None)),
    Case("hidden size as text", "DFL021 DFL600", top(hidden_size="128")),
    Case("taps missing (L01)", "DFL022 DFL600", nest(target_layer_ids=None)),
    Case("taps repeated", "DFL023 DFL026 DFL600", nest(target_layer_ids=[0, 1, 1])),
    Case("taps unsorted", "DFL024 DFL026 DFL301", nest(target_layer_ids=[2, 0, 1])),
    Case("taps one higher (L01)", "DFL026 DFL114 DFL202 DFL310 DFL401 DFL509 DFL600",
         nest(target_layer_ids=[1, 2, 3])),
    Case("taps two higher", "DFL025 DFL026 DFL114 DFL202 DFL310 DFL401 DFL509 DFL600",
         nest(target_layer_ids=[2, 3, 4])),
    Case("last layer tapped (L03)", "DFL026 DFL114 DFL202 DFL310 DFL401 DFL509 DFL600",
         nest(target_layer_ids=[0, 1, 3])),
    Case("auxiliary ids", "DFL027 DFL600", top(eagle_aux_hidden_state_layer_ids=[0, 1, 2])),
    Case("fusion width", "DFL026 DFL028 DFL600", nest(target_layer_ids=[0, 1])),
    Case("head_dim", "DFL029 DFL070 DFL107 DFL600", top(head_dim=16)),
    Case("heads not grouped", "DFL029 DFL030 DFL600", top(num_key_value_heads=3)),
    Case("block missing", "DFL031 DFL600", both(top(block_size=None), nest(block_size=None))),
    Case("two blocks", "DFL032", top(block_size=16)),
    Case("k for k+1 (L09)", "DFL033", both(top(block_size=3), nest(block_size=3))),
    Case("block nested only", "DFL302", top(block_size=None)),
    Case("mask missing", "DFL035 DFL600", nest(mask_token_id=None)),
    Case("mask outside", "DFL036 DFL209 DFL600", nest(mask_token_id=300)),
    Case("mask at the top", "DFL303", both(nest(mask_token_id=None), top(mask_token_id=259))),
    Case("mask is a letter", "DFL056 DFL209", nest(mask_token_id=65)),
    Case("mask is a stop token", "DFL057 DFL209", nest(mask_token_id=257)),
    Case("mask text", "DFL209", nest(mask_token_id=258)),
    Case("mask row of another id", "DFL037 DFL600", mask_row(mask_token_id=7)),
    Case("mask rows by position", "DFL210 DFL600", mask_row(per_position=torch.ones(3))),
    Case("reduced without d2t", "DFL038 DFL112 DFL206 DFL306 DFL503 DFL600",
         nest(draft_vocab_size=100)),
    Case("d2t absolute", "DFL039 DFL112 DFL206 DFL306 DFL503 DFL600", reduced(160)),
    Case("reduced", "DFL112 DFL206 DFL306 DFL503", reduced(0)),
    Case("reduced with head (L05)", "DFL205 DFL305 DFL502",
         both(reduced(0), tensor("lm_head.weight", 100, 128))),
    Case("own head (L05)", "DFL204 DFL305 DFL502", tensor("lm_head.weight", 260, 128)),
    Case("sliding without window", "DFL040 DFL404 DFL506 DFL600",
         top(layer_types=SLIDING, use_sliding_window=True)),
    Case("layer types", "DFL041 DFL404 DFL506 DFL600", top(layer_types=SLIDING[:1], **WINDOW)),
    Case("partial rotary", "DFL042 DFL600", top(partial_rotary_factor=0.5)),
    Case("image axes", "DFL043 DFL600", top(rope_parameters=IMAGE_ROPE)),
    Case("sliding", "DFL404 DFL506", top(layer_types=SLIDING, **WINDOW)),
    Case("mixed layers", "DFL106 DFL404 DFL506", top(layer_types=MIXED, **WINDOW)),
    Case("sliding not causal", "DFL309", top(layer_types=SLIDING, is_causal=False, **WINDOW)),
    Case("no window flag", "DFL309 DFL405",
         top(layer_types=SLIDING, is_causal=False, sliding_window=8, use_sliding_window=None)),
    Case("causal in dflash_config", "DFL211 DFL309 DFL506", nest(causal=True)),
    Case("causal", "DFL309 DFL506", top(is_causal=True)),
    Case("use_swa", "DFL105 DFL212 DFL507", nest(use_swa=True, swa_window_size=8)),
    Case("hidden sizes", "DFL050 DFL600", goal(hidden_size=256)),
    Case("another depth", "DFL051 DFL600", goal(num_hidden_layers=6, layer_types=None)),
    Case("another vocabulary (L17)", "DFL052 DFL600", goal(vocab_size=300)),
    Case("padding (L17)", "DFL053", goal(vocab_size=262)),
    Case("another tokenizer (L17)", "DFL054 DFL062", swap_letters),
    Case("special token (L17)", "DFL055", rename_special),
    Case("float16 overflow (L10)", "DFL058", scale("fc.weight", 1e6)),
    Case("float16 target (L10)", "DFL059", both(goal(dtype="float16"), scale("fc.weight", 1e6))),
    Case("cast to float16 (L10)", "DFL060", goal(dtype="float16")),
    Case("positions (L13)", "DFL061", goal(max_position_embeddings=4096)),
    Case("another template", "DFL062", template(template_sha256="0" * 64)),
    Case("no template", "DFL063", remove("target/chat_template.jinja")),
    Case("thinking in training (T13)", "DFL064",
         template(template_args=THINKING, template_sha256=None)),
    Case("thinking in use (T13)", "DFL064", both(), template_args=THINKING),
    Case("mode not recorded (T13)", "DFL065", record(template=None)),
    Case("quantized (L22)", "DFL066", goal(quantization_config={"quant_method": "fp8"})),
    Case("other head sizes", "DFL070", goal(head_dim=64)),
    Case("k_norm by layer", "DFL116", scale(SECOND_KEY_NORM, 1.25)),
    Case("k_norm by layer, last bit", "DFL116", nudge(SECOND_KEY_NORM)),
    Case("k_norm by layer, model. in front", "DFL116 DFL600",
         both(scale(SECOND_KEY_NORM, 1.25), with_prefix)),
    Case("k_norm by layer, speculators", "DFL116 DFL203 DFL308 DFL403 DFL505 DFL600",
         both(speculators(), scale(SECOND_KEY_NORM, 1.25))),
    Case("k_norm by layer, never on CPUs", "DFL106 DFL404 DFL506",
         both(scale(SECOND_KEY_NORM, 1.25), top(layer_types=MIXED, **WINDOW))),
    Case("k_norm of one layer missing", "DFL011 DFL600", drop(SECOND_KEY_NORM)),
    Case("k_norm not to be read", "DFL002 DFL600",
         both(scale(SECOND_KEY_NORM, 1.25), truncate("drafter/model.safetensors"))),
    Case("phi target", "DFL100 DFL200 DFL300 DFL400", goal(architectures=["PhiForCausalLM"])),
    Case("qwen2 target", "DFL200 DFL300 DFL400", goal(architectures=["Qwen2ForCausalLM"])),
    Case("gemma target here", "DFL601", goal(model_type="gemma2")),
    Case("few layers, no taps", "DFL022 DFL051 DFL213 DFL600",
         both(goal(num_hidden_layers=3, layer_types=None), nest(target_layer_ids=None))),
    Case("architecture", "DFL101 DFL201 DFL500 DFL600", top(architectures=["Qwen3ForCausalLM"])),
    Case("model type", "DFL102 DFL501", top(model_type="qwen3_5_text")),
    Case("uneven layers", "DFL029 DFL108 DFL304 DFL600",
         tensor("layers.1.self_attn.k_proj.weight", 32, 128)),
    Case("mask_hidden", "DFL109 DFL600", tensor("mask_hidden", 128)),
    Case("sample_from_anchor", "DFL110 DFL600", nest(sample_from_anchor=True)),
    Case("markov head", "DFL111 DFL207 DFL307 DFL504 DFL600",
         tensor("markov_head.markov_w1", 260, 8)),
    Case("DFlash 2 keys", "DFL111 DFL207 DFL307 DFL504 DFL600",
         nest(conv_kernel_size=2, conv_group_size=16)),
    Case("DFlash 2", "DFL111 DFL215 DFL307 DFL410 DFL504", second_version),
    Case("half of DFlash 2 keys", "DFL111 DFL207 DFL208 DFL307 DFL504 DFL600",
         nest(selector_rank=256)),
    Case("rope style", "DFL113 DFL600", top(rope_is_neox_style=False)),
    Case("vLLM's rope style", "DFL406 DFL600", top(is_neox_style=False)),
    Case("biases", "DFL402 DFL600", top(attention_bias=True)),
    Case("activation", "DFL407 DFL600", top(hidden_act="relu")),
    Case("speculators", "DFL203 DFL308 DFL403 DFL505 DFL600", speculators()),
    Case("speculators, causal", "DFL104 DFL203 DFL308 DFL403 DFL505 DFL600",
         speculators(sliding_window_non_causal=False)),
    Case("speculators, k", "DFL034 DFL203 DFL308 DFL403 DFL505 DFL600",
         speculators(speculators_config=FOUR_DRAFTS)),
    Case("sampling", "DFL508", change("target/generation_config.json", do_sample=True)),
    Case("GGUF drafter", "DFL001 DFL065 DFL068 DFL103 DFL203 DFL308 DFL505 DFL600",
         write("drafter.gguf", "GGUF")),
    Case("GGUF target", "DFL003 DFL067", write("target.gguf", "GGUF")),
    Case("target key of another type", "DFL014 DFL602", goal(vocab_size="260")),
    Case("target of an unknown type", "DFL015 DFL602", goal(model_type="foo")),
    Case("epsilon", "DFL044 DFL600", top(rms_norm_eps=-1)),
    Case("rope type", "DFL045 DFL600", top(rope_scaling={"type": "foo"})),
    Case("quantized in name", "DFL046 DFL600", top(quantization_config="fp8")),
]  # fmt: skip


def find(root: Path, case: Case) -> tuple[Finding, ...]:
    """What all rules find; a GGUF file beside a folder goes before it."""
    files = [root / f"{name}.gguf" for name in ("target", "drafter")]
    target, drafter = (Located(f if f.exists() else f.with_suffix(""), f.stem) for f in files)
    return judge_pair(gather_pair(target, drafter, case.template_args))


def test_good_pair_gets_notes_only(root: Path) -> None:
    findings = find(root, Case("good", "", both()))
    assert {found.code for found in findings} == GOOD
    assert {found.severity for found in findings} == {"note"}


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_broken_pair(root: Path, case: Case) -> None:
    case.change(root)
    findings = find(root, case)
    assert {found.code for found in findings} - GOOD == set(case.codes.split())
    rules = {rule.code: rule for rule in RULES}
    for found in findings:
        rule = rules[found.code]
        assert (found.engine, found.severity) == (rule.engine, rule.severity)
        # An engine's finding says which version it speaks of.
        text = found.happens + found.remedy
        assert found.engine in ("all", "blockdraft") or ENGINE_NAMES[found.engine] in text


def test_every_code_is_given_by_some_case() -> None:
    given = {code for case in CASES for code in case.codes.split()}
    judged_elsewhere = {rule.code for rule in live.RULES}
    assert {rule.code for rule in RULES} - judged_elsewhere == given | GOOD
