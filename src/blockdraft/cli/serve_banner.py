"""The banner: what is served, where, on what, said once when the server answers.

It gathers nothing; `serving.py` knows.
"""

import logging
from dataclasses import dataclass

from blockdraft import __version__
from blockdraft.cli.console import say
from blockdraft.cli.pair import Conditions
from blockdraft.serving.log_lines import FIELDS
from blockdraft.serving.logs import LogSettings
from blockdraft.serving.service import Service

_LOGGER = logging.getLogger("blockdraft")


@dataclass(frozen=True, slots=True, kw_only=True)
class Banner:
    """What the banner says beside what the service knows. `memory` is the engine's own line."""

    url: str
    conditions: Conditions
    names: tuple[str, ...]
    memory: str
    num_keys: int
    is_loopback: bool
    has_playground: bool


def announce(banner: Banner, service: Service, logs: LogSettings) -> None:
    """Lines for people on standard error; as one log line too where logs are for machines."""
    if logs.format == "text":
        for line in banner_lines(banner, service):
            say(line)
    if logs.format == "json" or logs.file is not None:
        _LOGGER.info("serving", extra={FIELDS: banner_values(banner, service)})


def banner_lines(banner: Banner, service: Service) -> list[str]:
    c = banner.conditions
    names = ", ".join(banner.names)
    rounded = "" if c.quantize is None else f", rounded to {c.quantize}"
    rows = [
        ("model", f"{names}: {c.target}, {c.engine} engine, {c.dtype}{rounded}, {c.device}"),
        ("drafter", _drafter_text(c, service)),
        ("memory", banner.memory),
        ("machine", f"{c.threads} torch threads; {c.hardware}"),
        ("software", c.software),
        ("answers", _answers_text(service)),
        ("API keys", _keys_text(banner)),
    ]
    if banner.has_playground:
        rows.append(("page", f"{banner.url}/"))
    lines = [f"blockdraft {__version__} serves on {banner.url}"]
    return lines + [f"  {name:<9} {text}" for name, text in rows]


def banner_values(banner: Banner, service: Service) -> dict[str, object]:
    """The same for a log line."""
    c = banner.conditions
    return {
        "url": banner.url,
        "version": __version__,
        "models": list(banner.names),
        "target": c.target,
        "drafter": c.drafter,
        "width": c.width,
        "block_size": c.block_size,
        "engine": c.engine,
        "dtype": c.dtype,
        "quantize": c.quantize,
        "device": c.device,
        "threads": c.threads,
        "memory": banner.memory,
        "hardware": c.hardware,
        "software": c.software,
        "api_keys": banner.num_keys,
        "max_model_len": service.max_model_len,
    }


def _drafter_text(c: Conditions, service: Service) -> str:
    if service.num_spec_tokens == 0:
        return "none: plain decoding"
    return f"{c.drafter}, blocks of at most {service.num_spec_tokens + 1}, width {c.width}"


def _answers_text(service: Service) -> str:
    tools, reasoning = service.tool_format, service.reasoning_format
    parts = [
        f"tool calls: {'none' if tools is None else tools.name}",
        f"reasoning: {'none' if reasoning is None else reasoning.name}",
        f"output grammars: {'off' if service.grammar is None else 'on'}",
    ]
    return ", ".join(parts)


def _keys_text(banner: Banner) -> str:
    if banner.num_keys:
        return f"{banner.num_keys}"
    return "none: this machine only" if banner.is_loopback else "none: open to the network"
