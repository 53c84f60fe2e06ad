"""Settings of `blockdraft serve`: flags, file, environment, and the page that lists them."""

import json
import os
import re
import socket
import subprocess
import sys
from argparse import ArgumentParser
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.cli import serve
from blockdraft.cli.main import main
from blockdraft.cli.serve_file import read_config_file
from blockdraft.cli.serve_flags import SETTINGS, shown_default
from blockdraft.cli.serve_keys import collect_keys
from blockdraft.cli.serve_settings import ServeSettings
from blockdraft.errors import ConfigError
from blockdraft.parsing import REASONING_PARSERS, TOOL_PARSERS

ROOT = Path(__file__).parents[3]


def settings_of(*argv: str) -> ServeSettings:
    parser = ArgumentParser()
    serve.add_arguments(parser)
    return serve.resolve(parser.parse_args(argv))


def written(folder: Path, text: str) -> Path:
    path = folder / "blockdraft.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_setting_has_a_flag() -> None:
    assert [setting.key for setting in SETTINGS] == [field.name for field in fields(ServeSettings)]


def test_choices_are_those_of_the_parsers() -> None:
    """They are named twice, so that `blockdraft --help` need not import parsers."""
    choices = {setting.key: setting.choices for setting in SETTINGS}
    assert choices["tool_parser"] == TOOL_PARSERS
    assert choices["reasoning_parser"] == REASONING_PARSERS


def test_nothing_given_is_the_defaults() -> None:
    assert settings_of() == ServeSettings()
    assert ServeSettings().host == "127.0.0.1"


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        'target = "there"\nport = 9000\nmax-context = 512\ntaps = [1, 2]\nkv_memory = "2MB"\n'
        'served_model_name = ["a", "b"]\nno_playground = true\nrequest_timeout = 2.5\n',
    )
    got = settings_of("--config", str(path), "--port", "0", "--served-model-name", "c")
    assert (got.target, got.port, got.max_context, got.taps) == ("there", 0, 512, (1, 2))
    assert (got.kv_memory, got.served_model_name) == (2_000_000, ("c",))
    assert got.no_playground and got.request_timeout == 2.5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slots = 2\nprot = 1\n", "line 2: unknown key 'prot'; did you mean port?"),
        ("zzzzzzzz = 1\n", "line 1: unknown key 'zzzzzzzz'; known are target,"),
        ("[http]\nport = 1\n", "line 1: [http] is a table"),
        ("port = 70000\n", "line 1: port: '70000' is not a port"),
        ("port = true\n", "port is True"),
        ("host = 1\n", 'write it in quotes: "1"'),
        ("no_playground = 1\n", "expected true or false"),
        ('api_key = "a"\n', "is no list"),
        ('\ndtype = "half"\n', "line 2: dtype is 'half'; choose one of"),
        ('kv_memory = "much"\n', "is not an amount of memory"),
        ("max-context = 1\nmax_context = 2\n", "line 2: max_context is given twice"),
        ("port = \n", "is not TOML"),
        ("request_timeout = 0\n", "is not a time in seconds above 0"),
        ("request_timeout = nan\n", "is not a time in seconds above 0"),
        ("max_waiting = -1\n", "is not a whole number of at least 0"),
    ],
)
def test_mistakes_in_the_file_name_the_line(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError, match=re.escape(message)) as raised:
        read_config_file(path)
    assert str(path) in str(raised.value) and "\n" not in str(raised.value).split(": ")[0]


@given(st.text(max_size=60))
def test_any_file_is_settings_or_one_error(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(text.encode("utf-8", errors="surrogatepass"))
    with suppress(ConfigError):
        assert read_config_file(path).keys() <= {setting.key for setting in SETTINGS}


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read: No such file"):
        read_config_file(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--port", "-1"], "is not a port"),
        (["--drain-timeout", "0"], "is not a time in seconds"),
        (["--host", " "], "--host is empty"),
        (["--served-model-name", "a", "--served-model-name", "a"], "names a model twice"),
        (["--tool-parser", "nope"], "invalid choice"),
        (["--check", "--api-key", " "], "--api-key is empty"),
        (["--check", "--width", "wide"], "is not a width"),
        (["--check", "--target", "owner/other"], "no drafter is known for owner/other"),
        (
            ["--drafter", "none", "--host", "no.such.host.invalid"],
            "is no address",
        ),
        (["--check", "--api-key-file", "/no/such/file"], "can't be read"),
    ],
)
def test_mistakes_are_one_line(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["serve", *argv])
    except SystemExit as left:  # argparse's own
        code = left.code
    told = capsys.readouterr().err
    assert code == 2 and message in told and told.count("\n") == 1


