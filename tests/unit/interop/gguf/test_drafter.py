"""Drafters to GGUF and back: every tensor to the bit, every setting, the same shape."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blockdraft.builtin import builtin_drafter_path
from blockdraft.checkpoint import DrafterCheckpoint, load_checkpoint
from blockdraft.drafter import DrafterConfig
from blockdraft.drafter.config import RopeConfig
from blockdraft.errors import CheckpointError, ConfigError
from blockdraft.interop.gguf import (
    GGUF_TYPES,
    GgufType,
    TargetTokenizer,
    read_drafter,
    read_provenance,
    write_drafter,
)
from blockdraft.interop.gguf.file import GgufFile, read_file
from blockdraft.interop.target_facts import TargetRows

MakeDrafter = Callable[..., DrafterCheckpoint]
MakeTokenizer = Callable[[int], TargetTokenizer]
MakeRows = Callable[[DrafterConfig], TargetRows]

FLOATS = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
ROPES = (
    RopeConfig(),
    RopeConfig(rope_type="linear", factor=2.0),
    RopeConfig(rope_type="llama3", factor=8.0, original_max_position_embeddings=64),
    RopeConfig(
        rope_type="yarn",
        factor=4.0,
        original_max_position_embeddings=64,
        mscale=0.7,
        mscale_all_dim=0.9,
    ),
)


def assert_equal(found: DrafterCheckpoint, expected: DrafterCheckpoint) -> None:
    """The same drafter to the last bit; where it came from may differ."""
    assert found.config == expected.config
    assert found.recorded_tau == expected.recorded_tau
    assert found.state.keys() == expected.state.keys()
    pairs = [(found.state[name], expected.state[name]) for name in expected.state]
    for name in ("d2t", "lm_head", "mask_embedding"):
        left, right = getattr(found, name), getattr(expected, name)
        assert (left is None) == (right is None)
        if left is not None:
            pairs.append((left, right))
    for left, right in pairs:
        assert left.dtype == right.dtype
        assert torch.equal(left, right)


def opened(
    checkpoint: DrafterCheckpoint,
    tokenizer: TargetTokenizer,
    path: Path,
    rows: TargetRows | None = None,
) -> GgufFile:
    write_drafter(checkpoint, tokenizer, path, dtype="f32", provenance={}, rows=rows)
    return read_file(path)


def drawn_config(data: st.DataObject) -> DrafterConfig:
    """Any drafter that llama.cpp takes."""
    draw = data.draw
    num_layers = draw(st.integers(1, 3))
    block_size = draw(st.integers(2, 6))
    kinds = st.sampled_from(("full_attention", "sliding_attention"))
    kv_heads = draw(st.integers(1, 2))
    return DrafterConfig(
        hidden_size=draw(st.sampled_from((8, 32))),
        intermediate_size=draw(st.sampled_from((12, 64))),
        num_layers=num_layers,
        num_heads=kv_heads * draw(st.integers(1, 2)),
        num_kv_heads=kv_heads,
        head_dim=draw(st.sampled_from((4, 8, 32))),
        rms_norm_eps=draw(st.sampled_from((1e-6, 1e-5, 9.999999747378752e-06))),
        vocab_size=17,
        block_size=block_size,
        mask_token_id=draw(st.integers(0, 16)),
        taps=tuple(draw(st.lists(st.integers(0, 8), min_size=1, max_size=4, unique=True))),
        num_target_layers=draw(st.sampled_from((None, 12))),
        layer_types=tuple(draw(st.lists(kinds, min_size=num_layers, max_size=num_layers))),
        sliding_window=draw(st.integers(block_size, 99)),
        is_causal=draw(st.booleans()),
        max_position_embeddings=256,
        rope=draw(st.sampled_from(ROPES)),
        input_embedding_scale=draw(st.sampled_from((1.0, 5.656854249492381))),
        output_multiplier=draw(st.sampled_from((1.0, 0.1))),
        final_logit_softcapping=draw(st.sampled_from((None, 30.0))),
        draft_vocab_size=draw(st.sampled_from((None, 1, 5, 17))),
    )


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=40,
    deadline=None,
)
@given(
    data=st.data(),
    dtype=st.sampled_from(sorted(FLOATS)),
    own_head=st.booleans(),
    own_mask=st.booleans(),
)
def test_every_drafter_comes_back_to_the_bit(
    tmp_path: Path,
    make_drafter: MakeDrafter,
    make_tokenizer: MakeTokenizer,
    make_rows: MakeRows,
    data: st.DataObject,
    dtype: GgufType,
    own_head: bool,
    own_mask: bool,
) -> None:
    config = drawn_config(data)
    path = tmp_path / "drafter.gguf"
    path.unlink(missing_ok=True)
    drafter = make_drafter(config, dtype=FLOATS[dtype], own_head=own_head, own_mask=own_mask)
    write_drafter(
        drafter, make_tokenizer(17), path, dtype=dtype, provenance={}, rows=make_rows(config)
    )
    assert_equal(read_drafter(path), drafter)


def test_metadata_table(
    tmp_path: Path, config: DrafterConfig, tokenizer: TargetTokenizer, make_drafter: MakeDrafter
) -> None:
    file = opened(make_drafter(config), tokenizer, tmp_path / "d.gguf")
    found = {key: value.value for key, value in file.metadata.items()}
    expected = {
        "general.architecture": "dflash",
        "general.file_type": 0,
        "dflash.context_length": 256,
        "dflash.embedding_length": 16,
        "dflash.block_count": 2,
        "dflash.feed_forward_length": 24,
        "dflash.attention.head_count": 4,
        "dflash.attention.head_count_kv": 2,
        "dflash.attention.key_length": 8,
        "dflash.attention.value_length": 8,
        "dflash.attention.causal": False,
        "dflash.block_size": 5,
        # Taps (1, 3): llama.cpp names the layer whose input it reads (reports C07, S4).
        "dflash.target_layers": (2, 4),
        "dflash.rope.dimension_count": 8,
        "dflash.rope.freq_base": 10_000.0,
        "tokenizer.ggml.mask_token_id": 3,
    }
    assert {key: found[key] for key in expected} == expected
    assert found["dflash.attention.layer_norm_rms_epsilon"] == pytest.approx(1e-6)
    assert "dflash.attention.sliding_window" not in found
    for key, value in tokenizer.metadata().items():
        assert file.metadata[key].value == value.value


def test_a_window_and_its_pattern(
    tmp_path: Path, config: DrafterConfig, tokenizer: TargetTokenizer, make_drafter: MakeDrafter
) -> None:
    sliding = replace(
        config,
        layer_types=("sliding_attention", "full_attention"),
        sliding_window=6,
        is_causal=True,
    )
    file = opened(make_drafter(sliding), tokenizer, tmp_path / "d.gguf")
    assert file.metadata["dflash.attention.causal"].value is True
    assert file.metadata["dflash.attention.sliding_window"].value == 6
    assert file.metadata["dflash.attention.sliding_window_pattern"].value == (True, False)


def test_a_reduced_vocabulary_brings_absolute_ids_and_the_targets_rows(
    tmp_path: Path,
    config: DrafterConfig,
    tokenizer: TargetTokenizer,
    rows: TargetRows,
    make_drafter: MakeDrafter,
) -> None:
    drafter = make_drafter(replace(config, draft_vocab_size=7))
    assert drafter.d2t is not None
    ids = drafter.d2t + torch.arange(7)
    file = opened(drafter, tokenizer, tmp_path / "d.gguf", rows)
    assert file.tensors["d2t"].data.view("int64").tolist() == ids.tolist()
    head = torch.from_numpy(file.tensors["output.weight"].data.view("float32").copy())
    assert torch.equal(head.view(7, 16), rows.head[ids])
    assert "token_embd.weight" not in file.tensors


def test_a_mask_embedding_patches_the_targets_table(
    tmp_path: Path,
    config: DrafterConfig,
    tokenizer: TargetTokenizer,
    rows: TargetRows,
    make_drafter: MakeDrafter,
) -> None:
    drafter = make_drafter(config, own_mask=True)
    assert drafter.mask_embedding is not None
    before = rows.embedding.clone()
    file = opened(drafter, tokenizer, tmp_path / "d.gguf", rows)
    table = torch.from_numpy(file.tensors["token_embd.weight"].data.view("float32").copy())
    expected = before.clone()
    expected[3] = drafter.mask_embedding
    assert torch.equal(table.view(40, 16), expected)
    assert torch.equal(rows.embedding, before)
    # Without a head of its own, llama.cpp would take the patched table for one.
    assert file.tensors["output.weight"].shape == (40, 16)


@pytest.mark.parametrize("change", [{"draft_vocab_size": 7}, {}])
def test_rows_of_the_target_are_asked_for(
    tmp_path: Path,
    config: DrafterConfig,
    tokenizer: TargetTokenizer,
    make_drafter: MakeDrafter,
    change: dict[str, int],
) -> None:
    drafter = make_drafter(
        replace(config, draft_vocab_size=change.get("draft_vocab_size")), own_mask=not change
    )
    with pytest.raises(ConfigError, match="give the target with its weights"):
        opened(drafter, tokenizer, tmp_path / "d.gguf")


def test_provenance_is_carried(
    tmp_path: Path, config: DrafterConfig, tokenizer: TargetTokenizer, make_drafter: MakeDrafter
) -> None:
    path = tmp_path / "d.gguf"
    record = {"training": {"target": "tiny", "steps": 3}, "acceptance_length": 2.5}
    write_drafter(make_drafter(config), tokenizer, path, dtype="bf16", provenance=record)
    assert read_provenance(path) == record
    opened(make_drafter(config), tokenizer, tmp_path / "bare.gguf")
    assert read_provenance(tmp_path / "bare.gguf") == {}


def test_q8_0_is_close_and_says_so(
    tmp_path: Path, config: DrafterConfig, make_tokenizer: MakeTokenizer, make_drafter: MakeDrafter
) -> None:
    drafter = make_drafter(replace(config, hidden_size=32, intermediate_size=24))
    path, told = tmp_path / "d.gguf", list[str]()
    write_drafter(
        drafter, make_tokenizer(40), path, dtype="q8_0", provenance={}, report=told.append
    )
    assert told == [
        "2 matrices are stored as f16, their rows being no multiple of 32: "
        "blk.0.ffn_down.weight, blk.1.ffn_down.weight"
    ]
    back = read_drafter(path, report=told.append)
    assert "dequantized to float32" in told[1]
    assert back.dtype == torch.float32
    for name, tensor in drafter.state.items():
        torch.testing.assert_close(back.state[name], tensor, atol=0.02, rtol=0.001)


def test_the_built_in_drafter_comes_back_to_the_bit(
    tmp_path: Path, make_tokenizer: MakeTokenizer
) -> None:
    folder = builtin_drafter_path("smollm2")
    assert folder is not None
    drafter = load_checkpoint(folder)
    assert drafter.d2t is not None
    # Its head is the target's, so any rows will do; these take no memory.
    table = torch.zeros(1, 1, dtype=torch.bfloat16).expand(
        drafter.config.vocab_size, drafter.config.hidden_size
    )
    path = tmp_path / "d.gguf"
    write_drafter(
        drafter,
        make_tokenizer(drafter.config.vocab_size),
        path,
        dtype="bf16",
        provenance={},
        rows=TargetRows(embedding=table, head=table),
    )
    assert_equal(read_drafter(path), drafter)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attention_bias": True}, "its attention has biases"),
        (
            {"layer_types": ("sliding_attention", "full_attention"), "sliding_window": 8},
            "has one flag for all layers",
        ),
        (
            {
                "layer_types": ("sliding_attention",) * 2,
                "sliding_window": 4,
                "is_causal": False,
            },
            "its window of 4 also limits what a row sees ahead in the block of 5",
        ),
        ({"output_multiplier": -1.0}, "output_multiplier -1.0 changes which token is best"),
        ({"input_embedding_scale": 0.0}, "input_embedding_scale of 0"),
        ({"vocab_size": 41}, "target has 41 tokens, the tokenizer given has 40"),
    ],
)
def test_refusals(
    tmp_path: Path,
    config: DrafterConfig,
    tokenizer: TargetTokenizer,
    make_drafter: MakeDrafter,
    change: dict[str, object],
    message: str,
) -> None:
    changed: DrafterConfig = replace(config, **change)  # pyright: ignore[reportArgumentType]: table
    with pytest.raises((ConfigError, CheckpointError), match=message):
        opened(make_drafter(changed), tokenizer, tmp_path / "d.gguf")
    assert list(tmp_path.iterdir()) == []


def test_a_target_of_another_width_is_refused(
    tmp_path: Path, config: DrafterConfig, tokenizer: TargetTokenizer, make_drafter: MakeDrafter
) -> None:
    rows = TargetRows(embedding=torch.zeros(40, 24), head=torch.zeros(40, 24))
    with pytest.raises(CheckpointError, match=r"is \[40, 24\], the drafter's is \[40, 16\]"):
        opened(make_drafter(config), tokenizer, tmp_path / "d.gguf", rows)


@pytest.mark.parametrize("dtype", GGUF_TYPES)
def test_the_same_drafter_gives_the_same_bytes(
    tmp_path: Path,
    config: DrafterConfig,
    tokenizer: TargetTokenizer,
    make_drafter: MakeDrafter,
    dtype: GgufType,
) -> None:
    drafter = make_drafter(config)
    for name in ("a.gguf", "b.gguf"):
        write_drafter(drafter, tokenizer, tmp_path / name, dtype=dtype, provenance={"b": 1, "a": 2})
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()
