"""Every kind of source, and one plain line for every kind of damage (L16, R05)."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import cast

import huggingface_hub
import pytest
import safetensors.torch
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from transformers.utils import logging as hf_logging

from blockdraft.errors import CheckpointError, ConfigError, Error, FetchError, UnsupportedTarget
from blockdraft.target import load_target
from blockdraft.target.hf import HFTarget
from blockdraft.target.quiet import quiet
from blockdraft.testing.tiny import TinySize, tiny_model

IDS = torch.arange(1, 12)
Damage = Callable[[Path], object]


def logits_of(target: HFTarget) -> torch.Tensor:
    return target.open().prefill(IDS).logits


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_folder_loads_whole(model_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    target = load_target(str(model_folder), dtype="float64")
    size = TinySize(vocab_size=300, stop_ids=(257,))
    expected = HFTarget(tiny_model("llama", size=size))
    torch.testing.assert_close(logits_of(target), logits_of(expected), atol=1e-5, rtol=1e-5)
    assert target.dtype == torch.float64
    assert target.device == torch.device("cpu")
    assert target.batch_invariant is None
    assert target.text is not None and target.text.decode([72]) == "H"
    assert target.spec.stop_ids == (257,)
    assert target.spec.name == str(model_folder)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", torch.bfloat16])
def test_dtypes(model_folder: Path, dtype: str | torch.dtype) -> None:
    target = load_target(model_folder, dtype=dtype, device="cpu")
    assert str(target.dtype).removeprefix("torch.") == str(dtype).removeprefix("torch.")
    assert logits_of(target).dtype == target.dtype


def test_settings_that_make_no_sense(model_folder: Path) -> None:
    with pytest.raises(ConfigError, match="dtype 'int4'"):
        load_target(model_folder, dtype="int4")
    with pytest.raises(ConfigError, match="revision"):
        load_target(model_folder, revision="main")
    with pytest.raises(ConfigError, match="leave attn out"):
        load_target(model_folder, batch_invariant=8, attn="sdpa")
    with pytest.raises(ConfigError, match="at least 3 and at most 4096, not 100000000"):
        load_target(model_folder, batch_invariant=10**8)
    for device in ("meta", "meta:0", torch.device("meta")):
        with pytest.raises(ConfigError, match="device meta holds no weights"):
            load_target(model_folder, device=device)


@pytest.mark.parametrize("device", ["nowhere", "cuda:99"])
def test_devices_that_are_not_there(model_folder: Path, device: str) -> None:
    with pytest.raises(ConfigError, match=f"device {device}"):
        load_target(model_folder, device=device)


def test_batch_invariant_targets_load(model_folder: Path) -> None:
    target = load_target(model_folder, dtype="bfloat16", batch_invariant=8)
    assert target.batch_invariant == 8


def test_shards(sharded_folder: Path, model_folder: Path) -> None:
    shards = sorted(sharded_folder.glob("*.safetensors"))
    assert len(shards) > 1
    target = load_target(sharded_folder, dtype="float64")
    assert target.text is None
    assert torch.equal(logits_of(target), logits_of(load_target(model_folder, dtype="float64")))
    shards[1].unlink()
    with pytest.raises(CheckpointError, match=f"lacks the weight file {shards[1].name}"):
        load_target(sharded_folder)


def truncate(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def cut_header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"short")


def drop_a_weight(folder: Path) -> None:
    path = folder / "model.safetensors"
    weights = safetensors.torch.load(path.read_bytes())
    del weights["model.layers.1.mlp.up_proj.weight"]
    path.write_bytes(safetensors.torch.save(weights, metadata={"format": "pt"}))


def add_a_weight(folder: Path, name: str = "model.layers.9.mlp.up_proj.weight") -> None:
    path = folder / "model.safetensors"
    weights = safetensors.torch.load(path.read_bytes())
    weights[name] = torch.ones(2)
    path.write_bytes(safetensors.torch.save(weights, metadata={"format": "pt"}))


def only_pickle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def escape_the_folder(folder: Path) -> None:
    index = {"weight_map": {"lm_head.weight": "../model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def empty_index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text("{}")


DAMAGES: list[tuple[Damage, str]] = [
    (lambda folder: (folder / "config.json").unlink(), "has no config.json"),
    (lambda folder: (folder / "config.json").write_text("{oops"), "no valid JSON"),
    (lambda folder: (folder / "config.json").write_text("[1]"), "JSON object"),
    (lambda folder: (folder / "model.safetensors").unlink(), "has no weights"),
    (lambda folder: edit_config(folder, vocab_size=290), "another shape|mismatch|size"),
    (
        lambda folder: (folder / "config.json").write_text("[" * 100_000),
        "no valid JSON",
    ),
    (
        lambda folder: edit_config(folder, model_type="unheard_of"),
        "model type 'unheard_of' is unknown to the installed transformers",
    ),
    (lambda folder: edit_config(folder, architectures=5, model_type="x"), "model type 'x'"),
    (lambda folder: edit_config(folder, num_hidden_layers=1), "does not use, the first is model"),
    (add_a_weight, "1 weights that LlamaForCausalLM does not use, the first is model.layers.9.mlp"),
    (lambda folder: edit_config(folder, hidden_size="wide"), "can't be loaded"),
    (lambda folder: edit_config(folder, num_attention_heads=0), "can't be loaded"),
    (lambda folder: edit_config(folder, head_dim=0), "can't be loaded"),
    (lambda folder: edit_config(folder, vocab_size=0, pad_token_id=0), "can't be loaded"),
    (lambda folder: edit_config(folder, dtype=[]), "can't be loaded"),
    (lambda folder: edit_config(folder, num_hidden_layers=4), "lacks 9 weights"),
    (truncate, "complete safetensors"),
    (cut_header, "complete safetensors"),
    (drop_a_weight, "lacks 1 weights, the first is model.layers.1.mlp.up_proj.weight"),
    (only_pickle, "only as pickle"),
    (escape_the_folder, "only safetensors files of the same"),
    (empty_index, "no weight_map"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_damaged_folders(
    model_folder: Path, damage: Damage, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    damage(model_folder)
    with pytest.raises(CheckpointError, match=message) as raised:
        load_target(model_folder)
    assert "\n" not in str(raised.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "changes",
    [{"architectures": ["DFlashDraftModel"]}, {"dflash_config": {"target_layer_ids": [1]}}],
)
def test_a_drafter_given_as_target_is_recognized_l16(
    model_folder: Path, changes: dict[str, object]
) -> None:
    edit_config(model_folder, **changes)
    with pytest.raises(CheckpointError, match="is a DFlash drafter, not a target"):
        load_target(model_folder)


@pytest.mark.parametrize("model_type", ["llama", "unheard_of"])
def test_code_in_a_checkpoint_is_never_run_r05(
    model_folder: Path, tmp_path: Path, model_type: str
) -> None:
    canary = tmp_path / "canary"
    (model_folder / "evil.py").write_text(f"open({str(canary)!r}, 'w')\nclass Evil: pass\n")
    auto_map = {"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil"}
    edit_config(model_folder, auto_map=auto_map, model_type=model_type)
    try:
        load_target(model_folder)
    except CheckpointError as error:
        assert model_type == "unheard_of"
        assert "code from a checkpoint is never run: update transformers" in str(error)
        assert "trust_remote_code" not in str(error)
    assert not canary.exists()


def test_code_for_a_type_that_is_no_causal_model_is_refused_r05(model_folder: Path) -> None:
    edit_config(model_folder, auto_map={"AutoModelForCausalLM": "evil.Evil"}, model_type="clip")
    with pytest.raises(CheckpointError, match="model type 'clip' is unknown") as raised:
        load_target(model_folder)
    assert "trust_remote_code" not in str(raised.value)


@pytest.mark.parametrize(
    "name", ["model.layers.0.self_attn.rotary_emb.inv_freq", "model.layers.0.attn.masked_bias"]
)
def test_buffers_of_older_libraries_are_no_damage(model_folder: Path, name: str) -> None:
    expected = logits_of(load_target(model_folder))
    add_a_weight(model_folder, name)
    assert torch.equal(logits_of(load_target(model_folder)), expected)


def test_a_tied_head_may_be_stored(model_folder: Path) -> None:
    path = model_folder / "model.safetensors"
    weights = safetensors.torch.load(path.read_bytes())
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
    path.write_bytes(safetensors.torch.save(weights, metadata={"format": "pt"}))
    edit_config(model_folder, tie_word_embeddings=True)
    load_target(model_folder)


INDEX_FAULTS: list[tuple[Callable[[dict[str, str]], object], str]] = [
    (lambda index: index.pop("model.norm.weight"), "has a tensor model.norm.weight"),
    (
        lambda index: index.update({"more": index["model.norm.weight"]}),
        "has tensor more in .* which lacks it",
    ),
]


@pytest.mark.parametrize(("change", "message"), INDEX_FAULTS)
def test_index_and_shards_must_agree(
    sharded_folder: Path, change: Callable[[dict[str, str]], object], message: str
) -> None:
    path = sharded_folder / "model.safetensors.index.json"
    index = cast(dict[str, dict[str, str]], json.loads(path.read_text()))
    change(index["weight_map"])
    path.write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=message):
        load_target(sharded_folder)


def test_an_encoder_decoder_is_refused_by_its_configuration(model_folder: Path) -> None:
    edit_config(model_folder, model_type="t5", is_encoder_decoder=True)
    with pytest.raises(UnsupportedTarget, match="encoder-decoder model"):
        load_target(model_folder)


def test_sources_that_are_nothing(tmp_path: Path) -> None:
    for source in ("nonsense", str(tmp_path / "absent"), "a/b/c/d"):
        with pytest.raises(CheckpointError, match=r"no target .*smollm2"):
            load_target(source)
    with pytest.raises(CheckpointError, match="there is no file"):
        load_target(tmp_path / "absent.gguf")
    file = tmp_path / "weights.bin"
    file.touch()
    with pytest.raises(CheckpointError, match="is a file"):
        load_target(file)


def test_a_hub_model_without_network_is_one_line() -> None:
    """The test run is offline, and this model is in nobody's cache."""
    said: list[str] = []
    with pytest.raises(FetchError, match="some-owner/no-such-model: no such folder") as raised:
        load_target("some-owner/no-such-model@main", report=said.append)
    assert "\n" not in str(raised.value)
    assert said == [
        "Looking up some-owner/no-such-model on the Hugging Face hub (downloads it the first time)"
    ]


def test_a_hub_model_is_loaded_from_its_snapshot(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str | None]] = []

    def snapshot(repo: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        asked.append((repo, revision))
        assert not any(pattern.endswith((".bin", ".py")) for pattern in allow_patterns)
        return str(model_folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    assert load_target("owner/name@abc").spec.name == "owner/name@abc"
    load_target("owner/name", revision="def")
    load_target("owner/name")
    assert asked == [("owner/name", "abc"), ("owner/name", "def"), ("owner/name", None)]


def test_quiet_puts_everything_back() -> None:
    from huggingface_hub.utils import are_progress_bars_disabled

    before = (hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled())
    hub_before = are_progress_bars_disabled()
    with pytest.raises(LocalEntryNotFoundError), quiet():
        assert hf_logging.get_verbosity() == logging.CRITICAL
        assert not hf_logging.is_progress_bar_enabled()
        raise LocalEntryNotFoundError("inside")
    assert (hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()) == before
    assert are_progress_bars_disabled() == hub_before
    assert issubclass(FetchError, Error)
