"""From loaded models to a service that answers, and the defaults that a model brings."""

import asyncio
import json
import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

from blockdraft.decoding import Drafter, NoDrafter, SamplingParams, collect, decode
from blockdraft.engine import EngineConfig, WidthMode, build_engine, parse_width
from blockdraft.errors import CheckpointError, ConfigError, RequestError
from blockdraft.serving.assemble import Naming, Parts, assemble, num_draft_positions
from blockdraft.serving.generation_defaults import read_generation_defaults
from blockdraft.serving.service import GenerationDefaults, Service
from blockdraft.testing import RandomDrafter, TinySize, tiny_target

PARAMS = SamplingParams(max_new_tokens=12, ignore_eos=True)
PROMPT = (5, 9, 11)


def parts_of(drafter: Drafter, changes: Mapping[str, object] | None = None) -> Parts:
    target = tiny_target(size=TinySize(num_layers=2))
    mode = WidthMode("off")
    built = build_engine(
        target, drafter, EngineConfig(slots=3, max_context=100, kv_memory=1 << 20, width=mode)
    )
    given: dict[str, object] = {
        "target": target,
        "drafter": drafter,
        "width": mode,
        "built": built,
        "naming": Naming(model="tiny", drafter="oracle", aliases=("other",)),
        **(changes or {}),
    }
    return Parts(**given)  # pyright: ignore[reportArgumentType] # the tests' own values


async def answer(service: Service) -> tuple[int, ...]:
    ticket = await service.runner.submit(PROMPT, PARAMS, request_id="a")
    return collect(PROMPT, [commit async for commit in ticket]).token_ids


def test_a_service_answers_and_counts() -> None:
    parts = parts_of(NoDrafter(), {"info": {"dtype": "float64"}})
    assembled = assemble(parts)
    service = assembled.service
    assert not service.runner.is_alive
    assembled.runner.start()
    try:
        ids = asyncio.run(answer(service))
        assert service.runner.is_ready and service.metrics is not None
        text = service.metrics().decode()
    finally:
        assembled.close()
    expected = collect(PROMPT, decode(parts.target, NoDrafter(), PROMPT, PARAMS)).token_ids
    assert ids == expected
    assert service.names == ("tiny", "other")
    assert (service.vocab_size, service.stop_ids) == (96, (2, 3))
    assert (service.max_model_len, service.num_spec_tokens, service.drafter_name) == (100, 0, None)
    assert service.codec is None and service.grammar is None
    assert 'vllm:generation_tokens_total{engine="0",model_name="tiny"} 12.0' in text
    assert "float64" in text
    assert not service.runner.is_alive
    assembled.close()  # again: nothing


@pytest.mark.parametrize(("width", "num_drafts"), [("off", 0), ("fixed:3", 2), ("fixed:9", 4)])
def test_how_many_drafts_a_step_may_have(width: str, num_drafts: int) -> None:
    drafter = RandomDrafter(11, 5)
    assert num_draft_positions(drafter, parse_width(width)) == num_drafts
    assert num_draft_positions(drafter, WidthMode("auto")) == 4
    assert num_draft_positions(NoDrafter(), WidthMode("auto")) == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tool_parser": "nope"}, "unknown tool parser"),
        ({"reasoning_parser": "nope"}, "unknown reasoning parser"),
    ],
)
def test_settings_that_make_no_service(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        assemble(parts_of(NoDrafter(), changes))


def test_a_request_that_cannot_be_served_is_refused() -> None:
    assembled = assemble(parts_of(NoDrafter()))
    assembled.runner.start()
    try:
        with pytest.raises(RequestError, match="vocabulary"):
            asyncio.run(refused(assembled.service))
    finally:
        assembled.close()


async def refused(service: Service) -> None:
    await service.runner.submit((5, 1000), PARAMS)


def written(folder: Path, config: object) -> Path:
    (folder / "generation_config.json").write_text(json.dumps(config))
    return folder


def test_a_model_without_defaults(tmp_path: Path) -> None:
    assert read_generation_defaults(tmp_path) == GenerationDefaults()
    assert read_generation_defaults(written(tmp_path, {"eos_token_id": 2})) == GenerationDefaults()


def test_a_model_with_defaults(tmp_path: Path) -> None:
    config = {
        "do_sample": True,
        "temperature": 0.6,
        "top_k": 20,
        "top_p": 0.95,
        "min_p": 0,
        "repetition_penalty": 1.05,
    }
    assert read_generation_defaults(written(tmp_path, config)) == GenerationDefaults(
        temperature=0.6, top_k=20, top_p=0.95, min_p=0.0, repetition_penalty=1.05
    )


@pytest.mark.parametrize(
    ("config", "temperature"),
    [
        ({"do_sample": False}, 0.0),
        ({"do_sample": True}, None),
        ({"do_sample": False, "temperature": 0.7}, 0.7),
        ({"temperature": 1}, 1.0),
    ],
)
def test_whether_a_model_samples(
    tmp_path: Path, config: dict[str, object], temperature: float | None
) -> None:
    assert read_generation_defaults(written(tmp_path, config)).temperature == temperature


def test_a_top_k_of_minus_one_is_off(tmp_path: Path) -> None:
    assert read_generation_defaults(written(tmp_path, {"top_k": -1})).top_k == 0


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"temperature": "hot"}, "temperature is 'hot', which is no number"),
        ({"top_p": True}, "top_p is True"),
        ({"top_p": 2}, "top_p is 2.0; it must be"),
        ({"temperature": -1}, "correct the file"),
    ],
)
def test_defaults_that_nobody_could_sample_with(
    tmp_path: Path, config: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read_generation_defaults(written(tmp_path, config))


def test_defaults_that_are_no_json(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text("{")
    with pytest.raises(CheckpointError):
        read_generation_defaults(tmp_path)


def test_a_model_whose_tokenizer_allows_no_grammars_serves_without(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told at the start, once, and not by the first request."""
    from blockdraft.serving import assemble as module
    from blockdraft.testing.chat import chat_codec

    def refuse(*arguments: object, **named: object) -> None:
        raise ConfigError("this tokenizer can't be read")

    monkeypatch.setattr(module, "GrammarCompiler", refuse)
    target = tiny_target(size=TinySize(num_layers=2))
    target.text = chat_codec()
    with caplog.at_level(logging.WARNING, logger="blockdraft"):
        assembled = assemble(parts_of(NoDrafter(), {"target": target}))
    assert assembled.service.grammar is None
    assert "this tokenizer can't be read" in caplog.text
    assembled.close()
