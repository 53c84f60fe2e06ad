"""Log records as lines: for people, or as JSON; neither tells what a request said.

Foreign exceptions quote what they choke on, so their messages are left out unless prompts may be
logged. It writes nothing.
"""

import json
import logging
import time
import traceback
from collections.abc import Mapping
from typing import cast

from blockdraft.errors import DrafterError, EngineFault, NumericsError

FIELDS = "fields"
"""The attribute of a record that holds its values by name: `extra={FIELDS: {...}}`."""

TELLABLE = (OSError, MemoryError, DrafterError, EngineFault, NumericsError)
"""Errors whose messages quote no text of a request."""


class LineFormatter(logging.Formatter):
    """What text and JSON lines have in common. `quotes` allows text of requests in them."""

    def __init__(self, *, quotes: bool) -> None:
        super().__init__()
        self._quotes = quotes

    def where(self, error: BaseException) -> str:
        """The traceback, with messages only where they quote no request."""
        if self._quotes:
            return "".join(traceback.format_exception(error)).rstrip()
        parts: list[str] = []
        seen: set[int] = set()
        each: BaseException | None = error
        while each is not None and id(each) not in seen:
            seen.add(id(each))
            frames = "".join(traceback.format_tb(each.__traceback__))
            parts.append(f"{frames}{type(each).__name__}{self._message(each)}")
            each = each.__cause__ or each.__context__
        return "\nunder it:\n".join(parts)

    def _message(self, error: BaseException) -> str:
        # torch raises plain RuntimeErrors, about shapes and memory.
        is_tellable = isinstance(error, TELLABLE) or type(error) is RuntimeError
        return f": {error}" if is_tellable else " (its message may quote a request)"


class TextFormatter(LineFormatter):
    """`2026-01-31T12:00:00.123Z info  message key=value ...`, a traceback behind it."""

    def format(self, record: logging.LogRecord) -> str:
        pairs = [f"{name}={_plain(value)}" for name, value in fields_of(record).items()]
        level = f"{record.levelname.lower():<7}"
        line = " ".join([utc(record.created), level, _one_line(record.getMessage()), *pairs])
        error = error_of(record)
        return line if error is None else f"{line}\n{self.where(error)}"


class JsonFormatter(LineFormatter):
    """One JSON object a line: time, level, event, then the record's values."""

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, object] = {
            "time": utc(record.created),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        if record.name != "blockdraft":
            document["logger"] = record.name
        document |= fields_of(record)
        error = error_of(record)
        if error is not None:
            document["traceback"] = self.where(error)
        return json.dumps(document, ensure_ascii=True, default=str)


def fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    """The values that were logged with the message; those that are None are left out."""
    values: object = getattr(record, FIELDS, None)
    if not isinstance(values, Mapping):
        return {}
    pairs = cast("Mapping[str, object]", values).items()
    return {name: value for name, value in pairs if value is not None}


def error_of(record: logging.LogRecord) -> BaseException | None:
    return record.exc_info[1] if record.exc_info else None


def utc(seconds: float) -> str:
    """A time as in RFC 3339, to the millisecond."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"


def _plain(value: object) -> str:
    """A value without spaces, quotes or control characters as it is, any other one as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    is_plain = text.isascii() and text.isprintable() and not set(text) & set(' "=\\')
    return text if is_plain and text else json.dumps(text)


def _one_line(text: str) -> str:
    """A message can't pretend to be two lines."""
    return text.replace("\r", "\\r").replace("\n", "\\n")
