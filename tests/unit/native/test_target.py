"""`NativeTarget` against transformers: every pass, every family, fp64 and fp32.

Layouts of several requests in one pass are in test_model.py, quantized weights in
test_quantized.py.
"""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import count
from typing import cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from blockdraft.decoding import (
    NoDrafter,
    SamplingParams,
    TargetOutput,
    TargetState,
    collect,
    decode,
)
from blockdraft.errors import ConfigError, RequestError, UnsupportedTarget
from blockdraft.native import NativeOptions, NativeTarget, why_not_native
from blockdraft.target.hf import HFTarget
from blockdraft.testing import (
    OracleDrafter,
    ScriptedTarget,
    TinySize,
    script_logits,
    tiny_config,
    tiny_model,
)
from blockdraft.testing.tiny import Family

NATIVE: tuple[Family, ...] = ("llama", "qwen2", "qwen3", "mistral", "qwen2_sliding")
TAPS = (0, 2)
TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-3}
TREE = (-1, 0, 1, 0, 3, 3)
IDS = tuple((37 * i * i + 11 * i + 5) % 92 + 4 for i in range(64))


def steady_clock() -> Callable[[], float]:
    """One second a call, so that no measurement decides a test."""
    ticks = count()
    return lambda: float(next(ticks))


def randomized(model: PreTrainedModel) -> PreTrainedModel:
    """Norms away from 1 and biases away from 0: as they are made they would hide mistakes."""
    generator = torch.Generator().manual_seed(9)
    for weight in model.parameters():
        if weight.dim() == 1:
            noise = 0.3 * torch.randn(weight.shape, generator=generator)
            weight.data = weight.data + noise.to(weight.dtype)
    return model


def model_of(config: PreTrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = cast(
            PreTrainedModel,
            AutoModelForCausalLM.from_config(config, attn_implementation="sdpa"),
        )
    for weight in model.parameters():
        weight.data = weight.data.to(dtype)
    return randomized(model)


@cache
def pair(
    family: Family, dtype: torch.dtype = torch.float64, tied: bool = False
) -> tuple[HFTarget, NativeTarget]:
    """The same weights on transformers and on the native decoder."""
    size = TinySize(tied=tied)
    return (
        HFTarget(randomized(tiny_model(family, dtype=dtype, size=size))),
        NativeTarget(randomized(tiny_model(family, dtype=dtype, size=size)), clock=steady_clock()),
    )


def everything(state: TargetState, ids: Sequence[int], *, trees: bool = True) -> list[TargetOutput]:
    """A prompt in chunks, chains with every kind of commit, trees, a prompt again."""
    fed = torch.tensor(ids)
    outputs = [state.prefill(fed[:7]), state.prefill(fed[7:12])]
    for parents, rows, path in (
        (None, fed[12:17], (0, 1, 2)),
        (TREE, fed[17:23], (0, 3, 5)),
        (None, fed[23:24], (0,)),
        (TREE, fed[24:30], (0, 1, 2)),
        (None, fed[30:34], ()),
        ((-1, -1, 1), fed[34:37], (1, 2)),
        (None, fed[37:39], (0, 1)),
    ):
        if parents is not None and not trees:
            continue
        outputs.append(state.verify(rows, parents))
        state.commit(path)
    outputs.append(state.prefill(fed[39:58]))
    outputs.append(state.verify(fed[58:64]))
    state.commit((0,))
    return outputs


def assert_equal_outputs(
    got: Sequence[TargetOutput], want: Sequence[TargetOutput], tolerance: float
) -> None:
    for ours, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(ours.logits, theirs.logits, atol=tolerance, rtol=0)
        assert (ours.features is None) == (theirs.features is None)
        if ours.features is not None:
            torch.testing.assert_close(ours.features, theirs.features, atol=tolerance, rtol=1e-3)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("family", NATIVE)
def test_every_pass_equals_transformers(family: Family, dtype: torch.dtype, tied: bool) -> None:
    """Chunks, chains, trees, gathers and features (C07, C08: positions after a roll back)."""
    theirs, ours = pair(family, dtype, tied)
    states = ours.open(TAPS), theirs.open(TAPS)
    # Transformers masks no trees beside a sliding window.
    trees = family not in ("mistral", "qwen2_sliding")
    got, want = (everything(state, IDS, trees=trees) for state in states)
    assert_equal_outputs(got, want, TOLERANCE[dtype])
    assert states[0].context_len == states[1].context_len
    assert got[0].features is not None and got[0].features.shape == (7, 2 * 32)


@pytest.mark.parametrize("family", NATIVE)
def test_a_tree_equals_its_branches_run_alone(family: Family) -> None:
    _, ours = pair(family)
    state = ours.open()
    state.prefill(torch.tensor(IDS[:20]))
    rows = torch.tensor(IDS[20:26])
    together = state.verify(rows, TREE).logits
    state.commit([])
    for leaf, path in ((2, [0, 1, 2]), (4, [0, 3, 4]), (5, [0, 3, 5])):
        alone = state.verify(rows[path]).logits
        state.commit([])
        torch.testing.assert_close(together[path], alone, atol=1e-9, rtol=0)
        assert path[-1] == leaf


@given(
    family=st.sampled_from(NATIVE),
    cuts=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9), st.booleans()), max_size=8),
)
def test_any_cut_of_a_text_gives_the_logits_of_one_pass(
    family: Family, cuts: list[tuple[int, int, bool]]
) -> None:
    """Chunks and verifications of any size, rejected rows between them (C07)."""
    _, ours = pair(family)
    ids = torch.tensor(IDS)
    whole = ours.open().verify(ids).logits
    state = ours.open()
    state.prefill(ids[:1])
    for num_fed, num_wrong, is_prompt in cuts:
        at = state.context_len
        right = ids[at : at + num_fed]
        if not right.numel():
            break
        if is_prompt:
            logits = state.prefill(right).logits
            torch.testing.assert_close(logits[0], whole[state.context_len - 1], atol=1e-9, rtol=0)
            continue
        wrong = (right.new_zeros(num_wrong) + at) % 96
        logits = state.verify(torch.cat((right, wrong))).logits
        state.commit(range(len(right)))
        torch.testing.assert_close(
            logits[: len(right)], whole[at : at + num_fed], atol=1e-9, rtol=0
        )


