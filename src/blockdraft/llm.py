"""`LLM`: many prompts answered offline, batched, in the order they were given.

A thin front of the engine: it loads, queues, shows progress and collects.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from blockdraft.api import (
    Prompt,
    PromptOptions,
    choose_drafter,
    encode_prompt,
    load_drafter,
)
from blockdraft.decoding import Commit, Completion, Drafter, SamplingParams, collect
from blockdraft.engine import (
    BuiltEngine,
    EngineConfig,
    EngineStats,
    Failed,
    WidthMode,
    build_engine,
    parse_width,
)
from blockdraft.errors import ConfigError, Error, RequestError
from blockdraft.native import NativeTarget, TargetOptions, load_engine_target
from blockdraft.target import HFTarget


@dataclass(frozen=True, slots=True)
class FailedPrompt:
    """A prompt without an answer: its place in the list, and why."""

    index: int
    error: Error


Result = Completion | FailedPrompt


class LLM:
    """A target and a drafter, ready to answer lists of prompts.

    `target` is what `load_target` takes, or a loaded one; `drafter` what `load_drafter` takes, a
    loaded drafter, or None for the built-in one of a built-in target, or for the published one of a
    hub id if it is in the hub's cache (nothing is downloaded unasked). `width` is "auto" (never
    slower than plain), "off" or "fixed:N", N with the anchor. `options` are for a target that is
    not loaded yet; the default takes the faster of float32 and bfloat16.
    """

    def __init__(
        self,
        target: str | Path | NativeTarget | HFTarget,
        drafter: str | Drafter | None = None,
        *,
        width: str | int | WidthMode = "auto",
        options: TargetOptions | None = None,
        config: EngineConfig | None = None,
    ) -> None:
        """Raises the errors of `load_target` and `load_drafter`, ConfigError for bad settings."""
        mode = width if isinstance(width, WidthMode) else parse_width(str(width))
        config = replace(config or EngineConfig(), width=mode)
        if isinstance(target, str | Path):
            if drafter is None:
                drafter = choose_drafter(str(target), None)  # before anything is loaded
            target = load_engine_target(target, options or TargetOptions(dtype="auto"))
        elif options is not None:
            raise ConfigError("options say how a target is loaded, and this one is loaded already")
        self.target = target
        if drafter is None or isinstance(drafter, str):
            drafter = load_drafter(choose_drafter(target.spec.name, drafter), target)
        self.drafter = drafter
        codec = target.text
        self._built: BuiltEngine = build_engine(
            target, drafter, config, decode_text=None if codec is None else codec.decode
        )

    @property
    def banner(self) -> str:
        """One line on slots, memory and batching."""
        return self._built.banner

    @property
    def stats(self) -> EngineStats:
        """Figures since the start."""
        return self._built.engine.stats()

    def generate(
        self,
        prompts: Iterable[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        options: PromptOptions | None = None,
        progress: bool = True,
    ) -> list[Result]:
        """Answer all `prompts`; entry i of the result belongs to prompt i.

        `params` are for all prompts, or one for each. A prompt that can't be served becomes a
        `FailedPrompt`; the others go on. Interrupting it (Ctrl-C) drops what is unfinished, and the
        next call starts afresh. Raises RequestError when `prompts` is no list, or `params` has
        another length.
        """
        if isinstance(prompts, str):
            raise RequestError("prompts is one string; give a list, like [prompt]")
        prompts = list(prompts)
        if prompts and all(isinstance(cast(object, prompt), int) for prompt in prompts):
            raise RequestError("prompts is one list of token ids; give a list of such lists")
        each = _params_for_each(params, len(prompts))
        results: dict[int, Result] = {}
        pending: dict[int, Pending] = {}
        engine = self._built.engine
        try:
            with _progress_bar(len(prompts), shown=progress) as advance:
                for place, prompt in enumerate(prompts):
                    try:
                        ids = encode_prompt(self.target, prompt, options)
                        pending[engine.submit(ids, each[place])] = Pending(place, ids)
                    except Error as error:
                        results[place] = FailedPrompt(place, error)
                        advance()
                while pending:
                    for event in engine.step():
                        result = _add(pending[event.key], event.outcome)
                        if result is not None:
                            results[pending.pop(event.key).place] = result
                            advance()
        finally:
            for key in pending:
                engine.cancel(key)
        return [results[place] for place in range(len(prompts))]


@dataclass(frozen=True, slots=True)
class Pending:
    """A prompt that is queued or running: its place in the list, and what came of it so far."""

    place: int
    prompt_ids: tuple[int, ...]
    commits: list[Commit] = field(default_factory=list[Commit])


def _add(pending: Pending, outcome: Commit | Failed) -> Result | None:
    """Take in what a step did; the result once there is one."""
    if isinstance(outcome, Failed):
        return FailedPrompt(pending.place, outcome.error)
    pending.commits.append(outcome)
    if outcome.finish_reason is None:
        return None
    return collect(pending.prompt_ids, pending.commits)


@contextmanager
def _progress_bar(total: int, *, shown: bool) -> Generator[Callable[[], None], None, None]:
    """Gives the function that counts one more answer; shown on stderr where someone watches."""
    console = Console(stderr=True)
    if not shown or not console.is_terminal:
        yield _ignore
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("answers", total=total)
        yield lambda: progress.advance(task)


def _ignore() -> None:
    pass


def _params_for_each(
    params: SamplingParams | Sequence[SamplingParams] | None, num_prompts: int
) -> list[SamplingParams]:
    if params is None:
        return [SamplingParams()] * num_prompts
    if isinstance(params, SamplingParams):
        return [params] * num_prompts
    if not all(isinstance(cast(object, each), SamplingParams) for each in params):
        raise RequestError("params must be SamplingParams, or a list of them, one for each prompt")
    if len(params) != num_prompts:
        raise RequestError(
            f"{len(params)} sampling params for {num_prompts} prompts; give one for each, or one"
        )
    return list(params)
