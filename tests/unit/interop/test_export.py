"""Whole exports: round trips of drafters made at random, refusals, nothing left of a failed one."""

import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from blockdraft.builtin import builtin_drafter_path
from blockdraft.checkpoint import DrafterCheckpoint, load_checkpoint
from blockdraft.checkpoint.contents import expected_shapes
from blockdraft.drafter import DFlash2Config, DrafterConfig, RopeConfig
from blockdraft.drafter.config import LayerType
from blockdraft.errors import CheckpointError, ConfigError, Error
from blockdraft.interop import formats
from blockdraft.interop.compare import first_difference
from blockdraft.interop.export import export_pair
from blockdraft.interop.hf.write import write_hf
from blockdraft.interop.order import ExportFormat, ExportOrder
from blockdraft.interop.source import load_any

MakeDrafter = Callable[[DrafterConfig], DrafterCheckpoint]


ROPES = (
    {"theta": 1e6},
    {"rope_type": "linear", "factor": 2.0},
    {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 64},
)


class Ingredients(NamedTuple):
    """What hypothesis chooses; the drafter is made of it in the test.

    Not before: configurations are checked with random numbers, which strategies must not use.
    """

    num_layers: int
    sliding: bool
    is_causal: bool | None
    rope: int
    taps: list[int]
    depth_known: bool
    kv_heads: int
    eps: float
    block_size: int
    mask_token_id: int
    bias: bool
    drafted: int | None
    dtype: torch.dtype
    seed: int
    own_head: bool
    own_mask: bool

    def config(self) -> DrafterConfig:
        """A drafter for the target of 16 x 6 layers that a speculators folder can hold."""
        kind: LayerType = "sliding_attention" if self.sliding else "full_attention"
        return DrafterConfig(
            hidden_size=16,
            intermediate_size=24,
            num_layers=self.num_layers,
            num_heads=4,
            num_kv_heads=self.kv_heads,
            head_dim=8,
            rms_norm_eps=self.eps,
            vocab_size=40,
            block_size=self.block_size,
            mask_token_id=self.mask_token_id,
            taps=tuple(self.taps),
            num_target_layers=6 if self.depth_known else None,
            layer_types=(kind,) * self.num_layers,
            sliding_window=4 if self.sliding else None,
            is_causal=self.is_causal,
            rope=RopeConfig(**ROPES[self.rope]),  # pyright: ignore[reportArgumentType]: a table
            attention_bias=self.bias,
            max_position_embeddings=256,
            draft_vocab_size=self.drafted,
        )

    def drafter(self) -> DrafterCheckpoint:
        config = self.config()
        generator = torch.Generator().manual_seed(self.seed)

        def random(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=generator).to(self.dtype)

        d2t = None
        if self.drafted is not None:
            ids = torch.randperm(40, generator=generator)[: self.drafted].sort().values
            d2t = ids - torch.arange(self.drafted)
        return DrafterCheckpoint(
            config=config,
            state={name: random(*shape) for name, shape in expected_shapes(config).items()},
            source="memory",
            d2t=d2t,
            lm_head=random(self.drafted or 40, 16) if self.own_head else None,
            mask_embedding=random(16) if self.own_mask else None,
        )


INGREDIENTS = st.builds(
    Ingredients,
    num_layers=st.integers(1, 3),
    sliding=st.booleans(),
    is_causal=st.sampled_from([None, True, False]),
    rope=st.integers(0, len(ROPES) - 1),
    taps=st.lists(st.integers(0, 4), min_size=1, max_size=4, unique=True),
    depth_known=st.booleans(),
    kv_heads=st.sampled_from([1, 2, 4]),
    eps=st.sampled_from([1e-6, 9.999999747378752e-06]),
    block_size=st.integers(2, 16),
    mask_token_id=st.integers(0, 39),
    bias=st.booleans(),
    drafted=st.none() | st.integers(1, 39),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    seed=st.integers(0, 99),
    own_head=st.booleans(),
    own_mask=st.booleans(),
)


SECOND = DFlash2Config(conv_kernel_size=2, conv_group_size=4, selector_rank=3, selector_top_k=5)


def order(format_: ExportFormat, target: Path, drafter: Path, out: Path) -> ExportOrder:
    return ExportOrder(format=format_, target=str(target), drafter=str(drafter), out=out)


@settings(max_examples=20)
@given(of=INGREDIENTS)
def test_hf_to_speculators_to_hf_reproduces_every_tensor(
    of: Ingredients, target_folder: Path
) -> None:
    made = of.drafter()
    with tempfile.TemporaryDirectory() as scratch:
        first, middle, last = (Path(scratch) / name for name in ("first", "middle", "last"))
        first.mkdir()
        write_hf(first, made)
        export_pair(order("speculators", target_folder, first, middle))
        back = replace(order("hf", target_folder, middle, last), keep_draft_vocabulary=True)
        report = export_pair(back)
        assert report.source_format == "speculators"
        wanted = replace(made, config=replace(made.config, num_target_layers=6))
        assert first_difference(wanted, load_any(last).checkpoint) is None


