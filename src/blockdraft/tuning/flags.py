"""Flags of five engines for a setting that was found: commands, each in its engine's counting.

It starts nothing. What the engines call things is the package `launch`.
"""

import shlex
from dataclasses import dataclass, replace

from blockdraft.engine import WidthMode
from blockdraft.errors import ConfigError
from blockdraft.launch import (
    ENGINES,
    LaunchOrder,
    PairForLaunch,
    as_document,
    bench_command,
    render_shell,
)
from blockdraft.launch.order import Device
from blockdraft.launch.pair import DRAFTER_GGUF, TARGET_GGUF

OTHERS = ("vllm", "sglang", "llamacpp", "trtllm")
OWN_PORT = 8000
GGUF_FOLDER = "pair-gguf"
HF_FOLDER = "drafter-hf"

COSTS_DIFFER = (
    "measured with blockdraft's engine: another engine has other costs, so that of the prediction "
    "only the acceptance holds there; measure it with the command below, with and without drafts"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFlags:
    """One engine. `script` is shell text, None where there is nothing to set.

    `width` counts the anchor, as `blockdraft` does; `drafts` are what is drafted (0 = plain).
    `before` are commands that make its files first. `measure` is what measures it once it is up.
    """

    engine: str
    title: str
    width: str
    drafts: int | None
    script: str | None
    before: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    measure: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagsOrder:
    """A pair by the names it was given, and what was found for it.

    `own` is the width for blockdraft's server, `fixed` the one for engines that know only fixed
    ones (None: plain decoding). `serve_flags` are further flags of our server, as they are.
    """

    target: str
    drafter: str
    pair: PairForLaunch | None
    own: WidthMode
    fixed: int | None
    slots: int
    device: Device = "cuda"
    serve_flags: tuple[str, ...] = ()


def all_flags(order: FlagsOrder) -> tuple[EngineFlags, ...]:
    """For blockdraft, vLLM, SGLang, llama.cpp and TensorRT-LLM, in this order."""
    return (own_flags(order), *(engine_flags(order, engine) for engine in OTHERS))


def own_flags(order: FlagsOrder) -> EngineFlags:
    """`blockdraft serve`."""
    is_off = order.own.kind == "off"
    words = ["blockdraft", "serve", "--target", order.target]
    words += ["--drafter", "none" if is_off else order.drafter]
    if not is_off:
        words += ["--width", str(order.own)]
    words += ["--slots", str(order.slots), *order.serve_flags]
    width = order.own.width
    return EngineFlags(
        engine="blockdraft",
        title="blockdraft serve",
        width=str(order.own),
        drafts=0 if is_off else None if width is None else width - 1,
        script=shlex.join(words) + "\n",
        measure=bench_command(f"http://127.0.0.1:{OWN_PORT}", order.target),
    )


def engine_flags(order: FlagsOrder, engine: str) -> EngineFlags:
    """Another engine's command; none where plain decoding was found best, or where it can't be
    made, which a note then says."""
    title = ENGINES[engine].title
    measure = bench_command(f"http://127.0.0.1:{OWN_PORT}", order.target)
    if order.fixed is None:
        return EngineFlags(
            engine=engine,
            title=title,
            width="off",
            drafts=0,
            script=None,
            notes=("start it without a drafter", COSTS_DIFFER),
            measure=measure,
        )
    empty = EngineFlags(
        engine=engine,
        title=title,
        width=f"fixed:{order.fixed}",
        drafts=order.fixed - 1,
        script=None,
        measure=measure,
    )
    if order.pair is None:
        why = "this drafter is no DFlash checkpoint, so there is nothing for another engine to load"
        return replace(empty, notes=(why,))
    pair, before = _readable(order, order.pair, engine)
    device: Device = "cuda" if ENGINES[engine].gpu == "needed" else order.device
    try:
        launch = LaunchOrder(pair=pair, device=device, block_size=order.fixed)
        plan = ENGINES[engine].make_plan(launch)
    except ConfigError as error:
        return replace(empty, notes=(str(error), COSTS_DIFFER))
    document = as_document(plan)
    notes = (*plan.notes, COSTS_DIFFER)
    if engine == "trtllm":
        notes = (*plan.notes, "it needs an NVIDIA GPU", COSTS_DIFFER)
    return replace(
        empty,
        script=render_shell(plan),
        before=before,
        files=tuple((file.name, file.text) for file in plan.files),
        notes=notes,
        measure=bench_command(str(document["url"]), pair.target.where),
    )


def _readable(
    order: FlagsOrder, pair: PairForLaunch, engine: str
) -> tuple[PairForLaunch, tuple[str, ...]]:
    """The pair as the engine reads it, and the commands that write it so."""
    names = ["--target", order.target, "--drafter", order.drafter]
    if engine == "llamacpp" and (pair.target.layout, pair.drafter.layout) != ("gguf", "gguf"):
        export = ["blockdraft", "export", "--format", "gguf", *names, "--out", GGUF_FOLDER]
        target = replace(pair.target, where=f"{GGUF_FOLDER}/{TARGET_GGUF}", layout="gguf")
        drafter = replace(pair.drafter, where=f"{GGUF_FOLDER}/{DRAFTER_GGUF}", layout="gguf")
        return PairForLaunch(target=target, drafter=drafter), (shlex.join(export),)
    # A reduced vocabulary is read differently by each engine; export writes what all of them read.
    foreign = pair.drafter.layout == "hf" and pair.drafter.has_reduced_vocabulary
    if engine != "llamacpp" and foreign:
        export = ["blockdraft", "export", "--format", "hf", *names, "--out", HF_FOLDER]
        drafter = replace(pair.drafter, where=HF_FOLDER, has_reduced_vocabulary=False)
        return replace(pair, drafter=drafter), (shlex.join(export),)
    return pair, ()


def script_of(flags: EngineFlags) -> str:
    """A shell script with its conditions as comments."""
    lines = ["#!/bin/sh", f"# {flags.title}, width {flags.width}, found by blockdraft tune"]
    lines += [f"# note: {note}" for note in flags.notes]
    lines += flags.before
    lines.append((flags.script or "# nothing to set").rstrip("\n"))
    lines.append(f"# measure it: {flags.measure}")
    return "\n".join(lines) + "\n"
