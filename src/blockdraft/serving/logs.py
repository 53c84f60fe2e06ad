"""`logging_as`: all log messages of the process as structured lines, while the server runs.

What is logged is decided where it happens.
"""

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from blockdraft.errors import ConfigError
from blockdraft.serving.log_lines import FIELDS, JsonFormatter, LineFormatter, TextFormatter
from blockdraft.serving.log_writer import FileSink, LogWriter, StderrSink

QUIET_LOGGERS = ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio")
"""Libraries of the server that would also tell of their everyday life."""

_UPGRADE_ADVICE = ("Unsupported upgrade request", "No supported WebSocket library")
"""How uvicorn begins what it says, as a warning, of each client that asks for WebSockets: to
install a library, which would not help here. The request itself is answered and logged as any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """`file` None is standard error. `quotes` allows what requests and answers say in logs."""

    format: Literal["text", "json"] = "text"
    file: Path | None = None
    level: Literal["debug", "info", "warning", "error"] = "info"
    quotes: bool = False


class LineHandler(logging.Handler):
    """Formats a record and hands the line on; a record that can't be formatted is told as such."""

    def __init__(self, writer: LogWriter, formatter: LineFormatter) -> None:
        super().__init__()
        self._writer = writer
        self.setFormatter(formatter)
        self.addFilter(_is_worth_a_line)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception as error:  # noqa: BLE001 - logging must not fail what it tells of
            line = f"a log message of {record.name} can't be formatted ({type(error).__name__})"
        self._writer.put(line)


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    is_servers = record.name == "uvicorn.error"
    return not (is_servers and str(record.msg).startswith(_UPGRADE_ADVICE))


@contextmanager
def logging_as(settings: LogSettings) -> Generator[None, None, None]:
    """Log as `settings` say until the end. Raises ConfigError for a file that can't be opened."""
    formatter = _formatter(settings)
    try:
        sink = StderrSink() if settings.file is None else FileSink(settings.file)
    except OSError as error:
        raise ConfigError(
            f"--log-file {settings.file} can't be opened: {error.strerror}; give another path"
        ) from error

    def tell_lost(count: int, why: str) -> str:
        values = {"lost_lines": count, "reason": why}
        return formatter.format(_record("log lines were lost", values))

    writer = LogWriter(sink, tell_lost)
    handler = LineHandler(writer, formatter)
    ours, root = logging.getLogger("blockdraft"), logging.getLogger()
    restore = [_take_over(ours, handler), _take_over(root, handler)]
    ours.propagate = False
    ours.setLevel(settings.level.upper())
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        yield
    finally:
        for each in restore:
            each.put_back()
        writer.close()


@dataclass(frozen=True, slots=True)
class LoggerBefore:
    """How a logger was set up, to set it up like that again."""

    logger: logging.Logger
    handlers: list[logging.Handler]
    level: int
    propagates: bool

    def put_back(self) -> None:
        self.logger.handlers[:] = self.handlers
        self.logger.setLevel(self.level)
        self.logger.propagate = self.propagates


def _take_over(logger: logging.Logger, handler: logging.Handler) -> LoggerBefore:
    before = LoggerBefore(logger, list(logger.handlers), logger.level, logger.propagate)
    logger.handlers[:] = [handler]
    return before


def _formatter(settings: LogSettings) -> LineFormatter:
    kind = JsonFormatter if settings.format == "json" else TextFormatter
    return kind(quotes=settings.quotes)


def _record(message: str, values: Mapping[str, object]) -> logging.LogRecord:
    record = logging.LogRecord("blockdraft", logging.WARNING, "", 0, message, (), None)
    setattr(record, FIELDS, values)
    return record
