"""What is read from disk of a pair: layouts, block sizes, the other of the two."""

import json
from pathlib import Path

import pytest
import torch
from gguf import GGUFWriter
from safetensors.torch import (
    save_file,  # pyright: ignore[reportUnknownVariableType]: bare PathLike
)

from blockdraft.builtin import builtin_drafter_path
from blockdraft.errors import CheckpointError
from blockdraft.launch.headers import read_gguf_header, tensor_names
from blockdraft.launch.pair import read_drafter, read_pair, read_target

HF_DRAFTER = {
    "architectures": ["DFlashDraftModel"],
    "dflash_config": {"block_size": 12, "mask_token_id": 1},
    "block_size": 16,
    "num_attention_heads": 4,
    "max_position_embeddings": 99,
    "vocab_size": 50,
}
SPECULATORS = {
    "architectures": ["DFlashDraftModel"],
    "speculators_model_type": "dflash",
    "block_size": 8,
    "draft_vocab_size": 10,
    "transformer_layer_config": {
        "num_attention_heads": 6,
        "max_position_embeddings": 77,
        "vocab_size": 50,
    },
}


def folder(path: Path, config: object, *files: str) -> str:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for name in files:
        (path / name).touch()
    return str(path)


def gguf(path: Path, arch: str, block_size: int | None = None) -> str:
    writer = GGUFWriter(str(path), arch)
    writer.add_token_list(["a", "bc", "\u00e9"])
    writer.add_array("dflash.target_layers", [2, 3])
    writer.add_bool("dflash.attention.causal", False)
    writer.add_float32("dflash.eps", 0.5)
    if block_size is not None:
        writer.add_uint32("dflash.block_size", block_size)
    writer.add_uint32("dflash.attention.head_count", 2)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


def test_hf(tmp_path: Path) -> None:
    target = folder(tmp_path / "t", {"model_type": "llama", "num_attention_heads": 8})
    pair = read_pair(target, folder(tmp_path / "d", HF_DRAFTER))
    assert (pair.target.layout, pair.target.num_heads, pair.target.where) == ("hf", 8, target)
    drafter = pair.drafter
    assert (drafter.layout, drafter.block_size, drafter.num_heads) == ("hf", 12, 4)
    assert drafter.max_positions == 99 and not drafter.has_reduced_vocabulary


def test_speculators(tmp_path: Path) -> None:
    drafter = read_drafter(folder(tmp_path / "d", SPECULATORS))
    assert (drafter.layout, drafter.block_size, drafter.num_heads) == ("speculators", 8, 6)
    assert drafter.max_positions == 77 and drafter.has_reduced_vocabulary


def test_gguf_by_file_and_by_the_folder_of_export(tmp_path: Path) -> None:
    gguf(tmp_path / "target.gguf", "llama")
    gguf(tmp_path / "drafter.gguf", "dflash", block_size=8)
    pair = read_pair(str(tmp_path), str(tmp_path))
    assert pair == read_pair(str(tmp_path / "target.gguf"), str(tmp_path / "drafter.gguf"))
    assert pair.target.where == str(tmp_path / "target.gguf") and pair.target.layout == "gguf"
    drafter = pair.drafter
    assert (drafter.layout, drafter.block_size, drafter.num_heads) == ("gguf", 8, 2)
    without = read_drafter(gguf(tmp_path / "old.gguf", "dflash"))
    assert without.block_size == 16, "what llama.cpp takes"


def test_the_header_is_what_was_written(tmp_path: Path) -> None:
    assert read_gguf_header(Path(gguf(tmp_path / "a.gguf", "dflash", 4))) == {
        "general.architecture": "dflash",
        "dflash.attention.causal": False,
        "dflash.eps": 0.5,
        "dflash.block_size": 4,
        "dflash.attention.head_count": 2,
    }


def test_a_cut_header_is_one_error(tmp_path: Path) -> None:
    whole = Path(gguf(tmp_path / "a.gguf", "dflash", 4)).read_bytes()
    cut = tmp_path / "cut.gguf"
    for length in range(0, 150, 7):
        cut.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match="is no readable GGUF file"):
            read_gguf_header(cut)


