"""How the parts of `blockdraft serve` are joined: names, threads, the banner, early signals."""

import logging
from argparse import Namespace
from pathlib import Path
from typing import cast

import pytest

from blockdraft.cli.pair import Conditions
from blockdraft.cli.serve_banner import Banner, announce, banner_lines
from blockdraft.cli.serve_settings import ServeSettings
from blockdraft.cli.serving import (
    model_args,
    model_names,
    server_config,
    warn_if_open,
)
from blockdraft.serving.log_lines import fields_of
from blockdraft.serving.logs import LogSettings
from blockdraft.serving.server_config import ServerConfig
from blockdraft.serving.service import Runner, Service
from blockdraft.serving.uvicorn_server import bind_socket

CONDITIONS = Conditions(
    target="./model",
    drafter="./drafter",
    block_size=8,
    width="auto",
    engine="native",
    dtype="bfloat16",
    quantize="int8",
    batch_invariant=None,
    device="cpu",
    threads=3,
    hardware="a processor, 4 cores",
    software="torch 9",
)


def banner_of(num_keys: int = 0, *, is_loopback: bool = True) -> Banner:
    return Banner(
        url="http://127.0.0.1:8000",
        conditions=CONDITIONS,
        names=("tiny", "other"),
        memory="16 slots, 512 tokens a request",
        num_keys=num_keys,
        is_loopback=is_loopback,
        has_playground=True,
    )


def service_of(num_spec_tokens: int = 7) -> Service:
    return Service(
        model_name="tiny",
        runner=cast("Runner", None),  # a banner asks nothing of it
        codec=None,
        vocab_size=10,
        stop_ids=(2,),
        max_model_len=512,
        num_spec_tokens=num_spec_tokens,
    )


def test_the_banner_says_what_runs() -> None:
    text = "\n".join(banner_lines(banner_of(), service_of()))
    assert "serves on http://127.0.0.1:8000\n" in text
    for part in (
        "tiny, other: ./model, native engine, bfloat16, rounded to int8, cpu",
        "./drafter, blocks of at most 8, width auto",
        "16 slots, 512 tokens a request",
        "3 torch threads; a processor, 4 cores",
        "none: this machine only",
        "output grammars: off",
    ):
        assert part in text
    assert "none: plain decoding" in "\n".join(banner_lines(banner_of(), service_of(0)))
    lines = banner_lines(banner_of(is_loopback=False), service_of())
    assert any("none: open to the network" in line for line in lines)


def test_the_banner_of_machines_is_one_log_line(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO, logger="blockdraft"):
        announce(banner_of(2), service_of(), LogSettings(format="json"))
    (record,) = caplog.records
    values = fields_of(record)
    assert record.message == "serving" and values["url"] == "http://127.0.0.1:8000"
    assert (values["api_keys"], values["max_model_len"], values["threads"]) == (2, 512, 3)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        (ServeSettings(), ("smollm2",)),
        (ServeSettings(target="owner/model"), ("owner/model",)),
        (ServeSettings(served_model_name=("a", "b")), ("a", "b")),
    ],
)
def test_what_clients_call_the_model(settings: ServeSettings, names: tuple[str, ...]) -> None:
    assert model_names(settings) == names


def test_a_path_is_not_told_to_clients(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    assert model_names(ServeSettings(target=f"{folder}/.")) == ("my-model",)
    (tmp_path / "other.gguf").touch()
    assert model_names(ServeSettings(target=str(tmp_path / "other.gguf"))) == ("other",)


def test_a_drafter_that_drafts_nothing_takes_no_width() -> None:
    args: Namespace = model_args(ServeSettings(threads=5))
    assert (args.width, args.threads) == (None, 5)
    assert model_args(ServeSettings(width="fixed:4")).width == "fixed:4"


def test_settings_reach_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BLOCKDRAFT_API_KEY", raising=False)
    settings = ServeSettings(api_key=("k",), max_body=9, request_timeout=2.0, no_playground=True)
    config = server_config(settings)
    assert (config.api_keys, config.max_body_bytes, config.request_seconds) == (("k",), 9, 2.0)
    assert not config.playground and not config.trust_request_chat_template


@pytest.mark.parametrize(("slots", "max_waiting", "most"), [(2, 3, 5), (16, 128, 64)])
def test_a_request_asks_for_no_more_answers_than_can_wait_and_run(
    slots: int, max_waiting: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BLOCKDRAFT_API_KEY", raising=False)
    settings = ServeSettings(slots=slots, max_waiting=max_waiting)
    assert server_config(settings).max_choices == most


@pytest.mark.parametrize(
    ("host", "keys", "num_warnings"),
    [("127.0.0.1", (), 0), ("0.0.0.0", (), 1), ("0.0.0.0", ("k",), 0)],
)
def test_an_open_door_is_told(
    host: str, keys: tuple[str, ...], num_warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    with bind_socket(host, 0) as bound, caplog.at_level(logging.WARNING, logger="blockdraft"):
        warn_if_open(bound, ServerConfig(api_keys=keys))
    assert len(caplog.records) == num_warnings
