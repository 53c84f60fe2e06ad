"""`LLM`: many prompts answered offline, batched, in the order they were given.

A thin front of the engine: it loads, queues, shows progress and collects.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

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
from blockdraft.errors import Error, RequestError
from blockdraft.native import TargetOptions, load_engine_target


@dataclass(frozen=True, slots=True)
class FailedPrompt:
    """A prompt without an answer: its place in the list, and why."""

    index: int
    error: Error


Result = Completion | FailedPrompt


class LLM:
    """A target and a drafter, ready to answer lists of prompts.

    `target` is what `load_target` takes; `drafter` what `load_drafter` takes,
    a loaded drafter, or None for the built-in one of a built-in target. `width` is "auto" (never
    slower than plain decoding), "off" or "fixed:N".
    """

    def __init__(
        self,
        target: str,
        drafter: str | Drafter | None = None,
        *,
        width: str | WidthMode = "auto",
        options: TargetOptions | None = None,
        config: EngineConfig | None = None,
    ) -> None:
        """Raises the errors of `load_target` and `load_drafter`, ConfigError for bad settings."""
        mode = parse_width(width) if isinstance(width, str) else width
        config = replace(config or EngineConfig(), width=mode)
        self.target = load_engine_target(target, options or TargetOptions(dtype="auto"))
        if drafter is None or isinstance(drafter, str):
            drafter = load_drafter(choose_drafter(target, drafter), self.target)
        self.drafter = drafter
        codec = self.target.text
        self._built: BuiltEngine = build_engine(
            self.target,
            self.drafter,
            config,
            decode_text=None if codec is None else codec.decode,
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
        prompts: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        options: PromptOptions | None = None,
        progress: bool = True,
    ) -> list[Result]:
        """Answer all `prompts`; entry i of the result belongs to prompt i.

        `params` are for all prompts, or one for each. A prompt that can't be served becomes a
        `FailedPrompt`; the others go on. Interrupting it (Ctrl-C) drops what is unfinished.
        """
        each = _params_for_each(params, len(prompts))
        results: dict[int, Result] = {}
        places: dict[int, int] = {}
        commits: dict[int, list[Commit]] = {}
        prompt_ids: dict[int, tuple[int, ...]] = {}
        engine = self._built.engine
        try:
            for place, prompt in enumerate(prompts):
                try:
                    ids = encode_prompt(self.target, prompt, options)
                    key = engine.submit(ids, each[place])
                except Error as error:
                    results[place] = FailedPrompt(place, error)
                    continue
                places[key], commits[key], prompt_ids[key] = place, [], ids
            with _progress_bar(len(prompts), shown=progress) as advance:
                while engine.has_work:
                    for event in engine.step():
                        place = places[event.key]
                        if isinstance(event.outcome, Failed):
                            results[place] = FailedPrompt(place, event.outcome.error)
                            advance()
                            continue
                        commits[event.key].append(event.outcome)
                        if event.outcome.finish_reason is not None:
                            done = commits.pop(event.key)
                            results[place] = collect(prompt_ids.pop(event.key), done)
                            advance()
        finally:
            for key in places:
                engine.cancel(key)
        return [results[place] for place in range(len(prompts))]


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
    if len(params) != num_prompts:
        raise RequestError(
            f"{len(params)} sampling params for {num_prompts} prompts; give one for each, or one"
        )
    return list(params)
