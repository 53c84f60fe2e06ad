"""What `blockdraft serve` does: socket, models, engine, HTTP, in this order, and their end.

Each of these is made elsewhere; here they are joined with what the operator has set.
"""

import asyncio
import gc
import logging
import os
from argparse import Namespace
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from socket import socket

from blockdraft import __version__
from blockdraft.builtin import builtin_drafter_path
from blockdraft.cli.console import emit_json, say_progress
from blockdraft.cli.engines import engine_config, open_engine
from blockdraft.cli.pair import choose_checked_drafter, load_pair
from blockdraft.cli.serve_banner import Banner, announce
from blockdraft.cli.serve_keys import collect_keys
from blockdraft.cli.serve_settings import ServeSettings
from blockdraft.cli.signals import ended_by_sigterm
from blockdraft.serving.access_log import AccessLog
from blockdraft.serving.app import create_app
from blockdraft.serving.assemble import Assembled, Naming, Parts, assemble
from blockdraft.serving.cores import engine_threads, num_usable_cores, share_interpreter
from blockdraft.serving.generation_defaults import read_generation_defaults
from blockdraft.serving.lifecycle import Lifecycle
from blockdraft.serving.logs import LogSettings, logging_as
from blockdraft.serving.passing_thread import in_passing_thread
from blockdraft.serving.server_config import MAX_CHOICES, ServerConfig
from blockdraft.serving.uvicorn_server import HttpServer, bind_socket, is_loopback, listen, url_of
from blockdraft.target.load import resolve_source

_LOGGER = logging.getLogger("blockdraft")


def serve(settings: ServeSettings) -> int:
    """Serve until a signal; returns the exit code. Raises what binding and loading raise."""
    config = server_config(settings)
    with logging_as(log_settings(settings)), ended_by_sigterm():
        bound = bind_socket(settings.host, settings.port)
        with bound:
            warn_if_open(bound, config)
            parts, banner = in_passing_thread(partial(load, settings, bound, config))
            assembled = assemble(parts)
            try:
                return _run(settings, config, assembled, bound, banner)
            finally:
                assembled.close()
                gc.unfreeze()


def check(settings: ServeSettings) -> int:
    """Settings and drafter, without loading the target; prints what is set.

    The port is left alone: a server that is to be restarted with these settings may hold it.
    """
    config = server_config(settings)
    drafter = choose_checked_drafter(model_args(settings))
    document = asdict(settings) | {
        "drafter": drafter.name,
        "api_key": f"{len(config.api_keys)} in all",
        "served_model_name": model_names(settings),
        "threads": engine_threads(settings.threads, num_usable_cores(), os.environ),
    }
    emit_json(document, indent=2)
    return 0


def load(settings: ServeSettings, bound: socket, config: ServerConfig) -> tuple[Parts, Banner]:
    """The models and the engine, and what the banner says of them."""
    args = model_args(settings)
    pair = load_pair(args)
    built = open_engine(pair, engine_config(args, pair.width, slots=settings.slots))
    folder = resolve_source(settings.target, settings.revision, say_progress)
    names = model_names(settings)
    parts = Parts(
        target=pair.target,
        drafter=pair.drafter,
        width=pair.width,
        built=built,
        naming=Naming(model=names[0], aliases=names[1:], drafter=pair.conditions.drafter),
        defaults=read_generation_defaults(folder),
        tool_parser=settings.tool_parser,
        reasoning_parser=settings.reasoning_parser,
        max_waiting=settings.max_waiting,
        info={
            "version": __version__,
            "target": pair.conditions.target,
            "drafter": pair.conditions.drafter,
            "width": pair.conditions.width,
            "engine": pair.conditions.engine,
            "dtype": pair.conditions.dtype,
            "quantize": pair.conditions.quantize or "none",
            "device": pair.conditions.device,
        },
    )
    banner = Banner(
        url=url_of(bound),
        conditions=pair.conditions,
        names=names,
        memory=built.banner,
        num_keys=len(config.api_keys),
        is_loopback=is_loopback(bound),
        has_playground=config.playground,
    )
    return parts, banner


def _run(
    settings: ServeSettings,
    config: ServerConfig,
    assembled: Assembled,
    bound: socket,
    banner: Banner,
) -> int:
    # With a key, a page that guesses the address still can't ask anything.
    config = replace(config, is_local=is_loopback(bound) and not config.api_keys)
    app = AccessLog(create_app(assembled.service, config), quotes=settings.log_prompts)
    share_interpreter()
    # What is loaded by now stays; looking at it again and again would interrupt decoding.
    gc.collect()
    gc.freeze()
    listen(bound)
    assembled.runner.start()
    lifecycle = Lifecycle(
        server=HttpServer(app),
        bound=bound,
        runner=assembled.runner,
        drain_seconds=settings.drain_timeout,
        on_up=lambda: announce(banner, assembled.service, log_settings(settings)),
    )
    return asyncio.run(lifecycle.run())


def server_config(settings: ServeSettings) -> ServerConfig:
    """The HTTP side of the settings, keys read. Raises ConfigError."""
    return ServerConfig(
        api_keys=collect_keys(settings, os.environ),
        cors_origins=settings.cors_origin,
        max_body_bytes=settings.max_body,
        request_seconds=settings.request_timeout,
        # More answers than slots and queue hold could never be taken in.
        max_choices=min(MAX_CHOICES, settings.slots + settings.max_waiting),
        trust_request_chat_template=settings.trust_request_chat_template,
        spec_decode_metrics=settings.spec_decode_metrics,
        playground=not settings.no_playground,
    )


def log_settings(settings: ServeSettings) -> LogSettings:
    return LogSettings(
        format=settings.log_format,
        file=None if settings.log_file is None else Path(settings.log_file),
        level=settings.log_level,
        quotes=settings.log_prompts,
    )


def model_args(settings: ServeSettings) -> Namespace:
    """The settings as the arguments that loading a pair and opening an engine read."""
    return Namespace(
        target=settings.target,
        drafter=settings.drafter,
        revision=settings.revision,
        drafter_revision=settings.drafter_revision,
        yes=settings.yes,
        taps=settings.taps,
        dtype=settings.dtype,
        quantize=settings.quantize,
        batch_invariant="off",
        device=settings.device,
        threads=engine_threads(settings.threads, num_usable_cores(), os.environ),
        engine=settings.engine,
        # A drafter that drafts nothing takes no width at all.
        width=None if settings.width == "auto" else settings.width,
        compile=settings.compile,
        max_context=settings.max_context,
        kv_memory=settings.kv_memory,
        prefill_chunk=settings.prefill_chunk,
        no_prefix_reuse=settings.no_prefix_reuse,
    )


def model_names(settings: ServeSettings) -> tuple[str, ...]:
    """What clients call the model: as set, else a built-in name, a hub id, a file's own name."""
    if settings.served_model_name:
        return settings.served_model_name
    path = Path(settings.target).expanduser()
    if builtin_drafter_path(settings.target) is not None or not path.exists():
        return (settings.target,)
    # Where the model lies on this machine is nobody's business.
    resolved = path.resolve()
    return (resolved.stem if resolved.suffix == ".gguf" else resolved.name,)


def warn_if_open(bound: socket, config: ServerConfig) -> None:
    """Say so where everybody in the network may use the server."""
    if config.api_keys or is_loopback(bound):
        return
    _LOGGER.warning(
        "anybody who can reach %s may use this server: no API key is set (--api-key-file)",
        bound.getsockname()[0],
    )
