"""What `blockdraft generate` does: answer, print, count.

Conversations and their order are in `answers.py`, shapes of the output in `render.py`.
"""

from argparse import Namespace
from collections.abc import Iterator

from blockdraft.api import PromptOptions
from blockdraft.cli.answers import (
    Answer,
    Answering,
    AnswerOptions,
    Event,
    Failure,
    Piece,
    RecordOrder,
)
from blockdraft.cli.console import emit, emit_json, say, say_progress
from blockdraft.cli.default_drafter import settle_drafter
from blockdraft.cli.engines import engine_config, open_engine
from blockdraft.cli.pair import Pair, load_pair
from blockdraft.cli.progress import progress_bar
from blockdraft.cli.prompts import PromptSet, read_prompts, read_stdin
from blockdraft.cli.render import answer_json, failure_json, stats_table
from blockdraft.cli.sampling import add_bad_words, read_sampling, warn_of_no_effect
from blockdraft.cli.tables import open_console
from blockdraft.decoding import AcceptanceStats, SamplingParams
from blockdraft.engine import BuiltEngine
from blockdraft.engine.config import DEFAULT_SLOTS
from blockdraft.errors import ConfigError, RequestError


def generate_answers(args: Namespace) -> int:
    """Run the command; 1 when a prompt of a file failed.

    Settings, prompts and models are checked before anything is answered. An error of the only
    prompt is raised.
    """
    _check_output_args(args)
    params = read_sampling(args)
    prompts = read_prompts(args) or read_stdin()
    warn_of_no_effect(params, settle_drafter(args))
    pair = load_pair(args)
    params = prepare_params(pair, params, args.bad_words)
    slots = choose_slots(args)
    built = open_engine(pair, engine_config(args, pair.width, slots=slots))
    (say if args.stats else say_progress)(built.banner)
    answering = Answering(built.engine, pair.target, params, answer_options(args))
    output = Output(args, pair, prompts)
    num_failed = _show_all(answering.run(prompts.records, slots), output, prompts)
    if args.stats and output.stats:
        _show_stats(output, built)
    if num_failed:
        say(f"{num_failed} of {len(prompts.records)} prompts failed")
    return 1 if num_failed else 0


def choose_slots(args: Namespace) -> int:
    """How many prompts run at once: those of a file together, unless their text is streamed."""
    concurrency: int | None = args.concurrency
    if concurrency is not None:
        return concurrency
    return DEFAULT_SLOTS if args.prompts is not None and not args.stream else 1


def _show_all(events: Iterator[Event], output: "Output", prompts: PromptSet) -> int:
    """Print everything in the order of the records; the number of those that failed.

    What is finished when the run is interrupted is printed too.
    """
    order = RecordOrder(prompts.records)
    num_failed = 0
    with progress_bar(prompts.num_turns, "answers") as advance:
        try:
            for event in events:
                if isinstance(event, Failure):
                    if not prompts.from_file:
                        raise event.error
                    num_failed += 1
                if isinstance(event, Answer | Failure):
                    advance()
                for ready in order.take(event):
                    output.take(ready)
        except KeyboardInterrupt:
            for ready in order.rest():
                output.take(ready)
            raise
    return num_failed


def _show_stats(output: "Output", built: BuiltEngine) -> None:
    stats = built.engine.stats()
    open_console(stderr=True).print(stats_table(output.stats, stats.widths))
    reused = stats.prefixes
    if built.capacity.slots > 1:
        say("seconds and tok/s above are sums over answers that ran side by side")
    if reused.hits:
        say(f"{reused.hit_rows} prompt tokens of {reused.hits} prompts were reused, not computed")


def prepare_params(
    pair: Pair, params: SamplingParams, bad_words: list[str] | None
) -> SamplingParams:
    """`params` with bad words, checked against the target. Raises what a request would."""
    params = add_bad_words(params, bad_words, pair.target.text)
    params.check_ids(pair.target.spec.vocab_size)
    if params.stop and pair.target.text is None:
        raise RequestError("--stop needs a tokenizer and this model has none; use --stop-ids")
    return params


def answer_options(args: Namespace) -> AnswerOptions:
    template_args: list[tuple[str, object]] = args.template_arg
    prompt = PromptOptions(raw=args.raw, template_args=dict(template_args) or None)
    return AnswerOptions(prompt=prompt, system=args.system)


class Output:
    """Prints events as the arguments want them and adds up their statistics by category."""

    def __init__(self, args: Namespace, pair: Pair, prompts: PromptSet) -> None:
        self.stats: dict[str, AcceptanceStats] = {}
        self._as_json: bool = args.json
        self._streams: bool = args.stream
        self._has_text = pair.target.text is not None
        self._has_headings = prompts.num_turns > 1
        self._begun = False

    def take(self, event: Event) -> None:
        if isinstance(event, Piece):
            if self._streams:
                self._show_piece(event)
        elif isinstance(event, Answer):
            self._count(event)
            self._show_answer(event)
        else:
            self._show_failure(event)

    def _show_piece(self, piece: Piece) -> None:
        if not self._begun:
            self._show_heading(piece)
        ids = ",".join(map(str, piece.commit.ids))
        separator = "," if self._begun else ""
        emit(piece.commit.text if self._has_text else f"{separator}{ids}", end="")
        self._begun = True

    def _show_answer(self, answer: Answer) -> None:
        if self._as_json:
            emit_json(answer_json(answer, has_text=self._has_text))
        elif self._streams:
            emit("")
            self._begun = False
        else:
            self._show_heading(answer)
            completion = answer.completion
            emit(completion.text if self._has_text else ",".join(map(str, completion.token_ids)))

    def _show_failure(self, failure: Failure) -> None:
        if self._begun:
            emit("")
            self._begun = False
        say(f"prompt {failure.record.id!r}, turn {failure.turn}: {failure.error}")
        if self._as_json:
            emit_json(failure_json(failure))

    def _show_heading(self, event: Event) -> None:
        if self._has_headings:
            emit(f"[{event.record.id}, turn {event.turn}]")

    def _count(self, answer: Answer) -> None:
        names = [answer.record.category, "all"] if answer.record.category else ["all"]
        for name in names:
            merged = self.stats.pop(name, AcceptanceStats()).merge(answer.completion.stats)
            self.stats[name] = merged  # popped, so that "all" stays last


def _check_output_args(args: Namespace) -> None:
    if args.json and args.stream:
        raise ConfigError("--stream prints text and --json prints finished answers; choose one")
    if args.logprobs is not None and not args.json:
        raise ConfigError("--logprobs are printed in --json only; add it")
    together = (args.concurrency or 1) > 1
    if together and args.prompts is None:
        raise ConfigError("--concurrency answers prompts of a file together, so it needs --prompts")
    if together and args.stream:
        raise ConfigError("--stream would mix the answers of --concurrency; choose one")
