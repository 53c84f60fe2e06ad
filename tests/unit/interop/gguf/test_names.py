"""Names of tensors, against the table that package gguf has for converters."""

import gguf
import pytest

from blockdraft.checkpoint.contents import expected_shapes
from blockdraft.drafter import DrafterConfig
from blockdraft.interop.gguf.names import drafter_name, target_name


@pytest.mark.parametrize(
    ("architecture", "names"),
    [
        (gguf.MODEL_ARCH.LLAMA, ["q_proj", "k_proj", "v_proj", "o_proj"]),
        (gguf.MODEL_ARCH.QWEN3, ["q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm"]),
    ],
)
def test_target_names_are_the_librarys(architecture: gguf.MODEL_ARCH, names: list[str]) -> None:
    table = gguf.get_tensor_name_map(architecture, 3)
    published = ["model.embed_tokens", "model.norm", "lm_head", "model.layers.2.input_layernorm"]
    published += ["model.layers.2.post_attention_layernorm"]
    published += [f"model.layers.2.self_attn.{name}" for name in names]
    published += [f"model.layers.2.mlp.{name}_proj" for name in ("gate", "up", "down")]
    for name in published:
        expected = table.get_name(f"{name}.weight", try_suffixes=(".weight",))
        assert target_name(f"{name}.weight") == expected


def test_every_drafter_tensor_has_a_name_of_its_own(config: DrafterConfig) -> None:
    names = [drafter_name(name) for name in expected_shapes(config)]
    assert None not in names
    assert len(set(names)) == len(names)
    assert drafter_name("layers.1.post_attention_layernorm.weight") == "blk.1.ffn_norm.weight"
    assert drafter_name("hidden_norm.weight") == "enc.output_norm.weight"


@pytest.mark.parametrize("name", ["layers.0.self_attn.q_proj.bias", "layers.x.mlp", "rotary", ""])
def test_other_tensors_have_none(name: str) -> None:
    assert drafter_name(name) is None
    assert target_name(name) is None
