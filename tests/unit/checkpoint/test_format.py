"""The published config.json: both dialects, round trip, and what is refused."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from blockdraft.checkpoint.format import guessed_taps, parse_config, render_config
from blockdraft.checkpoint.rope_dialects import render_rope
from blockdraft.drafter import DrafterConfig, MaskRule, RopeConfig
from blockdraft.drafter.config import LayerType, RopeType
from blockdraft.drafter.rope import inverse_frequencies
from blockdraft.errors import CheckpointError

Json = dict[str, object]


def _published() -> Json:
    """A newer file: algorithm keys nested, RoPE as transformers 5 writes it."""
    return {
        "architectures": ["DFlashDraftModel"],
        "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
        "model_type": "qwen3",
        "attention_bias": False,
        "dflash_config": {"block_size": 8, "mask_token_id": 7, "target_layer_ids": [1, 3, 5]},
        "dtype": "bfloat16",
        "head_dim": 32,
        "hidden_act": "silu",
        "hidden_size": 64,
        "intermediate_size": 96,
        "layer_types": ["sliding_attention", "full_attention"],
        "max_position_embeddings": 512,
        "max_window_layers": 28,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "num_target_layers": 8,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        "sliding_window": 6,
        "use_sliding_window": True,
        "vocab_size": 320,
    }


def _older() -> Json:
    """The same drafter as transformers 4 and early releases wrote it."""
    raw = _published()
    raw |= {
        "dflash_config": {"mask_token_id": 7, "target_layer_ids": [1, 3, 5]},
        "block_size": 8,
        "rope_theta": 1000000,
        "rope_scaling": None,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.57.1",
        "use_cache": True,
    }
    del raw["rope_parameters"], raw["dtype"]
    return raw


def _flat() -> Json:
    """All algorithm keys at the top level."""
    raw = _older()
    del raw["dflash_config"]
    return raw | {"mask_token_id": 7, "target_layer_ids": [1, 3, 5]}


def _changed(top: Json, nested: Json) -> Json:
    raw = _published() | top
    if nested:
        raw["dflash_config"] = cast("Json", raw["dflash_config"]) | nested
    return raw


def _parsed(raw: Json) -> DrafterConfig:
    return parse_config(raw, "config.json")


def _refusal(raw: Json) -> str:
    with pytest.raises(CheckpointError) as raised:
        _parsed(raw)
    message = str(raised.value)
    assert message.startswith("config.json: ") and "\n" not in message
    return message


@pytest.mark.parametrize("dialect", [_older, _flat])
def test_dialects_describe_the_same_drafter(dialect: Callable[[], Json]) -> None:
    """L20: older top-level and newer nested keys."""
    config = _parsed(_published())
    assert _parsed(dialect()) == config
    assert (config.block_size, config.mask_token_id, config.taps) == (8, 7, (1, 3, 5))
    assert config.rope == RopeConfig(theta=1e6)
    assert config.layer_types == ("sliding_attention", "full_attention")


def test_nested_keys_win_over_the_top_level() -> None:
    raw = _published() | {"block_size": 16, "mask_token_id": 1}
    assert (_parsed(raw).block_size, _parsed(raw).mask_token_id) == (8, 7)


def test_all_algorithm_keys_are_read() -> None:
    nested: Json = {
        "input_embedding_scale": 8,
        "output_multiplier": 0.5,
        "final_logit_softcapping": 30.0,
        "draft_vocab_size": 32,
    }
    config = _parsed(_changed({}, nested))
    assert (config.input_embedding_scale, config.output_multiplier) == (8.0, 0.5)
    assert (config.final_logit_softcapping, config.draft_vocab_size) == (30.0, 32)


def test_a_softcap_of_zero_means_none() -> None:
    assert _parsed(_published() | {"final_logit_softcapping": 0}).final_logit_softcapping is None


@pytest.mark.parametrize(
    ("top", "nested", "expected"),
    [
        ({}, {}, (MaskRule(True, 6), MaskRule(False, None))),
        ({"is_causal": False}, {}, (MaskRule(False, 6), MaskRule(False, None))),
        ({"is_causal": True}, {}, (MaskRule(True, 6), MaskRule(True, None))),
        ({}, {"causal": False}, (MaskRule(False, 6), MaskRule(False, None))),
        ({"is_causal": True}, {"causal": False}, (MaskRule(True, 6), MaskRule(True, None))),
        ({}, {"use_swa": True, "swa_window_size": 9}, (MaskRule(False, 9),) * 2),
        ({}, {"use_swa": True}, (MaskRule(False, 6),) * 2),
        ({"is_causal": True}, {"use_swa": True}, (MaskRule(True, 6),) * 2),
        ({}, {"use_swa": False, "swa_window_size": 9}, (MaskRule(True, 6), MaskRule(False, None))),
        ({"layer_types": None}, {}, (MaskRule(False, None),) * 2),
        (
            {"layer_types": None, "max_window_layers": 1},
            {},
            (MaskRule(False, None), MaskRule(True, 6)),
        ),
        (
            {"layer_types": None, "max_window_layers": 0, "use_sliding_window": False},
            {},
            (MaskRule(False, None),) * 2,
        ),
    ],
)
def test_windows_and_causality(
    top: Json, nested: Json, expected: tuple[MaskRule, MaskRule]
) -> None:
    config = _parsed(_changed(top, nested))
    assert (config.mask_rule(0), config.mask_rule(1)) == expected


@pytest.mark.parametrize(
    ("rope", "expected"),
    [
        ({"rope_theta": 5e5}, RopeConfig(theta=5e5)),
        ({"rope_theta": 5e5, "rope_scaling": {}}, RopeConfig(theta=5e5)),
        # L20: no rope_theta where transformers 5 expects it, but one at the top
        ({"rope_theta": 5e5, "rope_parameters": {"rope_type": "default"}}, RopeConfig(theta=5e5)),
        (
            {
                "rope_theta": 5e5,
                "rope_parameters": {
                    "full_attention": {"rope_type": "default"},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 5e5},
                },
            },
            RopeConfig(theta=5e5),
        ),
        (
            {"rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 4}},
            RopeConfig(rope_type="linear", theta=1e4, factor=4.0),
        ),
        (
            {
                "rope_theta": 1e4,
                "rope_scaling": {
                    "rope_type": "yarn",
                    "type": "yarn",
                    "factor": 64.0,
                    "original_max_position_embeddings": 4096,
                    "beta_fast": 32,
                    "beta_slow": 1,
                    "mscale": 1.0,
                    "mscale_all_dim": 1.0,
                    "truncate": False,
                },
            },
            RopeConfig(
                rope_type="yarn",
                factor=64.0,
                original_max_position_embeddings=4096,
                mscale=1.0,
                mscale_all_dim=1.0,
                truncate=False,
            ),
        ),
        (
            {
                "original_max_position_embeddings": 128,
                "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": None},
            },
            RopeConfig(rope_type="yarn", factor=4.0, original_max_position_embeddings=128),
        ),
        (
            {
                "rope_parameters": {
                    "rope_type": "llama3",
                    "rope_theta": 1e4,
                    "factor": 8.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "partial_rotary_factor": 1.0,
                }
            },
            RopeConfig(rope_type="llama3", factor=8.0, original_max_position_embeddings=512),
        ),
    ],
)
def test_rope_dialects(rope: Json, expected: RopeConfig) -> None:
    """L20: `rope_theta` and `rope_scaling`, `rope_parameters`, flat or by layer type."""
    raw = _published()
    del raw["rope_parameters"]
    assert _parsed(raw | rope).rope == expected


@pytest.mark.parametrize(
    ("rope", "named"),
    [
        ({}, "'rope_theta' is missing"),
        ({"rope_parameters": {"rope_type": "default"}}, "'rope_theta' is missing"),
        ({"rope_theta": 1e4, "rope_scaling": {"type": "longrope"}}, "'longrope', expected one of"),
        ({"rope_theta": 1e4, "rope_parameters": {"rope_theta": 1e6}}, "contradicts"),
        (
            {"rope_theta": 1e4, "rope_scaling": {"type": "yarn"}},
            "'rope_scaling.*' is yarn without a factor, and it can't be computed: max_position"
            "_embeddings 512 does not exceed the length before scaling, 512; add the 'factor'",
        ),
        (
            {
                "rope_theta": 1e4,
                "rope_scaling": {"type": "yarn", "original_max_position_embeddings": 1024},
            },
            "does not exceed the length before scaling, 1024; add the 'factor'",
        ),
        (
            {
                "rope_parameters": {
                    "full_attention": {"rope_theta": 1e6},
                    "sliding_attention": {"rope_theta": 1e4},
                }
            },
            "'rope_parameters.sliding_attention.*' contradicts",
        ),
        (
            {"rope_parameters": {"full_attention": {"rope_theta": 1e6}, "rope_theta": 1e6}},
            "unknown key 'rope_parameters.rope_theta'",
        ),
        (
            {"rope_parameters": {"rope_theta": 1e6, "mrope_section": [8, 4, 4]}},
            "'rope_parameters.mrope_section'",
        ),
        (
            {"rope_parameters": {"rope_theta": 1e6, "partial_rotary_factor": 0.25}},
            "'rope_parameters.partial_rotary_factor' = 0.25 is not supported",
        ),
        ({"rope_theta": 1e6, "partial_rotary_factor": 0.5}, "'partial_rotary_factor' = 0.5"),
        ({"rope_parameters": {"rope_theta": 1e6, "spin": 2}}, "unknown key 'rope_parameters.spin'"),
        ({"rope_theta": 1e6, "rope_scaling": {"type": "linear"}}, "'rope_scaling.factor' is miss"),
        ({"rope_theta": 1e6, "rope_scaling": {"type": "linear", "factor": 0.1}}, "rope factor"),
        ({"rope_theta": 1e6, "rope_scaling": 3}, "'rope_scaling' is 3, expected an object"),
        (
            {
                "original_max_position_embeddings": 64,
                "rope_parameters": {
                    "rope_type": "yarn",
                    "rope_theta": 1e4,
                    "factor": 2,
                    "original_max_position_embeddings": 128,
                },
            },
            "is 128, expected 64",
        ),
    ],
)
def test_bad_rope_is_refused(rope: Json, named: str) -> None:
    raw = _published()
    del raw["rope_parameters"]
    assert named in _refusal(raw | rope)


@pytest.mark.parametrize(
    ("top", "nested", "named"),
    [
        ({"hidden_size": None}, {}, "'hidden_size' is missing"),
        ({"hidden_size": "64"}, {}, "'hidden_size' is '64', expected an integer"),
        ({"hidden_size": True}, {}, "'hidden_size' is True, expected an integer"),
        ({"rms_norm_eps": "x"}, {}, "'rms_norm_eps' is 'x', expected a finite number"),
        ({"rms_norm_eps": float("nan")}, {}, "expected a finite number"),
        ({"rms_norm_eps": -1.0}, {}, "rms_norm_eps is -1.0, expected positive"),
        ({"attention_bias": "no"}, {}, "expected true or false"),
        ({"layer_types": "full"}, {}, "expected a list"),
        ({"layer_types": [1, 2]}, {}, "expected a list of strings"),
        ({"layer_types": ["full_attention"]}, {}, "layer_types"),
        ({"layer_types": ["linear_attention"] * 2}, {}, "'linear_attention'"),
        ({"use_sliding_window": False}, {}, "'use_sliding_window' is False"),
        ({"dflash_config": []}, {}, "'dflash_config' is [], expected an object"),
        ({}, {"mask_token_id": None}, "mask_token_id' is missing"),
        ({}, {"mask_token_id": 320}, "mask_token_id is 320"),
        ({}, {"target_layer_ids": [1, "3"]}, "list of integers"),
        ({}, {"target_layer_ids": [1, 7]}, "the last layer"),
        ({}, {"target_layer_ids": [1, 12]}, "taps is (1, 12)"),
        ({}, {"use_swa": True, "swa_window_size": 0}, "sliding_window is 0"),
        ({"rope_parameters": {"rope_type": 3}}, {}, "'rope_parameters.rope_type' is 3, expected a"),
        ({"sharpen": 2}, {}, "unknown key 'sharpen' = 2"),
        ({"sharpen": "x" * 99}, {}, "xxx..., which may"),
        ({}, {"sharpen": 2}, "unknown key 'dflash_config.sharpen'"),
        ({"hidden_act": "gelu"}, {}, "'hidden_act' = 'gelu' is not supported"),
        ({"quantization_config": {"bits": 8}}, {}, "quantization_config"),
        ({"attention_sink_bias": True}, {}, "attention_sink_bias"),
        ({}, {"attention_value_scale": 2.0}, "attention_value_scale"),
        ({"sample_from_anchor": True}, {}, "sample_from_anchor"),
        ({}, {"conv_kernel_size": 2}, "has the keys of DFlash 2"),
        ({}, {"selector_top_k": 16}, "has the keys of DFlash 2"),
        ({"markov_rank": 256}, {}, "Markov head"),
        ({"architectures": ["DFlash2DraftModel"]}, {}, "lacks the keys of DFlash 2"),
        ({"architectures": ["DominoDraftModel"]}, {}, "DominoDraftModel is not supported"),
        ({"speculators_model_type": "dflash"}, {}, "speculators layout"),
        ({"aux_hidden_state_layer_ids": [2, 4]}, {}, "one higher"),
    ],
)
def test_bad_or_unsupported_keys_are_refused(top: Json, nested: Json, named: str) -> None:
    assert named in _refusal(_changed(top, nested))


def test_harmless_values_of_refused_keys_pass() -> None:
    neutral = {
        "attention_sink_bias": False,
        "attention_value_scale": 1.0,
        "sample_from_anchor": False,
        "partial_rotary_factor": 1.0,
        "quantization_config": None,
        "sharpen": None,
    }
    assert _parsed(_published() | neutral) == _parsed(_published())


@pytest.mark.parametrize("named", [["LlamaForCausalLM"], ["Qwen3VLForConditionalGeneration"], None])
def test_a_target_is_recognized(named: list[str] | None) -> None:
    """L16: a target checkpoint passed as the drafter."""
    raw = _published()
    del raw["dflash_config"]
    message = _refusal(raw | {"architectures": named})
    assert "looks like a target model" in message and "pass it as the target" in message


def test_missing_taps_are_refused_with_the_old_guess() -> None:
    """L01: the formula is wrong for most published checkpoints, so it is shown, never used."""
    raw = _published()
    raw["dflash_config"] = {"block_size": 8, "mask_token_id": 7}
    message = _refusal(raw)
    assert "'target_layer_ids' is missing" in message
    assert "would give 1,5, which is wrong for most" in message and "--taps" in message
    raw["num_target_layers"] = None
    assert "'num_target_layers' is missing too" in _refusal(raw)


def test_taps_can_be_given() -> None:
    """L01: what the user passes is used, whether or not the file names layers."""
    raw = _published()
    assert parse_config(raw, "config.json", taps=[0, 2, 6]).taps == (0, 2, 6)
    raw["dflash_config"] = {"block_size": 8, "mask_token_id": 7}
    assert parse_config(raw, "config.json", taps=(2, 4)).taps == (2, 4)


@pytest.mark.parametrize(
    ("taps", "said"),
    [
        ((2, 7), "--taps 2,7 does not fit config.json: drafter configuration: taps is (2, 7), "),
        ((99,), "--taps 99 does not fit config.json: drafter configuration: taps is (99,), "),
        ((1, 1), "expected layers without repetition"),
        ((-1,), "expected zero-based layer numbers"),
        ((), "--taps (empty) does not fit config.json: "),
    ],
)
def test_wrong_given_taps_are_blamed_and_not_the_file(taps: tuple[int, ...], said: str) -> None:
    with pytest.raises(CheckpointError) as raised:
        parse_config(_published(), "config.json", taps=taps)
    message = str(raised.value)
    assert said in message and message.startswith("--taps") and "correct the given taps" in message
    assert "correct the file" not in message and "\n" not in message


@pytest.mark.parametrize(
    ("depth", "num_taps", "expected"),
    [
        (36, 5, (1, 9, 17, 25, 33)),
        (40, 5, (1, 10, 19, 28, 37)),
        (61, 6, (1, 12, 24, 35, 47, 58)),
        (60, 6, (1, 12, 23, 35, 46, 57)),
        (48, 8, (1, 7, 14, 20, 26, 32, 39, 45)),
        (30, 1, (15,)),
    ],
)
def test_old_formula(depth: int, num_taps: int, expected: tuple[int, ...]) -> None:
    assert guessed_taps(depth, num_taps) == expected


_FACTORS = st.floats(1.0, 64.0)
_ROPE_TYPES: tuple[RopeType, ...] = ("default", "linear", "yarn", "llama3")
_LAYER_TYPES: tuple[LayerType, ...] = ("full_attention", "sliding_attention")
# Plain values, since the shape checks of the constructors draw random numbers of their own.
_ROPES = st.fixed_dictionaries(
    {
        "rope_type": st.sampled_from(_ROPE_TYPES),
        "theta": st.floats(2.0, 1e7),
        "factor": _FACTORS,
        "original_max_position_embeddings": st.integers(1, 8192),
        "attention_factor": st.none() | _FACTORS,
        "beta_fast": _FACTORS,
        "mscale": st.none() | _FACTORS,
        "mscale_all_dim": st.none() | _FACTORS,
        "truncate": st.booleans(),
        "high_freq_factor": st.floats(2.0, 8.0),
    }
)
_CONFIGS = st.fixed_dictionaries(
    {
        "hidden_size": st.integers(1, 4096),
        "intermediate_size": st.integers(1, 4096),
        "num_layers": st.just(2),
        "num_heads": st.just(8),
        "num_kv_heads": st.sampled_from([1, 2, 8]),
        "head_dim": st.just(64),
        "rms_norm_eps": st.floats(1e-7, 1e-3),
        "vocab_size": st.integers(100, 200),
        "block_size": st.integers(2, 32),
        "mask_token_id": st.integers(0, 99),
        "taps": st.permutations([1, 5, 9]).map(tuple),
        "num_target_layers": st.none() | st.integers(11, 90),
        "layer_types": st.tuples(*[st.sampled_from(_LAYER_TYPES)] * 2),
        "sliding_window": st.integers(1, 4096),
        "is_causal": st.none() | st.booleans(),
        "max_position_embeddings": st.integers(32, 10**6),
        "attention_bias": st.booleans(),
        "input_embedding_scale": st.floats(0.1, 100.0),
        "output_multiplier": st.floats(0.1, 2.0),
        "final_logit_softcapping": st.none() | st.floats(1.0, 50.0),
        "draft_vocab_size": st.none() | st.integers(1, 100),
    }
)


@given(values=_CONFIGS, rope_values=_ROPES)
def test_round_trip(values: dict[str, object], rope_values: dict[str, object]) -> None:
    rope = RopeConfig(**rope_values)  # pyright: ignore[reportArgumentType]: drawn by field name
    config = DrafterConfig(rope=rope, **values)  # pyright: ignore[reportArgumentType]: likewise
    text = json.dumps(render_config(config, "bfloat16"))
    assert _parsed(cast("Json", json.loads(text))) == config


def test_what_is_written_reads_like_a_published_file() -> None:
    config = replace(_parsed(_published()), is_causal=None)
    written = render_config(config, "float32")
    assert written["architectures"] == ["DFlashDraftModel"]
    assert written["block_size"] == 8 and written["rope_theta"] == 1e6
    assert "auto_map" not in written and "is_causal" not in written


def test_recorded_and_built_in_files_are_read(data_dir: Path) -> None:
    """Every config of the reference's own checkpoints, full of generic keys."""
    files = [p for p in data_dir.glob("golden/**/config.json") if p.parent.name != "target"]
    assert len(files) == 13
    for file in files:
        parse_config(cast("Json", json.loads(file.read_text())), str(file))


@pytest.mark.parametrize("rope_type", _ROPE_TYPES)
def test_transformers_takes_rendered_rope_whose_numbers_are_the_defaults(
    rope_type: RopeType,
) -> None:
    """L20: a key that our parser may guess is one that others may want."""
    rope = RopeConfig(rope_type=rope_type, factor=2.0, original_max_position_embeddings=64)
    config = LlamaConfig(
        hidden_size=64,
        num_attention_heads=2,
        max_position_embeddings=128,
        rope_parameters=render_rope(rope),
    )
    theirs = cast("torch.Tensor", LlamaRotaryEmbedding(config).inv_freq)
    torch.testing.assert_close(theirs, inverse_frequencies(rope, 32).inverse, rtol=1e-6, atol=0)
