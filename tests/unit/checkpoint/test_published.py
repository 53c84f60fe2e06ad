"""Every published configuration whose shapes are known is built, without weights.

Names, shapes and totals are compared with the published tensor tables, which are written down here
once more, and with the totals and file sizes that were published.
"""

from itertools import chain

import pytest
import torch

from blockdraft.builtin.published import find_published, published_drafters
from blockdraft.builtin.published_entry import PublishedDrafter, in_billions
from blockdraft.checkpoint.contents import expected_shapes
from blockdraft.checkpoint.published import published_config
from blockdraft.drafter import BlockDrafter
from blockdraft.errors import ConfigError

Shapes = dict[str, tuple[int, ...]]

ENTRIES = published_drafters()
BUILT = [one for one in ENTRIES if not one.missing_shape and one.format != "other"]
NOT_BUILT = [one for one in ENTRIES if one not in BUILT]


def label(one: PublishedDrafter) -> str:
    return f"{one.id}{'-replaced' if one.replaced else ''}"


def known(size: int | None) -> int:
    assert size is not None
    return size


def table_v1(one: PublishedDrafter) -> Shapes:
    """The tensors of section 3.1, for the figures of an entry."""
    hidden, wide, dim = known(one.hidden_size), known(one.intermediate_size), known(one.head_dim)
    heads, pairs = known(one.num_heads) * dim, known(one.num_kv_heads) * dim
    shapes: Shapes = {
        "fc.weight": (hidden, known(one.tap_count) * hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
    }
    for place in range(known(one.num_layers)):
        layer: Shapes = {
            "self_attn.q_proj.weight": (heads, hidden),
            "self_attn.k_proj.weight": (pairs, hidden),
            "self_attn.v_proj.weight": (pairs, hidden),
            "self_attn.o_proj.weight": (hidden, heads),
            "self_attn.q_norm.weight": (dim,),
            "self_attn.k_norm.weight": (dim,),
            "mlp.gate_proj.weight": (wide, hidden),
            "mlp.up_proj.weight": (wide, hidden),
            "mlp.down_proj.weight": (hidden, wide),
            "input_layernorm.weight": (hidden,),
            "post_attention_layernorm.weight": (hidden,),
        }
        shapes |= {f"layers.{place}.{name}": shape for name, shape in layer.items()}
    return shapes


def extra_v2(one: PublishedDrafter) -> Shapes:
    """The tensors of section 3.3 besides."""
    hidden, taps = known(one.hidden_size), known(one.conv_kernel_size)
    rank, vocab = known(one.selector_rank), known(one.vocab_size)
    shapes: Shapes = {
        "candidate_selector.hidden_projection.weight": (rank, hidden),
        "candidate_selector.predecessor_codebook": (vocab, rank),
        "candidate_selector.successor_codebook": (vocab, rank),
    }
    for place in range(known(one.num_layers)):
        for side in ("attention_conv", "mlp_conv"):
            shapes[f"layers.{place}.{side}.base_kernel"] = (2, taps, hidden)
            rows = 2 * taps * hidden // known(one.conv_group_size)
            shapes[f"layers.{place}.{side}.kernel_projection.weight"] = (rows, hidden)
    return shapes


def total(shapes: Shapes) -> int:
    return sum(torch.Size(shape).numel() for shape in shapes.values())


@pytest.mark.parametrize("one", BUILT, ids=label)
def test_the_drafter_has_the_published_tensors(one: PublishedDrafter) -> None:
    config = published_config(one).config
    expected = table_v1(one) | (extra_v2(one) if one.format == "v2" else {})
    with torch.device("meta"):
        model = BlockDrafter(config)
    parameters = {name: tuple(value.shape) for name, value in model.named_parameters()}
    assert all(value.is_meta for value in model.state_dict().values())
    assert expected_shapes(config) == expected
    assert sorted(parameters.values()) == sorted(expected.values())
    if one.format != "v2":  # codebooks are stored without the ending that modules give them
        assert parameters == expected
    own = 0
    if one.format == "speculators":
        own = known(one.hidden_size) * (known(one.vocab_size) + known(one.draft_vocab_size))
    assert one.num_parameters == total(expected) + own


@pytest.mark.parametrize("one", [one for one in BUILT if one.stated_parameters], ids=label)
def test_totals_are_the_stated_ones(one: PublishedDrafter) -> None:
    """To the digits that were published."""
    stated = str(one.stated_parameters)
    if " " not in stated:
        assert one.num_parameters == int(stated)
        return
    digits = len(stated.split(" ")[0].partition(".")[2])
    assert round(known(one.num_parameters) / 1e9, digits) == in_billions(stated)


@pytest.mark.parametrize("one", [one for one in BUILT if one.stated_size], ids=label)
def test_files_have_the_stated_size(one: PublishedDrafter) -> None:
    """Two bytes a parameter; a header of some kilobytes is lost in the rounding."""
    number, _, unit = str(one.stated_size).partition(" ")
    digits = len(number.partition(".")[2])
    size = 2 * known(one.num_parameters) / (2**30 if unit == "GiB" else 1e9)
    assert abs(size - float(number)) <= 0.55 * 10**-digits


@pytest.mark.parametrize(
    ("drafter", "parameters"),
    [
        # 5 layers of 100.9 M and a projection of 32.8 M; of 193 M and 83.9 M (section 3.1).
        ("z-lab/Qwen3-4B-DFlash-b16", 0.537e9),
        ("z-lab/Qwen3-8B-DFlash-b16", 1.049e9),
        ("z-lab/gpt-oss-20b-DFlash", 0.785e9),
        ("z-lab/gpt-oss-120b-DFlash", 0.785e9),
        # 1599 M layers, 131 M projection, 65.7 M convolutions, 128.5 M selector (section 3.3).
        ("z-lab/Qwen3.8-27B-DFlash2", 1.924e9),
    ],
)
def test_well_known_totals(drafter: str, parameters: float) -> None:
    one = find_published(drafter)
    assert one is not None and one.num_parameters is not None
    assert one.num_parameters == pytest.approx(parameters, rel=1e-3)


def test_the_last_byte_of_a_published_header() -> None:
    """Where the weights of Muse-Glimmer's DFlash 2 file end, two bytes each."""
    one = find_published("z-lab/Muse-Glimmer-30B-DFlash2")
    assert one is not None and one.num_parameters == 5_544_319_488 // 2


def test_stated_numbers_of_tensors() -> None:
    for one in BUILT:
        if one.stated_tensors is not None:
            shapes = table_v1(one) | (extra_v2(one) if one.format == "v2" else {})
            assert len(shapes) == one.stated_tensors


@pytest.mark.parametrize("one", NOT_BUILT, ids=label)
def test_what_is_missing_is_named(one: PublishedDrafter) -> None:
    with pytest.raises(
        ConfigError, match="its layout is not read" if one.format == "other" else "not known are"
    ):
        published_config(one)
    assert "known" in one.notes or one.format == "other"


def test_configurations_without_a_stand_in() -> None:
    """Those are the checkpoints' own, rules included."""
    complete = {one.id: published_config(one).config for one in BUILT if not one.unknown}
    assert {
        "z-lab/Qwen3-4B-DFlash-b16",
        "z-lab/Qwen3-8B-DFlash-b16",
        "z-lab/Kimi-K2.5-DFlash",
        "z-lab/Muse-Glimmer-30B-DFlash2",
    } <= complete.keys()
    kimi = complete["z-lab/Kimi-K2.5-DFlash"]
    assert (kimi.rope.rope_type, kimi.rope.factor, kimi.position_limit) == ("yarn", 64, 262144)
    muse = complete["z-lab/Muse-Glimmer-30B-DFlash2"]
    assert (muse.sliding_window, muse.is_causal) == (2048, False)
    assert muse.mask_rule(0) == (False, 2048)
    assert (muse.final_logit_softcapping, muse.output_multiplier) == (20, 26**-0.5)


@pytest.mark.parametrize("one", [e for e in BUILT if e.format == "v2"], ids=label)
def test_the_second_version_is_never_causal(one: PublishedDrafter) -> None:
    """3.3: the format has `is_causal` false, and without it sliding layers would be causal."""
    config = published_config(one).config
    assert not any(config.mask_rule(place).causal for place in range(config.num_layers))


def test_windows_come_first() -> None:
    one = find_published("z-lab/gemma-4-31B-it-DFlash")
    assert one is not None
    config = published_config(one).config
    rules = [config.mask_rule(place) for place in range(5)]
    assert rules == [(True, 2048)] * 4 + [(False, None)]


def test_what_is_assumed_is_told() -> None:
    one = find_published("z-lab/Qwen3.5-27B-DFlash")
    assert one is not None
    assert published_config(one).assumed == (
        "mask_token_id",
        "vocab_size",
        "rope_theta",
        "max_positions",
        "rms_norm_eps",
    )


SECTION_3_2 = """
Qwen3-4B-DFlash-b16 Qwen3-8B-DFlash-b16 LLaMA3.1-8B-Instruct-DFlash-UltraChat Qwen3.5-4B-DFlash
Qwen3.5-9B-DFlash Qwen3.5-27B-DFlash Qwen3.5-35B-A3B-DFlash Qwen3.6-35B-A3B-DFlash
Qwen3-Coder-30B-A3B-DFlash Qwen3-Coder-Next-DFlash Qwen3.5-122B-A10B-DFlash
Qwen3.5-397B-A17B-DFlash Qwen3.6-27B-DFlash gemma-4-26B-A4B-it-DFlash gemma-4-31B-it-DFlash
gpt-oss-20b-DFlash gpt-oss-120b-DFlash Kimi-K2.5-DFlash Kimi-K2.6-DFlash MiniMax-M2.5-DFlash
MiniMax-M2.7-DFlash Qwen3.8-27B-DFlash2 gemma4-12B-it-DFlash Kimi-K2.7-Code-DFlash
GLM-5.1-FP8-DFlash Alpamayo-1.5-10B-DFlash Alpamayo-R1-10B-DFlash Muse-Glimmer-30B-DFlash2
Qwen3.5-0.8B-DFlash qwen2.5-0.5b lfm2.5-1.2b
"""
SECTION_3_3 = """
GLM-5.3-Flash-DFlash2 GLM-5.3-Flash-DFlash2-G Beam-1.0-501B-A23B-DFlash2 Muse-Spark-Open-DFlash2
Qwen3-8B-speculator.dflash2 Qwen3-4B-speculator.dflash2 GLM-5.3-speculator.dflash2-preview
MiniMax-M3.1-Flash-DFlash2 Muse-Spark-Open-816B-A42B-DFlash2 Agens-Volundr-32B
Muse-Glimmer-30B-assistant
"""
SECTION_3_4 = """
gemma-4-31B-it-speculator Qwen3-8B-speculator.dflash Qwen3-30B-A3B-speculator.dflash
Qwen3-30B-A3B-Instruct-2507-speculator Qwen3.5-397B-speculator DeepSeek-V4-Flash-speculator
Laguna-S-2.1-DFlash GLM-5.2-speculator.dspark
"""


@pytest.mark.parametrize("name", (SECTION_3_2 + SECTION_3_3 + SECTION_3_4).split())
def test_every_published_checkpoint_is_there(name: str) -> None:
    ids = chain.from_iterable((one.id, *one.mirrors) for one in ENTRIES)
    assert any(name in one for one in ids)


@pytest.mark.parametrize(
    ("drafter", "layers"),
    [
        ("z-lab/Qwen3.5-4B-DFlash", ["5 full", "5 sliding-4096 + 1 full"]),
        ("z-lab/Qwen3.5-27B-DFlash", ["5 full", "5 sliding-4096 + 1 full"]),
        ("z-lab/Qwen3.5-35B-A3B-DFlash", ["8 full", "5 sliding-4096 + 1 full"]),
        (
            "z-lab/Qwen3.5-122B-A10B-DFlash",
            ["3 sliding-2048 + 1 full", "5 sliding-4096 + 1 full"],
        ),
    ],
)
def test_replaced_files_are_kept_apart(drafter: str, layers: list[str]) -> None:
    """L22: files are replaced in place, so an id alone does not say which shape it has."""
    found = [one for one in ENTRIES if one.id == drafter]
    assert [one.layers_text for one in found] == layers
    assert [one.replaced for one in found] == [True, False]
