"""Kimi-K2 is read as the DeepSeek-V3 model that it is; its own code is never run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from blockdraft.target import load_target
from blockdraft.target.hf_config import is_known_type, read_model_config
from blockdraft.target.quiet import quiet
from blockdraft.target.renamed import known_type
from blockdraft.testing.families import family_model, family_named


@pytest.fixture
def kimi_folder(tmp_path: Path) -> Path:
    """As moonshotai/Kimi-K2-Instruct is published: its type, its code, its rotary settings."""
    model = family_model(family_named("kimi_k2"))
    save = cast(Callable[..., None], model.save_pretrained)  # pyright: ignore[reportUnknownMemberType] # transformers is untyped
    with quiet():
        save(tmp_path)
    path = tmp_path / "config.json"
    config = cast("dict[str, Any]", json.loads(path.read_text()))
    rope = config.pop("rope_parameters")
    config |= {
        "model_type": "kimi_k2",
        "auto_map": {
            "AutoConfig": "configuration_deepseek.DeepseekV3Config",
            "AutoModelForCausalLM": "modeling_deepseek.DeepseekV3ForCausalLM",
        },
        "rope_theta": rope.pop("rope_theta"),
        "rope_scaling": {"type": rope.pop("rope_type"), **rope},
    }
    path.write_text(json.dumps(config))
    (tmp_path / "configuration_deepseek.py").write_text("raise SystemExit('was run')\n")
    (tmp_path / "modeling_deepseek.py").write_text("raise SystemExit('was run')\n")
    return tmp_path


def test_kimi_k2_is_loaded_as_deepseek_v3(kimi_folder: Path) -> None:
    target = load_target(kimi_folder)
    model = family_model(family_named("kimi_k2"))
    ids = torch.arange(10, 50)  # beyond the original length of its YaRN
    with torch.no_grad():
        expected = cast(Any, model)(input_ids=ids[None]).logits[0, -1:]
    torch.testing.assert_close(target.open().prefill(ids).logits, expected)


def test_its_configuration_alone_is_read_the_same_way(kimi_folder: Path) -> None:
    config = read_model_config(kimi_folder, revision=None, from_hub=False)
    assert type(config).__name__ == "DeepseekV3Config"
    assert is_known_type("kimi_k2")
    assert known_type("kimi_k2") == "deepseek_v3" and known_type("llama") == "llama"
    assert known_type("nothing_like_it") is None and known_type(None) is None