@settings(max_examples=10)
@given(of=INGREDIENTS)
def test_the_hf_folder_loads_here_with_the_whole_vocabulary(
    of: Ingredients, target_folder: Path
) -> None:
    made = of._replace(own_mask=False).drafter()
    with tempfile.TemporaryDirectory() as scratch:
        first, last = Path(scratch) / "first", Path(scratch) / "last"
        first.mkdir()
        write_hf(first, made)
        wanted = order("hf", target_folder, first, last)
        if made.lm_head is not None and made.d2t is not None:
            with pytest.raises(CheckpointError, match="keep-draft-vocabulary"):
                export_pair(wanted)
            assert not last.exists()
            return
        export_pair(wanted)
        config = replace(made.config, num_target_layers=6, draft_vocab_size=None)
        found = load_checkpoint(last)
        assert first_difference(replace(made, config=config, d2t=None), found) is None


def test_the_builtin_drafter_comes_back_to_the_byte(tmp_path: Path) -> None:
    """Beside a target of SmolLM2's sizes with rows of zeros: what a target is does not matter."""
    from safetensors.torch import (
        save_file,  # pyright: ignore[reportUnknownVariableType]: bare PathLike
    )

    target = tmp_path / "target"
    target.mkdir()
    sizes = {"hidden_size": 576, "num_hidden_layers": 30, "vocab_size": 49152}
    (target / "config.json").write_text(json.dumps(sizes | {"model_type": "llama"}))
    rows = torch.zeros(49152, 576, dtype=torch.bfloat16)
    save_file({"lm_head.weight": rows}, target / "model.safetensors")
    middle, last = tmp_path / "middle", tmp_path / "last"
    export_pair(order("speculators", target, Path("smollm2"), middle))
    export_pair(replace(order("hf", target, middle, last), keep_draft_vocabulary=True))
    original = load_any("smollm2").checkpoint
    assert first_difference(original, load_checkpoint(last)) is None
    assert "| GSM8K test" in (last / "README.md").read_text()
    record = cast("dict[str, object]", json.loads((last / "provenance.json").read_text()))
    assert record["acceptance_length"] == original.recorded_tau
    exports = cast("list[dict[str, object]]", record["exports"])
    assert [export["format"] for export in exports] == ["speculators", "hf"]


@pytest.fixture
def drafter(make_drafter: MakeDrafter, config: DrafterConfig, tmp_path: Path) -> Path:
    folder = tmp_path / "drafter"
    folder.mkdir()
    write_hf(folder, make_drafter(replace(config, layer_types=("full_attention",) * 2)))
    return folder


def test_exports_repeat_to_the_byte(
    full_config: DrafterConfig, make_drafter: MakeDrafter, target_folder: Path, tmp_path: Path
) -> None:
    made = make_drafter(replace(full_config, draft_vocab_size=9))
    (tmp_path / "drafter").mkdir()
    write_hf(tmp_path / "drafter", replace(made, mask_embedding=torch.randn(16)))
    formats_: tuple[ExportFormat, ...] = ("hf", "speculators")
    for format_ in formats_:
        folders = [tmp_path / f"{format_}{number}" for number in (1, 2)]
        for folder in folders:
            export_pair(order(format_, target_folder, tmp_path / "drafter", folder))
        first, second = ({f.name: f.read_bytes() for f in folder.iterdir()} for folder in folders)
        assert first == second
        assert "mask_embedding.pt" in first


def test_a_second_version_comes_back_to_the_byte(
    full_config: DrafterConfig, make_drafter: MakeDrafter, target_folder: Path, tmp_path: Path
) -> None:
    """DFlash 2 to hf and again: nothing is lost, and weights and config are the same bytes."""
    config = replace(full_config, dflash2=SECOND, output_multiplier=0.5)
    made = replace(make_drafter(config), mask_embedding=torch.randn(16))
    folders = [tmp_path / name for name in ("drafter", "once", "twice")]
    folders[0].mkdir()
    write_hf(folders[0], made)
    for source, out in pairwise(folders):
        export_pair(order("hf", target_folder, source, out))
    assert first_difference(made, load_checkpoint(folders[2])) is None
    for name in ("config.json", "model.safetensors", "mask_embedding.pt"):
        assert len({(folder / name).read_bytes() for folder in folders}) == 1, name
    assert "It is a DFlash 2 drafter" in (folders[1] / "README.md").read_text()


