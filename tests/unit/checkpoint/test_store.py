"""Loading and saving: round trip, shards, and every kind of damage."""

import json
import os
import pickle
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import huggingface_hub
import pytest
import torch
from safetensors.torch import (
    load_file,  # pyright: ignore[reportUnknownVariableType]: bare PathLike
    save_file,  # pyright: ignore[reportUnknownVariableType]: bare PathLike
)
from torch import Tensor

from blockdraft.checkpoint import (
    DrafterCheckpoint,
    load_checkpoint,
    load_drafter_model,
    save_checkpoint,
)
from blockdraft.drafter import DrafterConfig
from blockdraft.errors import CheckpointError

MakeCheckpoint = Callable[[DrafterConfig], DrafterCheckpoint]
Damage = Callable[[Path], object]


def _edit_config(folder: Path, **changes: object) -> None:
    file = folder / "config.json"
    raw = cast("dict[str, object]", json.loads(file.read_text()))
    file.write_text(json.dumps(raw | changes))


def _edit_tensors(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)


def _shard(folder: Path, renamed: str | None = None) -> None:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    weight_map: dict[str, str] = {}
    for number, part in enumerate((names[:5], names[5:])):
        shard = f"model-0000{number + 1}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / shard)
        weight_map |= dict.fromkeys(part, shard)
    if renamed is not None:
        weight_map[names[0]] = renamed
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def _edit_index(folder: Path, change: Callable[[dict[str, str]], object]) -> None:
    _shard(folder)
    file = folder / "model.safetensors.index.json"
    index = cast("dict[str, dict[str, str]]", json.loads(file.read_text()))
    change(index["weight_map"])
    file.write_text(json.dumps(index))


def _truncate(file: Path, size: int) -> None:
    with file.open("r+b") as opened:
        opened.truncate(size)


def _same(left: DrafterCheckpoint, right: DrafterCheckpoint) -> bool:
    optional = (
        (left.d2t, right.d2t),
        (left.lm_head, right.lm_head),
        (left.mask_embedding, right.mask_embedding),
    )
    return (
        left.config == right.config
        and left.state.keys() == right.state.keys()
        and all(torch.equal(left.state[name], right.state[name]) for name in left.state)
        and all(
            (a is None and b is None) or (a is not None and b is not None and torch.equal(a, b))
            for a, b in optional
        )
    )


def test_saved_equals_loaded(
    tmp_path: Path, config: DrafterConfig, make_checkpoint: MakeCheckpoint
) -> None:
    checkpoint = make_checkpoint(config)
    save_checkpoint(tmp_path / "out", checkpoint)
    loaded = load_checkpoint(tmp_path / "out")
    assert _same(loaded, checkpoint)
    assert loaded.source == str(tmp_path / "out")
    assert sorted(os.listdir(tmp_path)) == ["out"]
    assert sorted(os.listdir(tmp_path / "out")) == ["config.json", "model.safetensors"]


def test_all_optional_parts_survive(
    tmp_path: Path, config: DrafterConfig, make_checkpoint: MakeCheckpoint
) -> None:
    """L05: a reduced vocabulary and a head of its own are saved and loaded."""
    plain = make_checkpoint(replace(config, draft_vocab_size=4, attention_bias=True))
    checkpoint = DrafterCheckpoint(
        config=plain.config,
        state={name: tensor.bfloat16() for name, tensor in plain.state.items()},
        source="memory",
        d2t=torch.tensor([0, 1, 1, 20]),
        lm_head=torch.randn(4, 16).bfloat16(),
        mask_embedding=torch.randn(16).bfloat16(),
    )
    save_checkpoint(tmp_path / "out", checkpoint)
    loaded = load_checkpoint(tmp_path / "out")
    assert _same(loaded, checkpoint) and loaded.dtype == torch.bfloat16
    wide = load_checkpoint(tmp_path / "out", dtype=torch.float32)
    assert wide.dtype == torch.float32 and wide.d2t is not None and wide.d2t.dtype == torch.int64
    assert wide.lm_head is not None and wide.lm_head.dtype == torch.float32
    assert wide.mask_embedding is not None and wide.mask_embedding.dtype == torch.float32