def test_a_port_in_use_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """It is found before any model is loaded."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        argv = ["serve", "--target", "x", "--drafter", "none", "--port", str(port)]
        assert main(argv) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and f"can't listen on 127.0.0.1 port {port}: " in told


def test_a_missing_extra_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(serve, "EXTRA", ("fastapi", "no_such_package"))
    assert main(["serve"]) == 2
    told = capsys.readouterr().err
    assert "no_such_package" in told and "pip install 'blockdraft[serve]'" in told


def test_check_prints_what_is_set_and_no_key(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BLOCKDRAFT_API_KEY", "sesame")
    argv = ["--check", "--target", "x", "--drafter", "none", "--port", "0", "--threads", "3"]
    assert main(["serve", *argv, "--api-key", "open"]) == 0
    told = capsys.readouterr().out
    document = json.loads(told)
    assert document["api_key"] == "2 in all" and document["threads"] == 3
    assert document["served_model_name"] == ["x"] and document["port"] == 0
    assert "sesame" not in told


def test_threads_are_those_of_the_environment_unless_given() -> None:
    """A process of its own: torch reads OMP_NUM_THREADS once. Eight cores: one each would be 7."""
    argv = ["serve", "--check", "--target", "x", "--drafter", "none", "--port", "0"]
    code = (
        "from blockdraft.serving import cores\n"
        "cores.num_usable_cores = lambda: 8\n"
        "from blockdraft.cli.main import main\n"
        f"assert main({argv!r}) == main({[*argv, '--threads', '3']!r}) == 0"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    decoder, threads, text = json.JSONDecoder(), list[int](), done.stdout.strip()
    while text:
        document, end = decoder.raw_decode(text)
        threads.append(document["threads"])
        text = text[end:].strip()
    assert threads == [1, 3]


def test_keys_come_from_three_places(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# one for each client\nsecond\n\n  third \nfirst\n")
    settings = ServeSettings(api_key=("first",), api_key_file=str(path))
    environment = {"BLOCKDRAFT_API_KEY": "fourth\n"}
    assert collect_keys(settings, environment) == ("first", "second", "third", "fourth")
    assert collect_keys(ServeSettings(), {}) == ()


@pytest.mark.parametrize(
    ("content", "environment", "message"),
    [
        ("# nothing\n", {}, "holds no key"),
        ("two words\n", {}, "holds spaces"),
        ("key\n", {"BLOCKDRAFT_API_KEY": " "}, "is set and empty"),
        ("k\u00e9y\n", {}, "outside ASCII"),
    ],
)
def test_keys_that_could_not_be_sent(
    tmp_path: Path, content: str, environment: dict[str, str], message: str
) -> None:
    path = tmp_path / "keys"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=message) as raised:
        collect_keys(ServeSettings(api_key_file=str(path)), environment)
    assert "k\u00e9y" not in str(raised.value)


def test_the_guide_lists_every_flag_with_its_default() -> None:
    """U06: docs/serving.md has one row for each setting, in this order, and no other flag."""
    text = (ROOT / "docs" / "serving.md").read_text()
    rows = re.findall(r"^\| `(--[a-z-]+)[^`]*` \| (.*) \| (.*) \|$", text, re.MULTILINE)
    expected = [
        (setting.flag, shown_default(setting).strip(" ()").removeprefix("default: "))
        for setting in SETTINGS
    ]
    assert [(flag, default.strip("`")) for flag, _, default in rows][: len(expected)] == [
        (flag, default or "-") for flag, default in expected
    ]


def test_the_example_is_a_valid_file(tmp_path: Path) -> None:
    """Also with all that is commented out in it."""
    path = ROOT / "deploy" / "blockdraft.toml"
    assert settings_of("--config", str(path)).log_format == "json"
    everything = re.sub(r"^# (?=[a-z_]+ = )", "", path.read_text(), flags=re.MULTILINE)
    assert settings_of("--config", str(written(tmp_path, everything))).kv_memory == 4 << 30
