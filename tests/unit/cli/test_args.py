"""The flags cover the settings they stand for, and their help tells the truth."""

import re
from argparse import ArgumentParser, Namespace
from dataclasses import fields

import pytest

from blockdraft.cli import demo, generate, verify
from blockdraft.cli.args import add_sampling_args
from blockdraft.cli.comparison import NEAR_TIE
from blockdraft.cli.engines import engine_config
from blockdraft.cli.generation import choose_slots
from blockdraft.cli.main import COMMANDS, main
from blockdraft.cli.sampling import NOT_A_FLAG, read_sampling
from blockdraft.decoding import SamplingParams
from blockdraft.decoding.params import param_names
from blockdraft.engine import EngineConfig, WidthMode
from blockdraft.engine.config import DEFAULT_CONTEXT, DEFAULT_SLOTS
from blockdraft.errors import ConfigError, RequestError


def parse(*argv: str) -> Namespace:
    parser = ArgumentParser()
    generate.add_arguments(parser)
    return parser.parse_args(argv)


def test_every_setting_has_a_flag() -> None:
    """S15: no sampling setting is left out of the command line."""
    assert set(param_names()) - set(vars(parse())) == {NOT_A_FLAG}


@pytest.mark.parametrize("name", [*COMMANDS, "data features", "data regenerate"])
def test_help_of_threads_names_the_environment_variable(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*name.split(), "--help"])
    told = capsys.readouterr().out
    assert ("--threads N" in told) == ("OMP_NUM_THREADS" in told)


def test_no_flag_means_the_default_of_the_setting() -> None:
    assert read_sampling(parse()) == SamplingParams()


def test_every_flag_reaches_its_setting() -> None:
    """S15: no sampling flag is parsed and dropped."""
    args = parse(
        *("--max-new-tokens", "9", "--temperature", "0.5", "--top-k", "4", "--top-p", "0.9"),
        *("--min-p", "0.1", "--repetition-penalty", "1.1", "--presence-penalty", "-0.5"),
        *("--frequency-penalty", "0.25", "--logit-bias", "3=-2", "--logit-bias", "4=1.5"),
        *("--allowed-ids", "1,2", "--banned-ids", "5", "--min-tokens", "2", "--stop-ids", "6,7"),
        *("--stop", "END", "--stop", "\n\n", "--ignore-eos", "--seed", "11", "--logprobs", "2"),
        *("--law", "sampled", "--max-draft-tokens", "3"),
    )
    assert read_sampling(args) == SamplingParams(
        max_new_tokens=9,
        temperature=0.5,
        top_k=4,
        top_p=0.9,
        min_p=0.1,
        repetition_penalty=1.1,
        presence_penalty=-0.5,
        frequency_penalty=0.25,
        logit_bias={3: -2.0, 4: 1.5},
        allowed_ids=(1, 2),
        banned_ids=(5,),
        min_tokens=2,
        stop_ids=(6, 7),
        stop=("END", "\n\n"),
        ignore_eos=True,
        seed=11,
        logprobs=2,
        law="sampled",
        max_draft_tokens=3,
    )


def test_an_empty_bad_word_is_refused() -> None:
    with pytest.raises(RequestError, match="--bad-words"):
        read_sampling(parse("--bad-words", ""))


def test_two_biases_of_one_token_are_refused() -> None:
    """S15: the first one is not dropped in silence."""
    with pytest.raises(ConfigError, match="token id 5 is given twice"):
        read_sampling(parse("--logit-bias", "4=1", "--logit-bias", "5=1", "--logit-bias", "5=2"))


def test_help_states_the_defaults_of_sampling_params() -> None:
    parser = ArgumentParser()
    add_sampling_args(parser)
    stated = re.findall(r"--([a-z-]+) [NX]\s.*?\(default:\s+([\d.]+)\)", parser.format_help(), re.S)
    defaults = {field.name: field.default for field in fields(SamplingParams)}
    assert len(stated) >= 9
    for flag, value in stated:
        assert float(value) == defaults[flag.replace("-", "_")], flag


def test_verify_takes_the_same_sampling_flags() -> None:
    parser = ArgumentParser()
    verify.add_arguments(parser)
    args = parser.parse_args(["--temperature", "0.7", "--seed", "3", "--widths", "2,4"])
    assert read_sampling(args) == SamplingParams(temperature=0.7, seed=3)
    assert args.widths == (2, 4)


@pytest.mark.parametrize(
    ("flags", "slots"),
    [
        ([], 1),
        (["--prompts", "x"], DEFAULT_SLOTS),
        (["--prompts", "x", "--stream"], 1),
        (["--prompts", "x", "--concurrency", "4"], 4),
        (["--prompts", "x", "--slots", "4"], 4),
    ],
)
def test_prompts_of_a_file_run_together(flags: list[str], slots: int) -> None:
    assert choose_slots(parse(*flags)) == slots


def test_help_states_the_limits_of_the_engine() -> None:
    parser = ArgumentParser()
    generate.add_arguments(parser)
    words = " ".join(parser.format_help().split())
    assert f"(default: {DEFAULT_SLOTS}, with --stream 1)" in words
    assert f"(default: the target's limit, at most {DEFAULT_CONTEXT})" in words


def test_engine_arguments_reach_the_engine() -> None:
    """S15, for the engine: nothing is parsed and dropped."""
    args = parse("--max-context", "99", "--kv-memory", "2GB", "--no-prefix-reuse")
    config = engine_config(args, WidthMode("fixed", 3), slots=5)
    assert config == EngineConfig(
        slots=5,
        max_context=99,
        kv_memory=2 * 10**9,
        width=WidthMode("fixed", 3),
        reuse_prefixes=False,
    )
    assert engine_config(parse(), WidthMode()) == EngineConfig(slots=1)


def test_the_demo_reuses_no_prefixes() -> None:
    """P01: an answer timed again would get its prompt for free."""
    parser = ArgumentParser()
    demo.add_arguments(parser)
    assert not engine_config(parser.parse_args([]), WidthMode()).reuse_prefixes


def test_help_states_the_margins_of_near_ties() -> None:
    words = " ".join(verify.EPILOG.split())
    for dtype, margin in NEAR_TIE.items():
        number = re.search(rf"([\d.e-]+) for {dtype}", words)
        assert number is not None and float(number[1]) == margin