def test_saving_refuses_a_folder_in_use(
    tmp_path: Path, config: DrafterConfig, make_checkpoint: MakeCheckpoint
) -> None:
    (tmp_path / "kept.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="exists already"):
        save_checkpoint(tmp_path, make_checkpoint(config))
    (tmp_path / "empty").mkdir()
    save_checkpoint(tmp_path / "empty", make_checkpoint(config))
    assert load_checkpoint(tmp_path / "empty").config == config


def test_saving_is_all_or_nothing(
    tmp_path: Path, config: DrafterConfig, make_checkpoint: MakeCheckpoint
) -> None:
    checkpoint = make_checkpoint(config)
    incomplete = {k: v for k, v in checkpoint.state.items() if k != "norm.weight"}
    with pytest.raises(CheckpointError, match=r"norm\.weight .* is missing"):
        save_checkpoint(tmp_path / "out", replace(checkpoint, state=incomplete))
    unsaved = replace(checkpoint, state=dict(checkpoint.state) | {"norm.weight": _Unsavable()})
    with pytest.raises(ZeroDivisionError):
        save_checkpoint(tmp_path / "out", unsaved)
    assert os.listdir(tmp_path) == []


class _Unsavable(Tensor):
    """Fails in the middle of writing."""

    @property
    def shape(self) -> torch.Size:  # pyright: ignore[reportIncompatibleVariableOverride]: on purpose
        return torch.Size([16])

    def detach(self) -> Tensor:
        raise ZeroDivisionError


def test_a_written_checkpoint_is_the_recorded_one(golden_folder: Path, tmp_path: Path) -> None:
    checkpoint = load_checkpoint(golden_folder)
    save_checkpoint(tmp_path / "copy", checkpoint)
    assert _same(load_checkpoint(tmp_path / "copy"), checkpoint)


def test_shards_equal_one_file(golden_folder: Path) -> None:
    whole = load_checkpoint(golden_folder)
    _shard(golden_folder)
    assert _same(load_checkpoint(golden_folder), whole)


def test_taps_replace_those_of_the_file(golden_folder: Path) -> None:
    assert load_checkpoint(golden_folder, taps=[0, 2, 4]).config.taps == (0, 2, 4)
    with pytest.raises(CheckpointError, match=r"^--taps 0,2 names 2 layers, .* name exactly 3$"):
        load_checkpoint(golden_folder, taps=[0, 2])
    _edit_tensors(golden_folder, lambda t: t.update({"fc.weight": torch.ones(64, 100)}))
    with pytest.raises(CheckpointError, match=r"fc\.weight .* expected \[64, 128\] \(2 taps"):
        load_checkpoint(golden_folder, taps=[0, 2])


_DAMAGES: dict[str, tuple[Damage, str]] = {
    "no config": (lambda f: (f / "config.json").unlink(), "there is no config.json"),
    "bad json": (lambda f: _truncate(f / "config.json", 50), "config.json is no readable JSON"),
    "binary json": (
        lambda f: (f / "config.json").write_bytes(b"\xff\xfe\x00"),
        "config.json is no readable JSON",
    ),
    "deep json": (
        lambda f: (f / "config.json").write_text("[" * 100_000),
        "config.json is no readable JSON",
    ),
    "json list": (
        lambda f: (f / "config.json").write_text("[]"),
        "should hold a JSON object, not list",
    ),
    "unknown key": (lambda f: _edit_config(f, twist=3), "unknown key 'twist' = 3"),
    "missing taps": (
        lambda f: _edit_config(f, dflash_config={"mask_token_id": 7}),
        "'target_layer_ids' is missing",
    ),
    "tap out of range": (
        lambda f: _edit_config(f, target_layer_ids=[1, 3, 9], dflash_config={"mask_token_id": 7}),
        "taps is (1, 3, 9), expected below 7",
    ),
    "last-layer tap": (
        lambda f: _edit_config(f, target_layer_ids=[1, 3, 7], dflash_config={"mask_token_id": 7}),
        "the last layer of a 8-layer target",
    ),
    "wrong vocabulary": (lambda f: _edit_config(f, vocab_size=5), "mask_token_id is 7, expected"),
    "a target": (
        lambda f: _edit_config(f, architectures=["Qwen3ForCausalLM"]),
        "looks like a target model (architectures: Qwen3ForCausalLM)",
    ),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "neither model.safetensors nor"),
    "empty file": (lambda f: _truncate(f / "model.safetensors", 0), "truncated or damaged"),
    "truncated header": (lambda f: _truncate(f / "model.safetensors", 100), "truncated or damaged"),
    "truncated data": (lambda f: _truncate(f / "model.safetensors", 300_000), "truncated or dam"),
    "not safetensors": (
        lambda f: (f / "model.safetensors").write_bytes(b"PK" + b"\0" * 400),
        "truncated or damaged",
    ),
    "missing tensor": (
        lambda f: _edit_tensors(f, lambda t: t.pop("layers.1.self_attn.q_norm.weight")),
        "tensor layers.1.self_attn.q_norm.weight [32] is missing",
    ),
    "unexpected tensor": (
        lambda f: _edit_tensors(f, lambda t: t.update({"layers.0.extra": torch.ones(2)})),
        "has an unexpected tensor layers.0.extra [2]; every tensor must be used",
    ),
    "own embedding": (
        lambda f: _edit_tensors(
            f, lambda t: t.update({"embed_tokens.weight": torch.ones(320, 64)})
        ),
        "a drafter uses its target's embedding",
    ),
    "d2t without vocabulary": (
        lambda f: _edit_tensors(f, lambda t: t.update({"d2t": torch.zeros(9).long()})),
        "config.json needs 'draft_vocab_size'",
    ),
    "wrong shape": (
        lambda f: _edit_tensors(f, lambda t: t.update({"norm.weight": torch.ones(63)})),
        "tensor norm.weight in model.safetensors has shape [63], expected [64]",
    ),
    "head of another vocabulary": (
        lambda f: _edit_tensors(f, lambda t: t.update({"lm_head.weight": torch.ones(300, 64)})),
        "tensor lm_head.weight in model.safetensors has shape [300, 64], expected [320, 64]",
    ),
    "not finite": (
        lambda f: _edit_tensors(f, lambda t: t["norm.weight"].fill_(torch.nan)),
        "tensor norm.weight has values that are not finite in float32",
    ),
    "integer weights": (
        lambda f: _edit_tensors(f, lambda t: t.update({"norm.weight": torch.ones(64).char()})),
        "tensor norm.weight is stored as int8",
    ),
    "fp8 weights": (
        lambda f: _edit_tensors(
            f, lambda t: t.update({"norm.weight": torch.ones(64).to(torch.float8_e4m3fn)})
        ),
        "stored as float8_e4m3fn, expected float16",
    ),
    "d2t missing": (lambda f: _edit_config(f, draft_vocab_size=9), "tensor d2t [9] is missing"),
    "path traversal": (lambda f: _shard(f, "../../secret.safetensors"), "names a shard '../../"),
    "absolute shard": (lambda f: _shard(f, "/etc/x.safetensors"), "names a shard '/etc/"),
    "shard of another kind": (lambda f: _shard(f, "x.bin"), "names a shard 'x.bin'"),
    "missing shard": (lambda f: _shard(f, "gone.safetensors"), "shard gone.safetensors of"),
    "index lacks a tensor": (
        lambda f: _edit_index(f, lambda m: m.pop("norm.weight")),
        "has tensor norm.weight in no shard, but it is in model-00002-of-00002.safetensors",
    ),
    "shards lack a tensor": (
        lambda f: _edit_index(f, lambda m: m.update({"more": m["norm.weight"]})),
        "has tensor more in model-00002-of-00002.safetensors, but it is in no shard",
    ),
    "index has another shard": (
        lambda f: _edit_index(f, lambda m: m.update({"norm.weight": m["fc.weight"]})),
        "has tensor norm.weight in model-00001-of-00002.safetensors, but it is in model-00002",
    ),
}