@pytest.mark.parametrize("format_", ["gguf", "speculators"])
def test_a_second_version_is_not_written_in_other_formats(
    format_: ExportFormat,
    full_config: DrafterConfig,
    make_drafter: MakeDrafter,
    target_folder: Path,
    tmp_path: Path,
) -> None:
    (tmp_path / "drafter").mkdir()
    write_hf(tmp_path / "drafter", make_drafter(replace(full_config, dflash2=SECOND)))
    with pytest.raises(CheckpointError, match=f"can't be written as {format_}: .*--format hf"):
        export_pair(order(format_, target_folder, tmp_path / "drafter", tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("outtype", ["f32", "bf16", "f16"])
def test_types_are_cast(outtype: str, drafter: Path, target_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = export_pair(replace(order("hf", target_folder, drafter, out), outtype=outtype))
    assert report.outtype == outtype
    assert {"f32": 4, "bf16": 2, "f16": 2}[outtype] == load_checkpoint(out).dtype.itemsize
    assert any("cast from" in change for change in report.changes) is (outtype != "f32")


def test_a_verifier_is_named(drafter: Path, target_folder: Path, tmp_path: Path) -> None:
    def named(folder: Path) -> object:
        raw = cast("dict[str, object]", json.loads((folder / "config.json").read_text()))
        spec = cast("dict[str, dict[str, object]]", raw["speculators_config"])
        return spec["verifier"]["name_or_path"]

    wanted = order("speculators", target_folder, drafter, tmp_path / "one")
    export_pair(wanted)
    export_pair(replace(wanted, out=tmp_path / "two", verifier="owner/model"))
    assert named(tmp_path / "one") == str(target_folder.resolve())
    assert named(tmp_path / "two") == "owner/model"


def test_an_empty_folder_is_filled_and_another_refused(
    drafter: Path, target_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    export_pair(order("hf", target_folder, drafter, out))
    assert (out / "config.json").exists()
    with pytest.raises(ConfigError, match="exists already"):
        export_pair(order("hf", target_folder, drafter, out))
    with pytest.raises(ConfigError, match="exists already"):
        export_pair(order("hf", target_folder, drafter, drafter / "config.json"))


def test_orders_that_make_no_sense_are_refused(target_folder: Path, tmp_path: Path) -> None:
    def refused(named: str, **changes: object) -> None:
        settings: dict[str, object] = {
            "format": "hf",
            "target": str(target_folder),
            "drafter": "smollm2",
            "out": tmp_path / "out",
        }
        with pytest.raises(Error, match=named):
            export_pair(ExportOrder(**(settings | changes)))  # pyright: ignore[reportArgumentType]: parametrized

    refused("unknown", format="onnx")
    refused("--verifier", verifier="a/b")
    refused("--keep-draft-vocabulary", format="speculators", keep_draft_vocabulary=True)
    refused("hidden size is 576")
    refused("no target", target="nowhere")
    refused("no such folder", drafter=str(tmp_path / "nowhere"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("format_", ["hf", "speculators", "gguf"])
def test_yarn_without_a_factor_is_not_written(
    format_: ExportFormat, drafter: Path, target_folder: Path, tmp_path: Path
) -> None:
    """Every engine would refuse it, and 1, no scaling, is not meant."""
    path = drafter / "config.json"
    raw = cast("dict[str, object]", json.loads(path.read_text()))
    rope = {"rope_type": "yarn", "rope_theta": 1e4}
    path.write_text(json.dumps(raw | {"rope_parameters": rope}))
    with pytest.raises(CheckpointError, match=r"yarn without a factor.* add the 'factor'"):
        export_pair(order(format_, target_folder, drafter, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_q8_0_is_for_gguf(drafter: Path, target_folder: Path, tmp_path: Path) -> None:
    wanted = order("speculators", target_folder, drafter, tmp_path / "out")
    with pytest.raises(ConfigError, match="q8_0"):
        export_pair(replace(wanted, outtype="q8_0"))


def _fail(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("broken", ["write_hf", "load_checkpoint"])
def test_a_failure_leaves_nothing(
    broken: str,
    drafter: Path,
    target_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(formats, broken, _fail)
    with pytest.raises(ConfigError, match="No space left on device"):
        export_pair(order("hf", target_folder, drafter, tmp_path / "out"))
    assert sorted(tmp_path.iterdir()) == before


def test_an_interruption_leaves_nothing(drafter: Path, target_folder: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())

    def interrupt(line: str) -> None:
        if line == "reading it back":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_pair(order("hf", target_folder, drafter, tmp_path / "out"), report=interrupt)
    assert sorted(tmp_path.iterdir()) == before


def test_what_reads_back_otherwise_is_not_kept(
    drafter: Path,
    target_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def damaged(folder: Path, checkpoint: DrafterCheckpoint) -> None:
        state = dict(checkpoint.state)
        state["norm.weight"] = state["norm.weight"] + 1
        write_hf(folder, replace(checkpoint, state=state))

    monkeypatch.setattr(formats, "write_hf", damaged)
    with pytest.raises(CheckpointError, match=r"norm.weight has other values"):
        export_pair(order("hf", target_folder, drafter, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.acceptance
@pytest.mark.parametrize("format_", ["speculators", "gguf"])
def test_the_real_pair_comes_back_to_the_byte(format_: ExportFormat, tmp_path: Path) -> None:
    middle, last = tmp_path / "middle", tmp_path / "last"
    there = ExportOrder(format=format_, target="smollm2", drafter="smollm2", out=middle)
    export_pair(there)
    back = replace(there, format="hf", drafter=str(middle), out=last)
    export_pair(replace(back, keep_draft_vocabulary=True))
    original = builtin_drafter_path("smollm2")
    assert original is not None
    for name in ("config.json", "model.safetensors"):
        assert (last / name).read_bytes() == (original / name).read_bytes()
