"""Files that other programs wrote: what is read without our record, what is refused."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from blockdraft.checkpoint import DrafterCheckpoint
from blockdraft.drafter import DrafterConfig
from blockdraft.drafter.config import RopeConfig
from blockdraft.errors import CheckpointError
from blockdraft.interop.gguf import TargetTokenizer, read_drafter, write_drafter
from blockdraft.interop.gguf.dtypes import Quantization, decode
from blockdraft.interop.gguf.file import (
    Kind,
    Metadata,
    TensorEntry,
    Value,
    f32,
    flag,
    read_file,
    text,
    u32,
    write_file,
)
from blockdraft.interop.gguf.metadata import CONFIG_KEY
from blockdraft.interop.target_facts import TargetRows

MakeDrafter = Callable[..., DrafterCheckpoint]
Changes = Mapping[str, Value | None]
Rewrite = Callable[..., Path]

OUR_KEYS = ("blockdraft.",)


@pytest.fixture
def rewrite(
    tmp_path: Path,
    config: DrafterConfig,
    tokenizer: TargetTokenizer,
    rows: TargetRows,
    make_drafter: MakeDrafter,
) -> Rewrite:
    """Writes a drafter, then the file again with keys changed (None = left out)."""

    def run(
        changes: Changes | None = None,
        *,
        drafter: DrafterCheckpoint | None = None,
        architecture: str = "dflash",
        keep_ours: bool = False,
        without: str | None = None,
        extra: str | None = None,
    ) -> Path:
        first, second = tmp_path / "first.gguf", tmp_path / "second.gguf"
        drafter = drafter or make_drafter(config)
        write_drafter(drafter, tokenizer, first, dtype="f32", provenance={}, rows=rows)
        file = read_file(first)
        metadata: Metadata = {
            key: value
            for key, value in file.metadata.items()
            if key != "general.architecture" and (keep_ours or not key.startswith(OUR_KEYS))
        }
        for key, value in (changes or {}).items():
            metadata.pop(key, None)
            if value is not None:
                metadata[key] = value
        entries: list[TensorEntry] = []
        for name, entry in file.tensors.items():
            if name == "d2t":
                data = torch.frombuffer(bytearray(entry.data.tobytes()), dtype=torch.int64)
            else:
                decoded = decode(entry.data, entry.stored, entry.shape)
                assert decoded is not None
                data = decoded
            if name != without:
                entries.append(stored(name, data, entry.stored))
        if extra is not None:
            entries.append(stored(extra, torch.zeros(4), Quantization.F32))
        write_file(second, architecture, metadata, entries)
        return second

    return run


def stored(name: str, data: torch.Tensor, kind: Quantization) -> TensorEntry:
    return TensorEntry(name=name, shape=tuple(data.shape), stored=kind, load=lambda: data)


def test_keys_alone_describe_the_drafter(
    rewrite: Rewrite, config: DrafterConfig, make_drafter: MakeDrafter
) -> None:
    drafter = make_drafter(config)
    found = read_drafter(rewrite(drafter=drafter))
    assert found.config == replace(config, num_target_layers=None)
    assert found.recorded_tau is None
    assert all(torch.equal(found.state[name], drafter.state[name]) for name in drafter.state)


@pytest.mark.parametrize(
    "change",
    [
        {"rope": RopeConfig(rope_type="linear", theta=5e5, factor=4.0)},
        {"rope": RopeConfig(rope_type="yarn", factor=4.0, original_max_position_embeddings=64)},
        {"rms_norm_eps": 1e-5, "input_embedding_scale": 0.5, "final_logit_softcapping": 30.0},
        {"layer_types": ("sliding_attention",) * 2, "sliding_window": 7, "is_causal": True},
        {
            "layer_types": ("sliding_attention", "full_attention"),
            "sliding_window": 7,
            "is_causal": False,
        },
        {"is_causal": True, "output_multiplier": 0.25},
    ],
)
def test_settings_are_read_from_keys_alone(
    rewrite: Rewrite, config: DrafterConfig, make_drafter: MakeDrafter, change: dict[str, object]
) -> None:
    config = replace(config, **change)  # pyright: ignore[reportArgumentType]: a table of changes
    found = read_drafter(rewrite(drafter=make_drafter(config)))
    assert found.config == replace(config, num_target_layers=None)


def test_a_foreign_head_is_the_drafters_own(
    rewrite: Rewrite, config: DrafterConfig, rows: TargetRows, make_drafter: MakeDrafter
) -> None:
    drafter = make_drafter(replace(config, draft_vocab_size=7))
    found = read_drafter(rewrite(drafter=drafter))
    assert found.config.draft_vocab_size == 7
    assert found.d2t is not None and drafter.d2t is not None
    assert torch.equal(found.d2t, drafter.d2t)
    assert found.lm_head is not None
    assert torch.equal(found.lm_head, rows.head[drafter.d2t + torch.arange(7)])


def test_a_foreign_embedding_gives_the_mask_row(
    rewrite: Rewrite, config: DrafterConfig, make_drafter: MakeDrafter
) -> None:
    drafter, told = make_drafter(config, own_mask=True), list[str]()
    found = read_drafter(rewrite(drafter=drafter), report=told.append)
    assert found.mask_embedding is not None and drafter.mask_embedding is not None
    assert torch.equal(found.mask_embedding, drafter.mask_embedding)
    assert "only the mask token's row is kept" in told[0]


def test_a_table_of_frequencies_needs_our_record(
    rewrite: Rewrite, config: DrafterConfig, make_drafter: MakeDrafter
) -> None:
    rope = RopeConfig(rope_type="llama3", factor=8.0, original_max_position_embeddings=64)
    path = rewrite(drafter=make_drafter(replace(config, rope=rope)))
    with pytest.raises(CheckpointError, match="does not say how it was made"):
        read_drafter(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dflash.conv_kernel_size": u32(4)}, r"key dflash\.conv_kernel_size \(DFlash 2\)"),
        ({"dflash.sample_from_anchor": flag(True)}, r"sample_from_anchor \(DSpark\)"),
        ({"dflash.attention.value_scale": f32(0.7)}, r"attention\.value_scale \(a model of"),
        ({"dflash.hidden_activation": text("gelu")}, "activation gelu"),
        ({"dflash.rope.scaling.type": text("longrope")}, "rope scaling 'longrope'"),
        ({"dflash.rope.dimension_count": u32(4)}, "a partly rotated head"),
        ({"dflash.attention.value_length": u32(4)}, "value heads of another size"),
        ({"dflash.rope.scaling.yarn_beta_fast": f32(8)}, r"unknown key dflash\.rope\.scaling\.y"),
        ({"dflash.target_layers": None}, r"the list dflash\.target_layers is missing"),
        ({"dflash.target_layers": Value(Kind.INT32, (0, 2))}, "zero-based layer numbers"),
        ({"dflash.block_count": None}, r"key dflash\.block_count is missing"),
        ({"dflash.block_count": text("2")}, r"key dflash\.block_count is '2', expected a whole"),
        ({"tokenizer.ggml.mask_token_id": None}, "mask_token_id is missing"),
        ({"dflash.rope.freq_base": text("x")}, r"freq_base is 'x', expected a number"),
    ],
)
def test_what_is_refused(rewrite: Rewrite, changes: Changes, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_drafter(rewrite(changes))


@pytest.mark.parametrize(
    ("architecture", "message"),
    [
        ("dflash-draft", "of the forks that had DFlash before"),
        ("eagle3", "an EAGLE-3 drafter"),
        ("llama", "that is no DFlash drafter"),
    ],
)
def test_other_architectures(rewrite: Rewrite, architecture: str, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_drafter(rewrite(architecture=architecture))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"without": "fc.weight"}, r"no tensor fc\.weight"),
        ({"without": "blk.1.attn_q.weight"}, r"layers\.1\.self_attn\.q_proj\.weight .* is missing"),
        ({"extra": "markov_w1.weight"}, r"tensor markov_w1\.weight \(DSpark or DFlash 2\)"),
        ({"extra": "blk.0.attn_q.bias"}, r"an unexpected tensor blk\.0\.attn_q\.bias"),
        ({"extra": "token_embd.weight"}, r"token_embd\.weight has shape \[4\]"),
    ],
)
def test_wrong_tensors(rewrite: Rewrite, options: dict[str, str], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_drafter(rewrite(**options))


def test_an_edited_file_contradicts_our_record(rewrite: Rewrite) -> None:
    changes = {"dflash.block_size": u32(4)}
    with pytest.raises(CheckpointError, match=r"key dflash\.block_size is 4, but .* asks for 5"):
        read_drafter(rewrite(changes, keep_ours=True))


def test_a_damaged_record_is_named(rewrite: Rewrite) -> None:
    with pytest.raises(CheckpointError, match=f"{CONFIG_KEY} is no JSON"):
        read_drafter(rewrite({CONFIG_KEY: text("{")}, keep_ours=True))