@pytest.mark.parametrize(("damage", "said"), _DAMAGES.values(), ids=_DAMAGES.keys())
def test_damaged_checkpoints_are_refused_in_one_line(
    golden_folder: Path, damage: Damage, said: str
) -> None:
    """L03, L04, R05 and the rest of what a broken download or a wrong folder can look like."""
    damage(golden_folder)
    with pytest.raises(CheckpointError) as raised:
        load_checkpoint(golden_folder)
    message = str(raised.value)
    assert said in message and str(golden_folder) in message
    assert "\n" not in message and len(message) < 600


@pytest.mark.parametrize("content", [{}, {"weight_map": []}, {"weight_map": {}}])
def test_an_index_without_a_map_is_refused(golden_folder: Path, content: object) -> None:
    (golden_folder / "model.safetensors").unlink()
    (golden_folder / "model.safetensors.index.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="has no object 'weight_map'"):
        load_checkpoint(golden_folder)


def test_a_tensor_in_two_shards_is_refused(golden_folder: Path) -> None:
    _shard(golden_folder)
    first = golden_folder / "model-00001-of-00002.safetensors"
    second = golden_folder / "model-00002-of-00002.safetensors"
    save_file(load_file(second) | load_file(first), second)
    with pytest.raises(CheckpointError, match=r"tensor .* is in .* and in .*; fetch"):
        load_checkpoint(golden_folder)


@pytest.mark.parametrize(
    ("d2t", "said"),
    [
        ([0, 318, 0], r"d2t maps to ids 0\.\.319, "),
        ([0, 0, 400], r"d2t maps to ids 0\.\.402, expected 0\.\.319"),
        ([-1, 0, 0], r"d2t maps to ids -1\.\.2"),
        ([1, 0, 0], "two draft ids to one target id"),
    ],
)
def test_bad_draft_vocabularies_are_refused(golden_folder: Path, d2t: list[int], said: str) -> None:
    """L05: entries are offsets, not ids."""
    _edit_config(golden_folder, draft_vocab_size=3)
    _edit_tensors(golden_folder, lambda t: t.update({"d2t": torch.tensor(d2t)}))
    if max(d2t) == 318:
        assert load_checkpoint(golden_folder).d2t is not None
        return
    with pytest.raises(CheckpointError, match=said):
        load_checkpoint(golden_folder)


def test_d2t_and_t2d_must_agree(golden_folder: Path) -> None:
    _edit_config(golden_folder, draft_vocab_size=2)
    t2d = torch.zeros(320, dtype=torch.bool)
    t2d[[5, 9]] = True
    d2t = torch.tensor([5, 8])
    _edit_tensors(golden_folder, lambda t: t.update({"d2t": d2t, "t2d": t2d}))
    assert torch.equal(cast("Tensor", load_checkpoint(golden_folder).d2t), d2t)
    t2d[6] = True
    _edit_tensors(golden_folder, lambda t: t.update({"t2d": t2d}))
    with pytest.raises(CheckpointError, match="t2d and d2t name different"):
        load_checkpoint(golden_folder)
    _edit_tensors(golden_folder, lambda t: t.update({"d2t": d2t.float()}))
    with pytest.raises(CheckpointError, match="d2t is stored as float32"):
        load_checkpoint(golden_folder)


@pytest.mark.parametrize("stored", [torch.int64, torch.int8, torch.bool, torch.float8_e4m3fn])
def test_a_cast_does_not_hide_weights_that_are_no_floats(
    golden_folder: Path, stored: torch.dtype
) -> None:
    _edit_tensors(golden_folder, lambda t: t.update({"norm.weight": torch.ones(64).to(stored)}))
    with pytest.raises(CheckpointError, match=r"norm\.weight is stored as .*, expected float16"):
        load_checkpoint(golden_folder, dtype=torch.float32)


def test_a_dtype_that_the_weights_overflow_is_refused(golden_folder: Path) -> None:
    """L10: cast to fp16 a weight becomes infinite; better said at load than as 0 % acceptance."""
    _edit_tensors(golden_folder, lambda t: t["fc.weight"].fill_(1e6))
    assert load_checkpoint(golden_folder, dtype=torch.bfloat16).dtype == torch.bfloat16
    with pytest.raises(CheckpointError, match=r"fc\.weight .* not finite in float16"):
        load_checkpoint(golden_folder, dtype=torch.float16)


class _Bomb:
    """A pickle that leaves a file behind when it is loaded."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return os.mkdir, (str(self.canary),)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "drafter.pth"])
def test_pickled_weights_are_never_opened(golden_folder: Path, tmp_path: Path, name: str) -> None:
    """R05: neither instead of safetensors nor beside them."""
    canary = tmp_path / "canary"
    (golden_folder / name).write_bytes(pickle.dumps(_Bomb(canary)))
    load_checkpoint(golden_folder)
    (golden_folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=re.escape(f"weights are pickled ({name})")):
        load_checkpoint(golden_folder)
    assert not canary.exists()


@pytest.mark.parametrize("zipped", [True, False])
def test_a_mask_embedding_that_runs_code_is_refused(
    golden_folder: Path, tmp_path: Path, zipped: bool
) -> None:
    """R05: the one .pt file of the format is read without running anything."""
    canary = tmp_path / "canary"
    file = golden_folder / "mask_embedding.pt"
    torch.save(_Bomb(canary), file, _use_new_zipfile_serialization=zipped)
    with pytest.raises(CheckpointError, match="holds more than tensors") as raised:
        load_checkpoint(golden_folder)
    assert "\n" not in str(raised.value)
    assert not canary.exists()


@pytest.mark.parametrize("kind", ["vector", "row", "state dict", "named"])
def test_mask_embedding_is_read(golden_folder: Path, kind: str) -> None:
    row = torch.randn(64)
    kinds: dict[str, object] = {
        "vector": row,
        "row": row[None],
        "state dict": {"weight": row},
        "named": {"mask_embedding": row},
    }
    torch.save(kinds[kind], golden_folder / "mask_embedding.pt")
    loaded = load_checkpoint(golden_folder).mask_embedding
    assert loaded is not None and torch.equal(loaded, row)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (torch.ones(63), r"holds \[63\], expected one tensor \[64\]"),
        (torch.ones(8, 8), r"holds \[8, 8\], expected one tensor \[64\]"),
        ({"a": torch.ones(64)}, r"holds a dict with the keys 'a', expected .* mask_embedding or w"),
        ({"weight": torch.ones(64), "b": torch.ones(64)}, "holds a dict with the keys 'weight, b'"),
        ({"weight": {"weight": torch.ones(64)}}, "holds a dict with the keys 'weight'"),
        ("text", "holds a str"),
        (torch.ones(64, device="meta"), "holds a Tensor without plain values"),
        (torch.ones(64).to_sparse(), "holds a Tensor without plain values"),
        (torch.ones(64).long(), r"mask_embedding\.pt is stored as int64"),
        (torch.full((64,), torch.inf), r"mask_embedding\.pt has values that are not finite"),
    ],
)
def test_a_bad_mask_embedding_is_refused(golden_folder: Path, content: object, said: str) -> None:
    torch.save(content, golden_folder / "mask_embedding.pt")
    with pytest.raises(CheckpointError, match=said):
        load_checkpoint(golden_folder)


def test_a_truncated_mask_embedding_is_refused(golden_folder: Path) -> None:
    torch.save(torch.ones(64), golden_folder / "mask_embedding.pt")
    _truncate(golden_folder / "mask_embedding.pt", 200)
    with pytest.raises(CheckpointError, match=r"mask_embedding\.pt is damaged"):
        load_checkpoint(golden_folder)


@pytest.mark.parametrize(
    "content",
    [b"abc", b"", b"\x80", b"PK\x03\x04", b"\x00" * 64]
    + [pickle.dumps({"weight": [1.0]}, protocol=protocol) for protocol in range(6)],
)
def test_a_mask_embedding_of_other_bytes_is_one_line(
    golden_folder: Path, content: bytes, recwarn: pytest.WarningsRecorder
) -> None:
    (golden_folder / "mask_embedding.pt").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"mask_embedding\.pt is damaged") as raised:
        load_checkpoint(golden_folder)
    assert "\n" not in str(raised.value)
    assert len(recwarn) == 0


def test_code_beside_the_weights_is_never_imported(golden_folder: Path, tmp_path: Path) -> None:
    """R05: `auto_map` names a module that would leave a canary behind."""
    canary = tmp_path / "canary"
    code = f"import os\nos.mkdir({str(canary)!r})\nclass DFlashDraftModel: ...\n"
    (golden_folder / "dflash.py").write_text(code)
    _edit_config(golden_folder, auto_map={"AutoModel": "dflash.DFlashDraftModel"})
    load_drafter_model(load_checkpoint(golden_folder))
    assert not canary.exists()
    assert "dflash" not in sys.modules


def test_a_hub_checkpoint_is_loaded_from_its_snapshot(
    golden_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = tmp_path / ("a" * 40)
    shutil.move(golden_folder, snapshot)

    def fetch(name: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        assert (name, revision) == ("owner/drafter", "main")
        assert not any(pattern.endswith((".bin", ".py", "*")) for pattern in allow_patterns)
        return str(snapshot)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    loaded = load_checkpoint("owner/drafter", revision="main")
    assert loaded.source == f"owner/drafter@{'a' * 40}"


@pytest.mark.parametrize("names", [("drafter.gguf", "target.gguf"), ("any.gguf",)])
def test_gguf_files_are_refused_with_the_command_that_reads_them(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    for name in names:
        (tmp_path / name).write_bytes(b"GGUF")
    command = (
        f"blockdraft export --format hf --target TARGET --drafter {tmp_path / names[0]} --out "
        "NEW_FOLDER --keep-draft-vocabulary"
    )
    for where in (tmp_path, tmp_path / names[0]):
        with pytest.raises(CheckpointError) as refused:
            load_checkpoint(where)
        assert command in str(refused.value)