def test_a_header_nested_too_deep_is_one_error(tmp_path: Path) -> None:
    text = b"[" * 100_000
    (tmp_path / "a.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    with pytest.raises(CheckpointError, match="is no readable safetensors file"):
        tensor_names(tmp_path / "a.safetensors")


def test_a_tied_matrix_under_the_name_of_the_head_alone(tmp_path: Path) -> None:
    """vLLM would compute with an empty embedding: uniform logits, every draft accepted."""
    where = folder(tmp_path / "t", {"model_type": "llama", "tie_word_embeddings": True})
    for names, alone in (
        (("lm_head.weight", "model.norm.weight"), True),
        (("lm_head.weight", "model.embed_tokens.weight"), False),
        (("model.embed_tokens.weight",), False),
        (("transformer.wte.weight", "lm_head.weight"), False),
    ):
        weights = tmp_path / "t" / "model.safetensors"
        save_file({name: torch.zeros(1) for name in names}, weights, metadata={"format": "pt"})
        assert set(tensor_names(weights)) == set(names)
        assert read_target(where).has_only_head is alone
    weights.write_bytes(b"\x05\0\0\0\0\0\0\0{")
    with pytest.raises(CheckpointError, match="is no readable safetensors file"):
        read_target(where)


def test_openvino(tmp_path: Path) -> None:
    target = folder(tmp_path / "t", {"model_type": "llama"}, "openvino_model.xml")
    drafter = folder(tmp_path / "d", HF_DRAFTER, "openvino_model.xml")
    pair = read_pair(target, drafter)
    assert (pair.target.layout, pair.drafter.layout) == ("openvino", "openvino")


def test_hub_ids_are_left_to_the_engine() -> None:
    pair = read_pair("owner/target", "owner/drafter")
    assert (pair.target.layout, pair.drafter.layout) == ("remote", "remote")
    assert pair.drafter.block_size is None and pair.target.where == "owner/target"


def test_the_built_in_drafter() -> None:
    drafter = read_drafter("smollm2")
    assert drafter.where == str(builtin_drafter_path("smollm2"))
    assert drafter.block_size == 8 and drafter.has_reduced_vocabulary


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    """L16 among them: a drafter given as the target, and the reverse."""
    target = folder(tmp_path / "t", {"model_type": "qwen3"})
    drafter = folder(tmp_path / "d", HF_DRAFTER)
    other = folder(tmp_path / "o", {**SPECULATORS, "speculators_model_type": "eagle3"})
    no_block = folder(tmp_path / "n", {"architectures": ["DFlashDraftModel"]})
    broken = Path(folder(tmp_path / "b", {}))
    (broken / "config.json").write_text("{", encoding="utf-8")
    listed = folder(tmp_path / "l", [])
    empty = tmp_path / "e"
    empty.mkdir()
    target_gguf = gguf(tmp_path / "x.gguf", "qwen3")
    drafter_gguf = gguf(tmp_path / "y.gguf", "dflash")
    mistakes = [
        (read_target, drafter, "is a DFlash drafter, not a target"),
        (read_target, drafter_gguf, "is a drafter, not a target"),
        (read_drafter, target, "is no DFlash drafter"),
        (read_drafter, target_gguf, "of architecture qwen3, not a DFlash drafter"),
        (read_drafter, other, "is no DFlash drafter"),
        (read_drafter, no_block, "has no block_size"),
        (read_target, str(broken), "is no valid JSON"),
        (read_target, listed, "should hold a JSON object, not list"),
        (read_target, str(empty), "holds no config.json"),
        (read_target, "./not/there", "there is no such folder or GGUF file"),
        (read_target, str(tmp_path / "none.gguf"), "there is no such folder or GGUF file"),
    ]
    for read, where, message in mistakes:
        with pytest.raises(CheckpointError) as raised:
            read(where)
        assert message in str(raised.value) and "\n" not in str(raised.value)


def test_a_built_in_target_that_is_not_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(CheckpointError, match="`blockdraft demo` fetches it"):
        read_target("smollm2")
