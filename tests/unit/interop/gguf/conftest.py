"""A byte-level tokenizer saved as a tiny target's own, and drafters of any configuration."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from blockdraft.checkpoint import DrafterCheckpoint
from blockdraft.checkpoint.contents import expected_shapes, optional_shapes
from blockdraft.drafter import DrafterConfig
from blockdraft.interop.gguf.special import SpecialTokens
from blockdraft.interop.gguf.tokenizer import TargetTokenizer
from blockdraft.interop.target_facts import TargetRows

MakeDrafter = Callable[..., DrafterCheckpoint]
SaveTokenizer = Callable[..., Tokenizer]

MERGES = [("t", "h"), ("th", "e"), ("\u0120", "the")]
TEMPLATE = "{% for message in messages %}{{ message['content'] }}<|end|>{% endfor %}"


def _save_tokenizer(folder: Path, vocab_size: int = 264, *, bos: bool = True) -> Tokenizer:
    """256 bytes, three merges, then <|start|>, <|end|> and a plain added token <think>."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: token_id for token_id, letter in enumerate(letters)}
    for left, right in MERGES:
        vocab[left + right] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab, MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|start|>"), AddedToken("<|end|>")])
    tokenizer.add_tokens([AddedToken("<think>", normalized=False)])
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|start|> $A", special_tokens=[("<|start|>", 259)]
        )
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<|start|>", "eos_token": {"content": "<|end|>"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    if not (folder / "config.json").exists():
        config = {"vocab_size": vocab_size, "eos_token_id": [260, 0]}
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return tokenizer


@pytest.fixture
def config(config: DrafterConfig) -> DrafterConfig:
    """The shared small drafter, with the masks that llama.cpp can tell."""
    return replace(config, layer_types=("full_attention",) * 2, sliding_window=None)


@pytest.fixture
def tokenizer(config: DrafterConfig) -> TargetTokenizer:
    return _make_tokenizer(config.vocab_size)


@pytest.fixture
def rows(config: DrafterConfig) -> TargetRows:
    return _make_rows(config)


@pytest.fixture
def save_tokenizer() -> SaveTokenizer:
    return _save_tokenizer


@pytest.fixture
def make_tokenizer() -> Callable[[int], TargetTokenizer]:
    return _make_tokenizer


@pytest.fixture
def make_rows() -> Callable[[DrafterConfig], TargetRows]:
    return _make_rows


@pytest.fixture
def make_drafter() -> MakeDrafter:
    return _random_drafter


def _make_tokenizer(vocab_size: int) -> TargetTokenizer:
    """Tokens named by their numbers, which no test of a drafter reads."""
    return TargetTokenizer(
        tokens=tuple(f"token{token_id}" for token_id in range(vocab_size)),
        types=(1,) * vocab_size,
        merges=("t o", "to k"),
        pre="gpt-2",
        special=SpecialTokens(ids={"bos": 1, "eos": 2}, add_bos=False, add_eos=False),
        chat_template="{{ messages }}",
    )


def _make_rows(config: DrafterConfig) -> TargetRows:
    shape = (config.vocab_size, config.hidden_size)
    return TargetRows(embedding=torch.randn(shape), head=torch.randn(shape))


def _random_drafter(
    config: DrafterConfig,
    *,
    dtype: torch.dtype = torch.float32,
    own_head: bool = False,
    own_mask: bool = False,
) -> DrafterCheckpoint:
    """Random weights; every third token is drafted where the vocabulary is reduced."""
    state = {name: torch.randn(shape).to(dtype) for name, shape in expected_shapes(config).items()}
    drafted = config.draft_vocab_size
    ids = None if drafted is None else torch.randperm(config.vocab_size)[:drafted].sort().values
    return DrafterCheckpoint(
        config=config,
        state=state,
        source="memory",
        d2t=None if ids is None else ids - torch.arange(len(ids)),
        lm_head=torch.randn(optional_shapes(config)["lm_head.weight"]).to(dtype)
        if own_head
        else None,
        mask_embedding=torch.randn(config.hidden_size).to(dtype) if own_mask else None,
        recorded_tau=2.345678901234567,
    )