def test_long_prompts_take_several_passes() -> None:
    """More rows than a folded mask, and than one prefill pass, takes; and a window far behind."""
    for family in ("qwen3", "mistral"):
        size = TinySize(max_context_len=700, window=40)
        theirs = HFTarget(tiny_model(family, size=size))
        ours = NativeTarget(tiny_model(family, size=size), clock=steady_clock())
        ids = torch.arange(600) * 7 % 96
        got, want = ours.open(TAPS), theirs.open(TAPS)
        assert_equal_outputs(
            [got.prefill(ids), got.prefill(ids[:70]), got.verify(ids[:3])],
            [want.prefill(ids), want.prefill(ids[:70]), want.verify(ids[:3])],
            1e-5,
        )


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0},
        {"rope_type": "yarn", "factor": 4.0, "rope_theta": 5000.0},
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
            "rope_theta": 10000.0,
        },
    ],
    ids=lambda rope: str(rope["rope_type"]),
)
def test_rotary_scalings(rope: dict[str, object]) -> None:
    config = tiny_config("llama")
    config.rope_parameters = rope
    theirs = HFTarget(model_of(config, torch.float64))
    ours = NativeTarget(model_of(config, torch.float64), clock=steady_clock())
    assert_equal_outputs(everything(ours.open(TAPS), IDS), everything(theirs.open(TAPS), IDS), 1e-5)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_biases_everywhere_and_any_number_of_key_heads(heads: int) -> None:
    config = tiny_config("llama")
    config.attention_bias = config.mlp_bias = True
    config.num_key_value_heads = heads
    theirs = HFTarget(model_of(config, torch.float64))
    ours = NativeTarget(model_of(config, torch.float64), clock=steady_clock())
    assert_equal_outputs(everything(ours.open(), IDS), everything(theirs.open(), IDS), 1e-5)


def changed(family: Family, **changes: object) -> PreTrainedConfig:
    config = tiny_config(family)
    for name, value in changes.items():
        setattr(config, name, value)
    return config


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (tiny_config("gemma2"), "model type gemma2 is not one of llama"),
        (tiny_config("gemma3"), "model type gemma3_text"),
        (changed("llama", hidden_act="gelu"), "its activation is gelu, not silu"),
        (
            changed("llama", rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4}),
            "rotary scaling dynamic",
        ),
        (
            changed("llama", rope_parameters={"rope_type": "longrope", "rope_theta": 1e4}),
            "rotary scaling longrope",
        ),
        (
            changed(
                "qwen3", rope_parameters={"rope_type": "default", "partial_rotary_factor": 0.5}
            ),
            "only a part (0.5) of each head is rotated",
        ),
        (changed("llama", pretraining_tp=2), "pretraining_tp"),
    ],
)
def test_other_shapes_are_refused_with_the_reason(config: PreTrainedConfig, reason: str) -> None:
    found = why_not_native(config)
    assert found is not None and reason in found


@pytest.mark.parametrize("family", NATIVE)
def test_fitting_shapes_are_not_refused(family: Family) -> None:
    assert why_not_native(tiny_config(family)) is None


def test_a_refused_model_raises_when_it_is_made() -> None:
    with pytest.raises(UnsupportedTarget, match="tiny does not fit the native engine: model type"):
        NativeTarget(tiny_model("gemma2"), name="tiny")


def test_a_model_that_computes_something_else_is_refused() -> None:
    """What a configuration doesn't say shows in the trial: here each layer adds a constant."""
    model = tiny_model("llama")
    layer = model.get_submodule("model.layers.1.mlp")

    def add_one(module: torch.nn.Module, args: object, output: torch.Tensor) -> torch.Tensor:
        return output + 1.0

    layer.register_forward_hook(add_one)
    with pytest.raises(UnsupportedTarget):
        NativeTarget(model)


