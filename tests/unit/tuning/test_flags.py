"""Flags of five engines, to the letter: each counts the tokens of a block in its own way."""

import json
from dataclasses import replace

import pytest

from blockdraft.engine import WidthMode
from blockdraft.launch import LaunchDrafter, LaunchTarget, PairForLaunch
from blockdraft.tuning.flags import (
    COSTS_DIFFER,
    EngineFlags,
    FlagsOrder,
    all_flags,
    engine_flags,
    own_flags,
    script_of,
)

PAIR = PairForLaunch(
    target=LaunchTarget(where="/m/target", layout="hf", num_heads=8),
    drafter=LaunchDrafter(where="/m/drafter", layout="hf", block_size=16, num_heads=8),
)
ORDER = FlagsOrder(
    target="/m/target",
    drafter="/m/drafter",
    pair=PAIR,
    own=WidthMode("fixed", 6),
    fixed=6,
    slots=4,
    device="cuda",
    serve_flags=("--dtype", "bfloat16"),
)


def one_line(flags: EngineFlags) -> str:
    assert flags.script is not None
    return " ".join(flags.script.replace("\\\n", " ").split())


def test_blockdraft_counts_the_anchor() -> None:
    flags = own_flags(ORDER)
    assert one_line(flags) == (
        "blockdraft serve --target /m/target --drafter /m/drafter --width fixed:6 --slots 4 "
        "--dtype bfloat16"
    )
    assert (flags.width, flags.drafts) == ("fixed:6", 5)


def test_blockdraft_auto_and_off() -> None:
    auto = own_flags(replace(ORDER, own=WidthMode("auto")))
    assert "--width auto" in one_line(auto)
    assert auto.drafts is None
    off = own_flags(replace(ORDER, own=WidthMode("off"), serve_flags=()))
    assert one_line(off) == "blockdraft serve --target /m/target --drafter none --slots 4"
    assert off.drafts == 0


def test_vllm_counts_drafts() -> None:
    flags = engine_flags(ORDER, "vllm")
    config = {"method": "dflash", "model": "/m/drafter", "num_speculative_tokens": 5}
    assert one_line(flags) == (
        f"vllm serve /m/target --speculative-config '{json.dumps(config)}' --host 127.0.0.1 "
        "--port 8000"
    )


def test_sglang_counts_the_anchor() -> None:
    flags = engine_flags(ORDER, "sglang")
    assert one_line(flags) == (
        "python -m sglang.launch_server --model-path /m/target --speculative-algorithm DFLASH "
        "--speculative-draft-model-path /m/drafter --speculative-num-draft-tokens 6 "
        "--host 127.0.0.1 --port 8000"
    )


def test_llamacpp_counts_drafts_and_reads_gguf() -> None:
    flags = engine_flags(ORDER, "llamacpp")
    assert flags.before == (
        "blockdraft export --format gguf --target /m/target --drafter /m/drafter --out pair-gguf",
    )
    assert one_line(flags) == (
        "llama-server -m pair-gguf/target.gguf -md pair-gguf/drafter.gguf --spec-type draft-dflash "
        "--spec-draft-n-max 5 --host 127.0.0.1 --port 8000 -fa on --jinja --metrics"
    )


def test_trtllm_counts_drafts_in_yaml() -> None:
    flags = engine_flags(ORDER, "trtllm")
    assert dict(flags.files) == {
        "trtllm.yaml": "speculative_config:\n"
        '  decoding_type: "DFlash"\n'
        "  max_draft_len: 5\n"
        '  speculative_model: "/m/drafter"\n'
    }
    assert flags.script is not None
    assert flags.script.startswith("cat > trtllm.yaml <<'END_OF_FILE'\n")
    assert "trtllm-serve /m/target" in flags.script
    assert "--config trtllm.yaml" in one_line(flags)


def test_a_reduced_vocabulary_is_exported_first() -> None:
    drafter = replace(PAIR.drafter, has_reduced_vocabulary=True)
    flags = engine_flags(replace(ORDER, pair=replace(PAIR, drafter=drafter)), "sglang")
    assert flags.before == (
        "blockdraft export --format hf --target /m/target --drafter /m/drafter --out drafter-hf",
    )
    assert "--speculative-draft-model-path drafter-hf" in one_line(flags)


def test_every_other_engine_is_told_to_be_measured() -> None:
    for flags in all_flags(ORDER)[1:]:
        assert COSTS_DIFFER in flags.notes
        assert flags.measure.startswith("blockdraft bench --endpoint http://127.0.0.1:8000 --model")
        assert flags.measure in script_of(flags)


def test_off_starts_them_without_a_drafter() -> None:
    for flags in all_flags(replace(ORDER, own=WidthMode("off"), fixed=None))[1:]:
        assert flags.script is None
        assert flags.drafts == 0
        assert flags.notes[0] == "start it without a drafter"
        assert "# nothing to set" in script_of(flags)


def test_what_an_engine_can_not_do_is_said() -> None:
    remote = replace(PAIR.drafter, where="owner/drafter", layout="remote")
    flags = engine_flags(replace(ORDER, pair=replace(PAIR, drafter=remote)), "trtllm")
    assert flags.script is None
    assert "TensorRT-LLM does not read the drafter" in flags.notes[0]


def test_prompt_lookup_is_nothing_for_others() -> None:
    flags = engine_flags(replace(ORDER, pair=None), "vllm")
    assert flags.script is None
    assert "no DFlash checkpoint" in flags.notes[0]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp", "trtllm"])
def test_counts_by_engine(engine: str) -> None:
    assert engine_flags(ORDER, engine).drafts == 5
