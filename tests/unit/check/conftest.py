"""A tiny pair on disk in which nothing is wrong: a random Qwen3 target and a random drafter."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from blockdraft.checkpoint import DrafterCheckpoint, save_checkpoint
from blockdraft.checkpoint.contents import expected_shapes
from blockdraft.data.rendering import Renderer, RenderingConfig
from blockdraft.drafter import DrafterConfig
from blockdraft.target.hf_load import load_text
from blockdraft.target.tokenizer_facts import read_tokenizer
from blockdraft.testing.chat import CHATML
from blockdraft.testing.tiny import TinySize, tiny_model

SPECIAL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|MASK|>")
VOCAB_SIZE = 260
MASK_ID = 259
CONFIG = DrafterConfig(
    hidden_size=128,
    intermediate_size=64,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    rms_norm_eps=1e-6,
    vocab_size=VOCAB_SIZE,
    block_size=4,
    mask_token_id=MASK_ID,
    taps=(0, 1, 2),
    layer_types=("full_attention", "full_attention"),
    max_position_embeddings=512,
    num_target_layers=4,
)


@pytest.fixture(scope="session")
def good_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `target` and `drafter`, not to be changed."""
    folder = tmp_path_factory.mktemp("pair")
    write_target(folder / "target")
    write_drafter(folder / "drafter", folder / "target")
    return folder


@pytest.fixture
def root(good_folder: Path, tmp_path: Path) -> Path:
    """A copy of the good pair, to be broken."""
    shutil.copytree(good_folder, tmp_path / "pair")
    return tmp_path / "pair"


def write_target(folder: Path) -> None:
    size = TinySize(
        vocab_size=VOCAB_SIZE,
        hidden_size=128,
        num_layers=4,
        max_context_len=512,
        tied=True,
        stop_ids=(257,),
    )
    tiny_model("qwen3", dtype=torch.float32, size=size).save_pretrained(folder)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(list(SPECIAL))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|im_end|>")
    tokenizer.chat_template = CHATML
    tokenizer.save_pretrained(folder)


def write_drafter(folder: Path, target: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    state = {
        name: 0.1 * torch.randn(shape, generator=generator)
        for name, shape in expected_shapes(CONFIG).items()
    }
    # Layers whose k_norm differ are a finding of their own (DFL116).
    key_norm = state["layers.0.self_attn.k_norm.weight"]
    state["layers.1.self_attn.k_norm.weight"] = key_norm.clone()
    save_checkpoint(folder, DrafterCheckpoint(config=CONFIG, state=state, source="memory"))
    codec, tokenizer = load_text(target, "target"), read_tokenizer(target)
    assert codec is not None and tokenizer is not None
    record: dict[str, object] = {
        "acceptance_length": 1.01,
        "drafter": {"taps": [0, 1, 2], "block_size": 4},
        "training": {"target": "target", "settings": {"target": {"dtype": "float32"}}},
        "tokenizer": tokenizer.record(),
        "template": [Renderer(codec, RenderingConfig(), ()).describe()],
    }
    (folder / "provenance.json").write_text(json.dumps(record))
