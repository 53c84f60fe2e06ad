"""The configuration file of `blockdraft serve`: a TOML file whose keys are the flags' names.

It reads and converts values one by one; what they mean together is checked by `ServeSettings`.
"""

import re
import tomllib
from argparse import ArgumentTypeError
from difflib import get_close_matches
from pathlib import Path
from typing import cast

from blockdraft.cli.serve_flags import SETTINGS, Setting
from blockdraft.errors import ConfigError

_BY_KEY = {setting.key: setting for setting in SETTINGS}


def read_config_file(path: Path) -> dict[str, object]:
    """The settings that the file gives, converted. Raises ConfigError naming file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"--config {path} can't be read: {reason}") from error
    try:
        table: dict[str, object] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    settings: dict[str, object] = {}
    for name, value in table.items():
        where = f"{path}, line {_line_of(text, name)}"
        setting = _find(name, value, where)
        if setting.key in settings:
            raise ConfigError(f"{where}: {setting.key} is given twice; drop one")
        settings[setting.key] = _converted(setting, value, where)
    return settings


def _find(name: str, value: object, where: str) -> Setting:
    if isinstance(value, dict):
        raise ConfigError(
            f"{where}: [{name}] is a table, and all settings stand at the top level; drop the line"
        )
    setting = _BY_KEY.get(name.replace("-", "_"))
    if setting is not None:
        return setting
    close = get_close_matches(name.replace("-", "_"), _BY_KEY, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(_BY_KEY)}"
    raise ConfigError(f"{where}: unknown key {name!r}; {hint}")


def _converted(setting: Setting, value: object, where: str) -> object:
    if setting.convert is None:
        if isinstance(value, bool):
            return value
        raise ConfigError(f"{where}: {setting.key} is {value!r}, expected true or false")
    if setting.many:
        if not isinstance(value, list):
            raise ConfigError(f'{where}: {setting.key} is no list; write ["..."], even for one')
        return tuple(_from_text(setting, part, where) for part in cast("list[object]", value))
    if isinstance(value, list):
        value = ",".join(str(part) for part in cast("list[object]", value))
    return _from_text(setting, value, where)


def _from_text(setting: Setting, value: object, where: str) -> object:
    """What the flag would make of the value; numbers may be written as numbers."""
    is_text_setting = setting.convert is str
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ConfigError(f"{where}: {setting.key} is {value!r}, which is not a value for it")
    if is_text_setting and not isinstance(value, str):
        raise ConfigError(f'{where}: {setting.key} is a number; write it in quotes: "{value}"')
    if setting.choices is not None and value not in setting.choices:
        raise ConfigError(
            f"{where}: {setting.key} is {value!r}; choose one of {', '.join(setting.choices)}"
        )
    assert setting.convert is not None
    try:
        return setting.convert(str(value))
    except (ArgumentTypeError, ValueError) as error:
        raise ConfigError(f"{where}: {setting.key}: {error}") from error


def _line_of(text: str, key: str) -> int:
    """The line where a key or a table of that name stands; 1 where it is written in another way."""
    pattern = re.compile(rf"""^\s*\[{{0,2}}["']?{re.escape(key)}["']?\s*[=.\]]""", re.MULTILINE)
    match = pattern.search(text)
    if match is None:
        return 1
    begin = match.start() + len(match[0]) - len(match[0].lstrip())
    return text.count("\n", 0, begin) + 1
