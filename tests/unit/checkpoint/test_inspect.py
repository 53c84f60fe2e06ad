"""The summary of a checkpoint, as facts, as JSON and as text."""

import json
from collections.abc import Callable
from dataclasses import replace

import torch

from blockdraft.checkpoint import DrafterCheckpoint, describe, load_drafter_model, render_text
from blockdraft.drafter import DrafterConfig

MakeCheckpoint = Callable[[DrafterConfig], DrafterCheckpoint]


def test_facts(config: DrafterConfig, make_checkpoint: MakeCheckpoint) -> None:
    checkpoint = make_checkpoint(replace(config, attention_bias=True))
    summary = describe(checkpoint)
    assert summary.layers == ("window 4, causal", "full, bidirectional")
    assert (summary.taps, summary.block_size, summary.mask_token_id) == ((1, 3), 5, 3)
    assert (summary.target.hidden_size, summary.target.num_layers) == (16, 6)
    assert summary.target.vocab_size == 40
    assert summary.dtype == "float32"
    counts = summary.parameters
    model = load_drafter_model(checkpoint)
    assert counts.total == sum(parameter.numel() for parameter in model.parameters())
    assert counts.total == counts.fusion + counts.attention + counts.mlp + counts.norms
    assert counts.fusion == 2 * 16 * 16
    assert counts.mlp == 2 * 3 * 16 * 24
    assert counts.norms == 2 * 16 + 2 * (2 * 16 + 2 * 8)


def test_json_is_plain(config: DrafterConfig, make_checkpoint: MakeCheckpoint) -> None:
    facts = describe(make_checkpoint(config)).to_json()
    read = json.loads(json.dumps(facts))
    assert read["taps"] == [1, 3]
    assert read["target"] == {"hidden_size": 16, "num_layers": 6, "vocab_size": 40}
    assert read["parameters"]["head"] == 0


def test_text(config: DrafterConfig, make_checkpoint: MakeCheckpoint) -> None:
    text = render_text(describe(make_checkpoint(config)))
    assert text.splitlines() == [
        "drafter     memory",
        "layers      2: 1 x window 4, causal; 1 x full, bidirectional",
        "heads       4 query, 2 key/value of 8",
        "taps        1, 3",
        "block size  5 (anchor and 4 drafts)",
        "mask token  3",
        "vocabulary  the target's, with its head",
        "positions   256, RoPE default, theta 10000",
        "parameters  6.0K in float32 (fusion 512, attention 3.1K, MLP 2.3K, norms 128)",
        "target      hidden 16, 6 layers, vocabulary 40",
    ]


def test_text_of_optional_parts(config: DrafterConfig, make_checkpoint: MakeCheckpoint) -> None:
    config = replace(
        config,
        num_target_layers=None,
        layer_types=("full_attention", "full_attention"),
    )
    checkpoint = make_checkpoint(config)
    own_head = replace(
        checkpoint, lm_head=torch.ones(40, 16), mask_embedding=torch.ones(16), source="a/b@c"
    )
    text = render_text(describe(own_head))
    assert "2 x full, bidirectional" in text
    assert "vocabulary  the target's, with a head of its own" in text
    assert "mask token  3, learned embedding" in text
    assert "head 640, mask embedding 16" in text
    assert "unrecorded number of layers" in text
    reduced = replace(checkpoint, config=replace(config, draft_vocab_size=7))
    assert "vocabulary  reduced to 7 ids" in render_text(describe(reduced))


def test_large_counts_are_short(config: DrafterConfig, make_checkpoint: MakeCheckpoint) -> None:
    summary = describe(make_checkpoint(config))
    large = replace(
        summary, parameters=replace(summary.parameters, total=1_060_000_000, mlp=2 * 10**6)
    )
    assert "1.1B in float32" in render_text(large)
    assert "MLP 2.0M" in render_text(large)
