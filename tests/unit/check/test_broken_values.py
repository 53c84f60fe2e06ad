"""Values that no model can have, in either side's configuration: each a finding for every engine.

The keys are those that our own strict reader reads of a drafter, and those of a target that
transformers or the rules read; the values are wrong in kind, not finite, negative or huge.
"""

import json
import resource
import struct
from collections.abc import Generator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from blockdraft.check import Finding, Located, gather_pair, judge_pair, targets
from blockdraft.check.rules import layout
from blockdraft.checkpoint import load_checkpoint
from blockdraft.errors import CheckpointError

GIB = 1 << 30
SIZES = (
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
)
NESTED = ("block_size", "mask_token_id", "num_target_layers", "draft_vocab_size")
NUMBERS = ("rms_norm_eps", "rope_theta")
FACTORS = ("final_logit_softcapping", "input_embedding_scale", "output_multiplier")
FLAGS = ("attention_bias", "use_sliding_window", "is_causal")
OBJECTS = ("rope_parameters", "rope_scaling", "quantization_config", "dflash_config")
ROPES: tuple[Mapping[str, object], ...] = (
    {"rope_type": "foo", "rope_theta": 1e4},
    {"rope_type": 5, "rope_theta": 1e4},
    {"rope_type": "yarn", "rope_theta": 1e4},
    {"rope_type": "linear", "rope_theta": 1e4},
    {"rope_type": "linear", "rope_theta": 1e4, "factor": "x"},
    {"rope_type": "linear", "rope_theta": 1e4, "factor": 0},
    {"rope_type": "default", "rope_theta": 0},
    {"rope_type": "default", "rope_theta": "x"},
    {"rope_type": "default", "rope_theta": float("nan")},
    {"full_attention": {"rope_type": "foo", "rope_theta": 1e4}},
)


@pytest.fixture
def little_memory() -> Generator[None]:
    """4 GiB more than what is mapped now: a loop over a claimed number meets the limit soon."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + 4 * GIB, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def put(file: Path, values: Mapping[str, object], inside: str | None = None) -> None:
    raw = cast("dict[str, object]", json.loads(file.read_text()))
    place = raw if inside is None else cast("dict[str, object]", raw[inside])
    place.update(values)
    file.write_text(json.dumps(raw))


def judged(root: Path) -> tuple[Finding, ...]:
    target, drafter = (Located(root / name, name) for name in ("target", "drafter"))
    return judge_pair(gather_pair(target, drafter))


def errors_for_all(findings: tuple[Finding, ...]) -> list[str]:
    return [f.code for f in findings if f.engine == "all" and f.severity == "error"]


def is_refused_here(root: Path) -> bool:
    try:
        load_checkpoint(root / "drafter")
    except CheckpointError:
        return True
    return False


DRAFTER_VALUES: list[tuple[str | None, str, object]] = [
    *((None, name, wrong) for name in SIZES for wrong in ("x", [1], 1.5, True, 0, -1, 10**12)),
    *((None, name, None) for name in (*SIZES, "rms_norm_eps")),
    *((None, name, wrong) for name in NUMBERS for wrong in ("x", [1], 0, -1, float("nan"))),
    (None, "rope_theta", 10**400),
    *((None, name, wrong) for name in FLAGS for wrong in ("x", 1)),
    *((None, name, wrong) for name in OBJECTS for wrong in ("x", [1], 5)),
    *((None, "rope_parameters", rope) for rope in ROPES),
    (None, "rope_scaling", {"type": "foo"}),
    (None, "quantization_config", {"quant_method": "fp8"}),
    (None, "hidden_act", "foo"),
    (None, "hidden_act", 5),
    (None, "layer_types", "x"),
    (None, "layer_types", [1, 2]),
    (None, "layer_types", ["full_attention", "chunked_attention"]),
    *(("dflash_config", name, wrong) for name in NESTED for wrong in ("x", [1], True, -1, 10**12)),
    *(("dflash_config", name, wrong) for name in FACTORS for wrong in ("x", float("inf"))),
    *(("dflash_config", "target_layer_ids", wrong) for wrong in ("x", [0, "x", 2], [0, 1, 10**30])),
    ("dflash_config", "causal", "x"),
]


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(("inside", "name", "value"), DRAFTER_VALUES)
def test_broken_values_of_a_drafter(
    root: Path, inside: str | None, name: str, value: object
) -> None:
    if name == "block_size":
        put(root / "drafter/config.json", {name: value})
    put(root / "drafter/config.json", {name: value}, inside)
    assert errors_for_all(judged(root))
    # Blockdraft agrees, but for sizes that it need not hold and factors that it works out.
    assert is_refused_here(root) or value == 10**12 or name in ("rope_parameters", "block_size")


@pytest.mark.parametrize("value", [10**30, 10**9])
def test_a_layer_that_no_target_has(root: Path, value: int) -> None:
    """Also where the target's depth is not known."""
    put(root / "target/config.json", {"num_hidden_layers": "x"})
    put(root / "drafter/config.json", {"num_target_layers": value})
    put(root / "drafter/config.json", {"target_layer_ids": [0, 1, value]}, "dflash_config")
    assert {"DFL014", "DFL025", "DFL044"} <= set(errors_for_all(judged(root)))


