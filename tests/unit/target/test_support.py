"""Models that can't be rolled back are refused when they are loaded, with the reason (C05, C09)."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from jaxtyping import Int
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
)

from blockdraft.decoding.interfaces import TargetModel, TargetOutput
from blockdraft.errors import CheckpointError, ConfigError, UnsupportedTarget
from blockdraft.target.hf import HFTarget
from blockdraft.target.spec import context_limit
from blockdraft.target.support import (
    LEAST_TRIAL_LEN,
    close_enough,
    trial_ids,
    trial_len,
    trial_words,
    try_attention,
    try_invariance,
    try_rollback,
)
from blockdraft.testing import ScriptedTarget, ToyRecurrentTarget, hashed_logits
from blockdraft.testing.scripted import ScriptedState
from blockdraft.testing.tiny import TinySize, tiny_model

SHAPE: dict[str, object] = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
EXPERTS: dict[str, object] = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}

REFUSED: list[tuple[str, dict[str, object], str]] = [
    ("recurrent_gemma", {"lru_width": 32, "attention_window_size": 8}, "recurrent state"),
    ("rwkv", {"attention_hidden_size": 32}, "recurrent state"),
    ("minimax", {"num_local_experts": 2}, "lightning attention"),
    ("opt", {"ffn_dim": 64, "word_embed_proj_dim": 16}, "projects its embeddings"),
]


def build(model_type: str, extra: dict[str, object]) -> PreTrainedModel:
    config = AutoConfig.for_model(model_type, **{**SHAPE, **extra})
    return cast(PreTrainedModel, AutoModelForCausalLM.from_config(config))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("model_type", "extra", "reason"), REFUSED, ids=[case[0] for case in REFUSED]
)
def test_families_that_keep_a_state_are_refused_at_load_c05(
    model_type: str, extra: dict[str, object], reason: str
) -> None:
    with pytest.raises(UnsupportedTarget, match=reason):
        HFTarget(build(model_type, extra), name=model_type)


def test_encoder_decoders_are_refused() -> None:
    config = T5Config(vocab_size=64, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    with pytest.raises(UnsupportedTarget, match="encoder-decoder"):
        HFTarget(T5ForConditionalGeneration(config))


FAMILIES_THAT_WORK = ["gpt2", "gpt_neox", "opt", "phi", "olmo2", "granite", "smollm3", "starcoder2"]


@pytest.mark.parametrize("model_type", FAMILIES_THAT_WORK)
def test_other_attention_families_are_accepted_and_rolled_back(model_type: str) -> None:
    extra = {
        "gpt2": {"n_embd": 32, "n_layer": 4, "n_head": 4, "n_positions": 128},
        "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32},
    }.get(model_type, {})
    state = HFTarget(build(model_type, dict(extra))).open(taps=(0, 3))
    fresh = HFTarget(build(model_type, dict(extra))).open()
    assert fresh.context_len == 0
    ids = torch.arange(10, 22)
    state.prefill(ids)
    before = state.verify(torch.tensor([3, 4])).logits
    state.commit([])
    state.verify(torch.tensor([90, 91, 92]))
    state.commit([])
    after = state.verify(torch.tensor([3, 4]))
    assert torch.equal(before, after.logits)
    assert after.features is not None and after.features.shape == (2, 64)


class LeakyState(ScriptedState):
    """Forgets nothing: a rejected row stays in the context, as in a cache without a crop."""

    def commit(self, rows: Sequence[int]) -> None:
        super().commit(rows)
        if not rows:
            self.ids += (0,)


def reference_of(target: TargetModel) -> Tensor:
    ids = trial_ids(target.spec.vocab_size)
    return target.open().verify(torch.tensor(ids)).logits


def test_the_trial_finds_a_state_that_keeps_rejected_rows_c09() -> None:
    target = ScriptedTarget(hashed_logits(16, seed=4), 16)
    try_rollback("good", target.open(), reference_of(target))
    with pytest.raises(UnsupportedTarget, match="leave traces"):
        try_rollback("leaky", LeakyState(target, ()), reference_of(target))


def test_the_trial_finds_a_cache_that_changes_the_model() -> None:
    one = ScriptedTarget(hashed_logits(16, seed=4), 16)
    other = ScriptedTarget(hashed_logits(16, seed=5), 16)
    with pytest.raises(UnsupportedTarget, match="differ from those without"):
        try_rollback("other", one.open(), reference_of(other))


@pytest.mark.parametrize("rollback", ["keep", "replay"])
def test_recurrent_targets_that_do_roll_back_pass_the_trial(rollback: str) -> None:
    target = ToyRecurrentTarget(rollback="keep" if rollback == "keep" else "replay")
    try_rollback("toy", target.open(), reference_of(target))


def test_weights_that_give_no_numbers_are_named() -> None:
    model = tiny_model("llama")
    weight = cast(Tensor, cast(nn.Module, model.get_output_embeddings()).weight)
    with torch.no_grad():
        weight[3, 0] = float("nan")
    with pytest.raises(CheckpointError, match="not finite"):
        HFTarget(model)


def test_an_attention_that_does_not_fit_is_found() -> None:
    expected = torch.randn(5, 16, dtype=torch.float64)
    one_bad_row = expected.clone()
    one_bad_row[2] *= -3
    try_attention("ill-conditioned in one row", one_bad_row, expected)
    with pytest.raises(UnsupportedTarget, match="not plain softmax attention"):
        try_attention("another model", expected * 1.5, expected)


@pytest.mark.parametrize("vocab_size", [7, 8, 96, 50_000])
def test_trial_ids_are_distinct_and_not_the_special_ones(vocab_size: int) -> None:
    words = trial_words(vocab_size)
    assert len(set(words)) == 6 and min(words) > 0 and max(words) < vocab_size
    ids = trial_ids(vocab_size, 60)
    assert set(ids) == set(words[:5])
    assert ids[:LEAST_TRIAL_LEN] == trial_ids(vocab_size)


def test_the_trial_crosses_narrow_windows_and_fits_the_context() -> None:
    assert trial_len(None, None) == trial_len(4096, 10**6) == LEAST_TRIAL_LEN
    assert trial_len(40, None) == 45
    assert trial_len(40, 20) == 20


class ShortMemory(ScriptedState):
    """Loses what lies more than six tokens back whenever rows are rejected, as windows may."""

    def commit(self, rows: Sequence[int]) -> None:
        super().commit(rows)
        if not rows:
            self.ids = self.ids[-6:]


def test_the_trial_finds_a_window_that_is_cut_too_short() -> None:
    target = ScriptedTarget(hashed_logits(16, seed=4), 16)
    ids = torch.tensor(trial_ids(16, trial_len(7, None)))
    reference = target.open().verify(ids).logits
    with pytest.raises(UnsupportedTarget, match="leave traces"):
        try_rollback("short", ShortMemory(target, ()), reference)


def test_one_ill_conditioned_row_is_forgiven_in_16_bits_only() -> None:
    expected = torch.randn(3, 16)
    found = expected.clone()
    found[1] *= -1
    assert not close_enough(found, expected)
    assert close_enough(found.bfloat16(), expected.bfloat16())
    found[2] *= -1
    assert not close_enough(found.bfloat16(), expected.bfloat16())


class DriftingState(ScriptedState):
    """Its logits depend, in the last bit, on how many rows a pass has."""

    def verify(
        self, ids: Int[Tensor, " rows"], parents: Sequence[int] | None = None
    ) -> TargetOutput:
        output = super().verify(ids, parents)
        return output._replace(logits=output.logits * (1 + ids.numel() * 2.0**-52))


def test_batch_invariance_is_tried_out_not_believed() -> None:
    target = ScriptedTarget(hashed_logits(16, seed=4), 16)
    try_invariance("good", target.open, 4)
    with pytest.raises(UnsupportedTarget, match="batch-invariant"):
        try_invariance("drifting", lambda: DriftingState(target, ()), 4)


def test_experts_are_not_batch_invariant() -> None:
    """A mixture of experts groups its rows by expert, so the shapes vary with the neighbors."""
    extra = {**EXPERTS, "shared_expert_intermediate_size": 16}
    model = build("qwen3_moe", extra)
    HFTarget(model)
    with pytest.raises(UnsupportedTarget, match="batch-invariant"):
        HFTarget(model, batch_invariant=8)


def test_a_dtype_that_the_model_can_not_run_in_is_named() -> None:
    model = build("qwen3_moe", EXPERTS)
    nn.Module.to(model, torch.float64)
    with pytest.raises(UnsupportedTarget, match="float64"):
        HFTarget(model)


def test_models_with_their_own_attention_code_can_not_be_made_invariant() -> None:
    with pytest.raises(ConfigError, match="own attention code"):
        HFTarget(build("stablelm", {}), batch_invariant=8)


def test_long_rope_is_limited_to_its_first_table() -> None:
    """LongRoPE switches tables by the length of the pass, so wide passes would switch early."""
    model = tiny_model("llama", size=TinySize(max_context_len=256))
    model.config.rope_parameters = {
        "rope_type": "longrope",
        "original_max_position_embeddings": 64,
    }
    assert HFTarget(model).spec.max_context_len == 64


def test_long_rope_of_one_kind_of_layer_limits_the_model() -> None:
    tables = {
        "sliding_attention": {"rope_type": "default"},
        "full_attention": {"rope_type": "longrope", "original_max_position_embeddings": 32},
    }
    config = SimpleNamespace(max_position_embeddings=256, rope_parameters=tables)
    assert context_limit(config) == 32
    assert context_limit(SimpleNamespace(max_position_embeddings=256)) == 256
    assert context_limit(SimpleNamespace(max_seq_len=128)) == 128  # MPT's name
    assert context_limit(SimpleNamespace()) is None
