"""API keys from flags, a file and the environment.

What they open is decided by the HTTP layer.
"""

from collections.abc import Mapping
from pathlib import Path

from blockdraft.cli.serve_settings import ServeSettings
from blockdraft.errors import ConfigError

VARIABLE = "BLOCKDRAFT_API_KEY"


def collect_keys(settings: ServeSettings, environment: Mapping[str, str]) -> tuple[str, ...]:
    """All keys that open the server, each once. Raises ConfigError for a file without keys."""
    keys = list(settings.api_key)
    if settings.api_key_file is not None:
        keys += read_keys(Path(settings.api_key_file))
    if VARIABLE in environment:
        key = environment[VARIABLE].strip()
        if not key:
            raise ConfigError(f"{VARIABLE} is set and empty; give it a key, or unset it")
        keys.append(key)
    for key in keys:
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise ConfigError(
                "an API key holds spaces or characters outside ASCII, which no HTTP header can "
                "carry unchanged; make another one"
            )
    return tuple(dict.fromkeys(keys))


def read_keys(path: Path) -> list[str]:
    """One key a line; empty lines and lines that begin with # do not count."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"--api-key-file {path} can't be read: {reason}") from error
    keys = [line.strip() for line in lines]
    keys = [key for key in keys if key and not key.startswith("#")]
    if not keys:
        raise ConfigError(f"--api-key-file {path} holds no key; write one a line")
    return keys