def test_requests_that_cannot_be_fed() -> None:
    _, ours = pair("qwen3")
    state = ours.open()
    with pytest.raises(RequestError):
        state.prefill(torch.tensor([96]))
    with pytest.raises(RequestError):
        state.prefill(torch.zeros(513, dtype=torch.long))
    assert state.context_len == 0
    with pytest.raises(ConfigError, match="tap 3 is no layer of"):
        ours.open((3,))
    with pytest.raises(ConfigError):
        ours.open((-1,))


def test_states_of_one_model_do_not_touch_each_other() -> None:
    """R03 on the native decoder: interleaved requests equal requests alone."""
    _, ours = pair("qwen3")
    one, two = ours.open(), ours.open()
    texts = torch.tensor(IDS[:30]), torch.tensor(IDS[30:60])
    interleaved: list[torch.Tensor] = []
    for start in range(0, 30, 5):
        for state, text in zip((one, two), texts, strict=True):
            interleaved.append(state.verify(text[start : start + 5]).logits)
            state.commit(range(5))
    for which, text in enumerate(texts):
        alone = ours.open().verify(text).logits
        torch.testing.assert_close(torch.cat(interleaved[which::2]), alone, atol=1e-9, rtol=0)


def test_embedding_and_head_are_the_model_s() -> None:
    for family in ("qwen2", "llama"):
        theirs, ours = pair(family)
        ids = torch.tensor([[5, 6], [7, 8]])
        assert torch.equal(ours.embed(ids), theirs.embed(ids))
        hidden = torch.randn(2, 3, 32, dtype=torch.float64)
        subset = torch.tensor([3, 1, 95])
        for vocab_ids in (None, subset):
            got, want = ours.head(vocab_ids)(hidden), theirs.head(vocab_ids)(hidden)
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize("family", NATIVE)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_batch_invariant_bits_do_not_depend_on_the_cut(family: Family, dtype: torch.dtype) -> None:
    """Whatever is verified beside a token, and however its context was cut, its bits are one."""
    ours = NativeTarget(
        randomized(tiny_model(family, dtype=dtype)),
        options=NativeOptions(batch_invariant=8),
        clock=steady_clock(),
    )
    ids = torch.tensor(IDS)
    rows: list[list[torch.Tensor]] = []
    for widths in ((1,) * 30, (8, 8, 8, 6), (3, 5, 1, 8, 7, 6), (2,) * 15):
        state = ours.open()
        state.prefill(ids[:20])
        got: list[torch.Tensor] = []
        for width in widths:
            at = state.context_len
            right = ids[at : at + width]
            wrong = ids[: 8 - width]
            got += [*state.verify(torch.cat((right, wrong))).logits[:width]]
            state.commit(range(width))
        rows.append(got)
    for other in rows[1:]:
        assert all(torch.equal(a, b) for a, b in zip(rows[0], other, strict=True))
    with pytest.raises(ConfigError, match="does not fit the fixed width 8"):
        ours.open().verify(ids[:9])


def script_of(prompt: Sequence[int], text: Sequence[int]) -> ScriptedTarget:
    """A target that says `text` after `prompt`, for oracles: they ask for many passes."""
    return ScriptedTarget(script_logits(96, [*prompt, *text]), 96)


def test_batch_invariant_text_is_one_in_bfloat16() -> None:
    """C01, C05: plain and drafted decoding agree where bfloat16 would otherwise flip near-ties."""
    ours = NativeTarget(
        tiny_model("qwen3", dtype=torch.bfloat16),
        options=NativeOptions(batch_invariant=6),
        clock=steady_clock(),
    )
    params = SamplingParams(max_new_tokens=60, ignore_eos=True)
    plain = collect(IDS[:9], decode(ours, NoDrafter(), IDS[:9], params))
    script = script_of(IDS[:9], plain.token_ids)
    for num_right in (0, 2, None):
        drafter = OracleDrafter(script, 6, num_right=num_right)
        assert collect(IDS[:9], decode(ours, drafter, IDS[:9], params)).token_ids == plain.token_ids


@settings(max_examples=8)
@given(st.integers(0, 1000), st.sampled_from(NATIVE))
def test_the_reference_loop_gives_the_same_text(seed: int, family: Family) -> None:
    theirs, ours = pair(family)
    prompt = tuple((seed * 31 + 7 * i) % 96 for i in range(1 + seed % 20))
    params = SamplingParams(max_new_tokens=24, temperature=0.8 * (seed % 2), seed=seed)
    want = collect(prompt, decode(theirs, NoDrafter(), prompt, params))
    drafter = OracleDrafter(script_of(prompt, want.token_ids), 5, num_right=2)
    got = collect(prompt, decode(ours, drafter, prompt, params))
    assert (got.token_ids, got.finish_reason) == (want.token_ids, want.finish_reason)