TARGET_VALUES: list[tuple[str, object]] = [
    *((name, wrong) for name in SIZES for wrong in ("x", 1.5, True, 0, -1, 10**12)),
    *((name, None) for name in ("hidden_size", "num_hidden_layers", "vocab_size", "model_type")),
    *(("model_type", wrong) for wrong in ([1], "foo", 5)),
    *((name, wrong) for name in NUMBERS for wrong in ("x", [1], -1, float("nan"))),
    *((name, wrong) for name in OBJECTS[:3] for wrong in ("x", [1], 5)),
    *(("rope_parameters", rope) for rope in ROPES),
    *((f"{name}_token_id", wrong) for name in ("bos", "eos", "pad") for wrong in ("x", 1.5)),
    ("eos_token_id", [1, "x"]),
    ("architectures", 5),
    ("text_config", 5),
    ("tie_word_embeddings", "x"),
    ("layer_types", ["full_attention"]),
    ("dtype", "foo"),
]


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(("name", "value"), TARGET_VALUES)
def test_broken_values_of_a_target(root: Path, name: str, value: object) -> None:
    put(root / "target/config.json", {name: value})
    findings = judged(root)
    assert {"DFL014", "DFL015"} & set(errors_for_all(findings))
    # Nothing is said to run, least of all through transformers.
    assert "DFL601" not in {found.code for found in findings}


@pytest.mark.parametrize("value", ["x", [1, "x"], 1.5])
def test_ids_of_the_generation_configuration(root: Path, value: object) -> None:
    put(root / "target/generation_config.json", {"eos_token_id": value})
    found = next(found for found in judged(root) if found.code == "DFL014")
    assert "eos_token_id of generation_config.json is" in found.happens
    (root / "target/generation_config.json").write_text("{")
    assert "DFL014" in errors_for_all(judged(root))


def test_a_type_that_only_engines_know(root: Path) -> None:
    """Transformers may be older than an engine: then the verdict is Blockdraft's alone."""
    put(root / "target/config.json", {"model_type": "kimi_k3"})
    codes = {found.code for found in judged(root)}
    assert "DFL602" in codes and not codes & {"DFL014", "DFL015", "DFL601"}
    put(root / "target/config.json", {"model_type": "own", "auto_map": {"AutoConfig": "c.C"}})
    codes = {found.code for found in judged(root)}
    assert "DFL602" in codes and "DFL601" not in codes


@pytest.mark.parametrize("names", [["DeepseekV3ForCausalLM"], None])
def test_kimi_k2_is_deepseek_v3_to_engines(root: Path, names: list[str] | None) -> None:
    """Its type is its own, its architecture is DeepSeek's; TensorRT-LLM's list names Kimi-K2."""
    put(root / "target/config.json", {"model_type": "kimi_k2", "architectures": names})
    target = gather_pair(Located(root / "target", "t"), Located(root / "drafter", "d")).target
    assert target.is_known_type
    for engine in (targets.VLLM, targets.SGLANG, targets.TRTLLM):
        assert targets.may_be_among(target, engine)
    assert not targets.may_be_among(target, targets.LLAMACPP)
    other = replace(target, model_type="deepseek_v3", architectures=("DeepseekV3ForCausalLM",))
    assert targets.may_be_among(other, targets.VLLM)
    assert not targets.may_be_among(other, targets.TRTLLM)


def test_a_broken_configuration_is_not_blamed_on_the_tokenizer_or_template(root: Path) -> None:
    put(root / "target/config.json", {"hidden_size": "x"})
    codes = {found.code for found in judged(root)}
    assert codes & {"DFL005", "DFL063"} == set()


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("side", ["target", "drafter"])
def test_a_huge_block_count_in_a_gguf_file(root: Path, side: str) -> None:
    architecture = "qwen3" if side == "target" else "dflash"
    (root / f"{side}.gguf").write_bytes(gguf(architecture, block_count=4 * 10**9))
    target, drafter = (Located(root / name, name) for name in ("target", "drafter"))
    if side == "target":
        target = Located(root / "target.gguf", "target.gguf")
    else:
        drafter = Located(root / "drafter.gguf", "drafter.gguf")
    codes = {found.code for found in judge_pair(gather_pair(target, drafter))}
    assert ("DFL014" if side == "target" else "DFL044") in codes


def gguf(architecture: str, **numbers: int) -> bytes:
    """A file without tensors."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    entries = text("general.architecture") + struct.pack("<I", 8) + text(architecture)
    for name, number in numbers.items():
        entries += text(f"{architecture}.{name}") + struct.pack("<II", 4, number)
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 1 + len(numbers)) + entries


def test_a_quantized_drafter_is_not_called_plain(root: Path) -> None:
    """With scales among its tensors it is what it says; whether an engine takes it is another
    question."""
    put(root / "drafter/config.json", {"quantization_config": {"quant_method": "fp8"}})
    target, drafter = (Located(root / name, name) for name in ("target", "drafter"))
    pair = gather_pair(target, drafter)
    assert layout.quantized_in_name_only(pair) is not None
    tensors = cast("dict[str, object]", pair.drafter.tensors)
    tensors["layers.0.mlp.up_proj.weight_scale"] = pair.drafter.tensors["fc.weight"]
    assert layout.quantized_in_name_only(pair) is None
