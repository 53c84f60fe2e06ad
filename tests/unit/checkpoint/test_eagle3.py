"""EAGLE-3 checkpoints of both layouts: what is read, and what is refused in one line."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file  # pyright: ignore[reportUnknownVariableType]: bare PathLike
from torch import Tensor

from blockdraft.checkpoint.eagle3 import build_eagle3, load_eagle3
from blockdraft.checkpoint.eagle3_format import parse_eagle3
from blockdraft.decoding import DraftIds
from blockdraft.drafter.eagle3 import Eagle3Drafter
from blockdraft.drafter.eagle3_model import eagle3_shapes
from blockdraft.drafter.eagle3_random import eagle3_config
from blockdraft.errors import CheckpointError
from blockdraft.target import HFTarget
from blockdraft.testing.tiny import TinySize, tiny_target

FLAT: dict[str, object] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 32,
    "intermediate_size": 64,
    "max_position_embeddings": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 1,
    "rms_norm_eps": 1e-6,
    "vocab_size": 96,
    "draft_vocab_size": 40,
}
LAYER_KEYS = tuple(key for key in FLAT if key not in ("architectures", "draft_vocab_size"))
NESTED: dict[str, object] = {
    "architectures": ["Eagle3Speculator"],
    "speculators_model_type": "eagle3",
    "draft_vocab_size": 40,
    "norm_before_residual": True,
    "eagle_aux_hidden_state_layer_ids": [2, 4, 5],
    "speculators_config": {"proposal_methods": [{"speculative_tokens": 5}]},
    "transformer_layer_config": {key: FLAT[key] for key in LAYER_KEYS},
}


@pytest.fixture(scope="module")
def target() -> HFTarget:
    return tiny_target(size=TinySize(num_layers=8), dtype=torch.float32)


@pytest.fixture(scope="module")
def tensors(target: HFTarget) -> dict[str, Tensor]:
    config = replace(eagle3_config(target), draft_vocab_size=40)
    generator = torch.Generator().manual_seed(0)
    state = {
        name: torch.randn(shape, generator=generator)
        for name, shape in eagle3_shapes(config).items()
    }
    targets = torch.arange(40) * 2 + 1
    state["d2t"] = targets - torch.arange(40)
    state["t2d"] = torch.zeros(96, dtype=torch.bool).index_fill_(0, targets, value=True)
    return state


def write(folder: Path, config: Mapping[str, object], tensors: Mapping[str, Tensor]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(dict(tensors), folder / "model.safetensors")
    return folder


def draft(drafter: Eagle3Drafter) -> DraftIds:
    state = drafter.open()
    features = torch.randn(9, 3 * 32, generator=torch.Generator().manual_seed(5))
    state.extend(range(9), features)
    return state.propose(50, 6)


def test_both_layouts_hold_the_same_drafter(
    tmp_path: Path, target: HFTarget, tensors: dict[str, Tensor]
) -> None:
    flat = load_eagle3(write(tmp_path / "flat", FLAT, tensors))
    renamed = {name.replace("midlayer.", "layers.0."): t for name, t in tensors.items()}
    table = target.embed(torch.arange(96)).clone()
    nested_config = NESTED | {"norm_before_residual": False}
    nested = load_eagle3(
        write(tmp_path / "nested", nested_config, renamed | {"embed_tokens.weight": table})
    )
    assert flat is not None and nested is not None
    one, other = build_eagle3(flat, target), build_eagle3(nested, target)
    assert one.taps == (1, 3, 4) and one.block_size == 8
    assert other.taps == (1, 3, 4) and other.block_size == 6
    assert draft(one).ids[:5] == draft(other).ids
    assert all(token_id % 2 for token_id in draft(one).ids)


def test_what_the_files_say_is_read() -> None:
    facts = parse_eagle3(NESTED, "here")
    assert facts.taps == (1, 3, 4) and facts.config.norm_before_residual
    assert facts.config.rope.theta == 10_000
    raised = parse_eagle3(
        FLAT
        | {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 9, 12]}, "rope_theta": 5e5},
        "here",
    )
    assert raised.taps == (1, 8, 11) and raised.config.rope.theta == 5e5
    assert parse_eagle3(FLAT, "here", taps=(0, 2, 3)).config.taps == (0, 2, 3)


def test_another_model_is_left_to_others(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["DFlashDraftModel"]}')
    assert load_eagle3(tmp_path) is None
    (tmp_path / "config.json").unlink()
    assert load_eagle3(tmp_path) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_layers": 2}, "'num_hidden_layers' = 2 is not supported"),
        ({"hidden_act": "gelu"}, "expected 'silu' or None"),
        ({"hidden_size": None}, "'hidden_size' is missing"),
        ({"draft_vocab_size": 97}, "at most vocab_size 96"),
        ({"draft_vocab_size": 39}, r"tensor d2t .* expected \[39\] \(from config.json"),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]}}, "from 1 on"),
        (
            {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2]}},
            r"expected \[32, 64\] \(the layers 0, 1,",
        ),
    ],
)
def test_a_wrong_file_is_refused(
    tmp_path: Path, tensors: dict[str, Tensor], change: dict[str, object], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        load_eagle3(write(tmp_path, FLAT | change, tensors))


def test_wrong_tensors_are_refused(tmp_path: Path, tensors: dict[str, Tensor]) -> None:
    less = {name: tensor for name, tensor in tensors.items() if name != "norm.weight"}
    with pytest.raises(CheckpointError, match=r"norm.weight \[32\] is missing"):
        load_eagle3(write(tmp_path, FLAT, less))
    more = tensors | {"midlayer.self_attn.q_norm.weight": torch.ones(8)}
    with pytest.raises(CheckpointError, match=r"unexpected tensor midlayer\.self_attn\.q_norm"):
        load_eagle3(write(tmp_path, FLAT, more))
    twice = tensors | {"d2t": torch.arange(40) * -1 + 7}
    with pytest.raises(CheckpointError, match="two draft ids to one target id"):
        load_eagle3(write(tmp_path, FLAT, twice))


def test_another_target_is_refused(tmp_path: Path, tensors: dict[str, Tensor]) -> None:
    checkpoint = load_eagle3(write(tmp_path, FLAT, tensors))
    assert checkpoint is not None
    wide = tiny_target(size=TinySize(num_layers=8, hidden_size=48))
    with pytest.raises(CheckpointError, match="hidden size 32, but target tiny-qwen3 has 48"):
        build_eagle3(checkpoint, wide)
    with pytest.raises(CheckpointError, match="can give layers 0 to 1"):
        build_eagle3(checkpoint, tiny_target())
