"""Log lines: what they hold, what they never hold, and disks that fail."""

import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.errors import ConfigError, EngineFault
from blockdraft.serving.log_lines import FIELDS, JsonFormatter, LineFormatter, TextFormatter
from blockdraft.serving.log_writer import MOST_LINES, FileSink, LogWriter
from blockdraft.serving.logs import LogSettings, logging_as

SECRET = "the moon is made of cheese"
LOGGER = logging.getLogger("blockdraft")


class Disk:
    """A sink that is full at will, or blocks."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.is_full = False
        self.goes_on = threading.Event()
        self.goes_on.set()

    def write(self, data: bytes) -> None:
        self.goes_on.wait()
        if self.is_full:
            raise OSError(28, "No space left on device")
        self.lines += data.decode().splitlines()


def told(count: int, why: str) -> str:
    return f"lost {count}: {why}"


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def writer(disk: Disk) -> Iterator[LogWriter]:
    writer = LogWriter(disk, told)
    yield writer
    disk.goes_on.set()
    writer.close()


def record_of(
    message: str, values: dict[str, object], error: Exception | None = None
) -> logging.LogRecord:
    info = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord("blockdraft", logging.INFO, "", 0, message, (), info)
    record.created = 1_700_000_000.25
    setattr(record, FIELDS, values)
    return record


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:  # noqa: BLE001 - it is the test's own
        return caught


def test_a_text_line() -> None:
    line = TextFormatter(quotes=False).format(
        record_of("request", {"path": "/v1", "ms": 1.5, "tau": None, "end": "a b", "n": ""})
    )
    assert line == '2023-11-14T22:13:20.250Z info    request path=/v1 ms=1.5 end="a b" n=""'


@pytest.mark.parametrize("kind", [TextFormatter, JsonFormatter])
@given(message=st.text(), value=st.text() | st.integers() | st.floats() | st.lists(st.text()))
def test_a_record_is_one_line_whatever_it_says(
    kind: type[LineFormatter], message: str, value: object
) -> None:
    record = record_of("%s", {"value": value})
    record.args = (message,)
    line = kind(quotes=False).format(record)
    assert "\n" not in line and "\r" not in line
    if kind is JsonFormatter:
        assert json.loads(line)["event"] == message


@pytest.mark.parametrize("kind", [TextFormatter, JsonFormatter])
def test_tracebacks_quote_no_request(kind: type[LineFormatter]) -> None:
    """Where it happened is told, and the messages of our own and the system's errors."""
    outer = raised(KeyError(SECRET))
    outer.__cause__ = raised(OSError(28, "No space left on device"))
    line = kind(quotes=False).format(record_of("failed", {}, outer))
    assert SECRET not in line and "KeyError (its message may quote a request)" in line
    assert "test_logs.py" in line and "No space left on device" in line
    assert SECRET in kind(quotes=True).format(record_of("failed", {}, outer))
    fault = raised(EngineFault("a step failed"))
    assert "EngineFault: a step failed" in kind(quotes=False).format(record_of("", {}, fault))


def test_lost_lines_are_told_once(disk: Disk, writer: LogWriter) -> None:
    disk.is_full = True
    for number in range(3):
        writer.put(f"lost {number}")
    wait_for(lambda: not writer.num_waiting)
    disk.is_full = False
    writer.put("first")
    writer.put("second")
    writer.close()
    assert disk.lines == ["lost 3: No space left on device", "first", "second"]


def test_nobody_waits_for_a_disk_that_hangs(disk: Disk, writer: LogWriter) -> None:
    disk.goes_on.clear()
    for number in range(MOST_LINES + 20):
        writer.put(str(number))
    disk.goes_on.set()
    writer.close(30)
    notices = [line for line in disk.lines if line.startswith("lost")]
    assert len(notices) == 1 and "faster than they could be written" in notices[0]
    assert len(disk.lines) - 1 + int(notices[0].split()[1].rstrip(":")) == MOST_LINES + 20


def test_a_file_that_was_rotated_is_opened_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    sink = FileSink(path)
    sink.write(b"one\n")
    path.rename(tmp_path / "log.1")
    sink.write(b"two\n")
    assert (path.read_text(), (tmp_path / "log.1").read_text()) == ("two\n", "one\n")
    assert path.stat().st_mode & 0o007 == 0


def test_a_folder_that_comes_back(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    sink = FileSink(folder / "log")
    (folder / "log").unlink()
    folder.rmdir()
    with pytest.raises(OSError):
        sink.write(b"lost\n")
    folder.mkdir()
    sink.write(b"there\n")
    assert (folder / "log").read_text() == "there\n"


def test_a_line_that_was_cut_off_does_not_swallow_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    left = [3]

    def write_little(file: int, data: bytes) -> int:
        if left[0] == 0:
            raise OSError(28, "No space left on device")
        done = write(file, bytes(data)[: left[0]])
        left[0] -= done
        return done

    sink = FileSink(tmp_path / "log")
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write_little)
        with pytest.raises(OSError):
            sink.write(b"cut off\n")
    sink.write(b"whole\n")
    assert (tmp_path / "log").read_text() == "cut\nwhole\n"


def test_logging_is_taken_over_and_given_back(tmp_path: Path) -> None:
    before = (list(LOGGER.handlers), LOGGER.level, LOGGER.propagate)
    path = tmp_path / "log"
    with logging_as(LogSettings(format="json", file=path, level="info")):
        LOGGER.info("hello", extra={FIELDS: {"a": 1}})
        LOGGER.debug("not this")
        logging.getLogger("blockdraft.access").info("request")
        logging.getLogger("uvicorn.error").info("nor this")
        logging.getLogger("uvicorn.error").warning("but this")
        logging.getLogger("uvicorn.error").warning("Unsupported upgrade request.")
        LOGGER.info("%d", "no number")
    assert (list(LOGGER.handlers), LOGGER.level, LOGGER.propagate) == before
    lines = path.read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines[:3]] == ["hello", "request", "but this"]
    assert lines[3:] == ["a log message of blockdraft can't be formatted (TypeError)"]


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    settings = LogSettings(file=tmp_path / "no" / "log")
    with pytest.raises(ConfigError, match="can't be opened: No such file"), logging_as(settings):
        pass


def wait_for(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    for _ in range(int(seconds / 0.005)):
        if condition():
            return
        threading.Event().wait(0.005)
    raise AssertionError("it did not happen")
