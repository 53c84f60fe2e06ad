"""`Regeneration`: every assistant turn of many conversations, written by the target itself.

It decides what is asked, what is kept and what counts; who answers is an `AnswerSource`. Turn k of
a conversation is asked with the target's own answers to the turns before it.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from blockdraft.data.answer_files import (
    SETTINGS_FILE,
    AnswerLog,
    is_finished,
    pack,
)
from blockdraft.data.answer_requests import AnswerSource, Generated, NotGenerated, TurnRequest
from blockdraft.data.answer_row import Answer
from blockdraft.data.answer_tally import Tally, Verdict, judge
from blockdraft.data.conversation_files import ConversationFiles, Problem, Row
from blockdraft.data.folders import writing
from blockdraft.data.manifest import read_manifest
from blockdraft.data.regenerate_config import RegenerateConfig
from blockdraft.data.rendering import Renderer
from blockdraft.data.run_settings import record_settings
from blockdraft.errors import ConfigError, EngineFault, RequestError

MAX_FAILURES_IN_A_ROW = 50

Progress = Callable[[Tally], None]
"""Told after every outcome."""


class Talk(NamedTuple):
    """A conversation on its way: what was answered so far."""

    place: int
    row: Row
    answers: tuple[str, ...] = ()

    @property
    def turn(self) -> int:
        return len(self.answers)

    @property
    def num_left(self) -> int:
        return len(self.row.conversation.turns) - self.turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The end of a run: its counts; `finished` tells that the folder is packed."""

    folder: Path
    finished: bool
    counts: dict[str, object]
    shown: tuple[Problem, ...] = ()
    num_failed: int = 0


class Regeneration:
    """One folder of answers, and what there is to ask for it."""

    def __init__(
        self,
        folder: Path,
        files: ConversationFiles,
        renderer: Renderer,
        config: RegenerateConfig,
        source: AnswerSource,
        *,
        vocab_size: int,
    ) -> None:
        """Raises ConfigError for bad lines where they are refused."""
        self._folder = folder
        self._files = files
        self._renderer = renderer
        self._config = config
        self._source = source
        self._vocab_size = vocab_size
        self._places = {row.conversation.id: place for place, row in enumerate(files.rows)}
        self._running: dict[tuple[str, int], Talk] = {}
        self._next: deque[Talk] = deque()
        self._tally = Tally(sum(len(row.conversation.turns) for row in files.rows))
        for problem in files.problems:
            if config.strict:
                raise ConfigError(f"{problem.where}: {problem.reason}")
            self._tally.add_problem(problem)

    @property
    def tally(self) -> Tally:
        return self._tally

    def run(self, progress: Progress, *, adopt: bool = False, pack_only: bool = False) -> Report:
        """Ask for what is missing, then pack; what a run before this one did is kept.

        `adopt` takes a log without settings as made with these. `pack_only` asks nothing. A run
        whose last requests failed is not packed, so that they can be tried again. Raises
        ConfigError when the folder was made with other settings or can't be written to (a full
        disk), EngineFault when too many requests fail in a row; what was answered before that is
        kept.
        """
        remedy = "make room or name another folder; the same command goes on with what is kept"
        with writing(self._folder, remedy):
            return self._run(progress, adopt=adopt, pack_only=pack_only)

    def _run(self, progress: Progress, *, adopt: bool, pack_only: bool) -> Report:
        self._record_settings(adopt=adopt)
        if is_finished(self._folder):
            manifest = read_manifest(self._folder)
            return Report(
                folder=self._folder, finished=True, counts={"answers": manifest["answers"]}
            )
        with AnswerLog(self._folder) as log:
            waiting = self._resume(log)
            progress(self._tally)
            if not pack_only:
                self._ask(log, waiting, progress)
        num_failed = self._tally.problems["failed"]
        packs = pack_only or num_failed == 0
        dropped = self._tally.loops_to_drop(self._config.max_loop_share, self._config.seed)
        if packs:
            self._pack(dropped, adopted=adopt)
        counts = {**self._tally.as_dict(), "loops_dropped": len(dropped)}
        return Report(
            folder=self._folder,
            finished=packs,
            counts=counts,
            shown=tuple(self._tally.shown),
            num_failed=num_failed,
        )

    def _settings(self) -> dict[str, object]:
        prompts = [{"name": name, "sha256": digest} for name, digest in self._files.digests]
        return {
            "num_conversations": len(self._files.rows),
            "prompts": prompts,
            "template": self._renderer.describe(),
            "answers": asdict(self._config),
            "source": self._source.describe(),
        }

    def _record_settings(self, *, adopt: bool) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        begun = any(self._folder.glob("answers*")) and not adopt
        record_settings(
            self._folder / SETTINGS_FILE,
            self._settings(),
            begun=begun,
            remedy="use another folder, or --adopt if the settings given now are theirs",
        )

    def _resume(self, log: AnswerLog) -> Iterator[Talk]:
        """Count what the log holds; the talks that are not at their end."""
        told: dict[tuple[str, int], tuple[str, Verdict]] = {}
        for answer in log.read():
            place = self._places.get(answer.id)
            if place is None or answer.key in told:
                kind = "not_asked_for" if place is None else "answered_twice"
                self._tally.add_problem(Problem(log.path.name, kind, f"answer to {answer.id!r}"))
                continue
            text = self._renderer.answer_text(answer.answer_ids)
            verdict = judge(answer, text)
            self._tally.add(answer, verdict, resumed=True)
            several = len(self._files.rows[place].conversation.turns) > 1
            told[answer.key] = (text if several else "", verdict)
        return self._talks(told)

    def _talks(self, told: dict[tuple[str, int], tuple[str, Verdict]]) -> Iterator[Talk]:
        for place, row in enumerate(self._files.rows):
            talk: Talk | None = Talk(place, row)
            while talk is not None and (key := (row.conversation.id, talk.turn)) in told:
                talk = self._after(talk, *told[key])
            if talk is not None:
                yield talk

    def _after(self, talk: Talk, text: str, verdict: Verdict) -> Talk | None:
        """The talk after an answer; None at its end. Nothing sensible follows on nothing said."""
        following = talk._replace(answers=(*talk.answers, text))
        if verdict != "good":
            self._tally.skip(following.num_left)
            return None
        return following if following.num_left else None

    def _ask(self, log: AnswerLog, waiting: Iterator[Talk], progress: Progress) -> None:
        failures = 0
        for outcome in self._source.answer(lambda: self._next_request(waiting)):
            talk = self._running.pop(outcome.request.key)
            if isinstance(outcome, NotGenerated):
                failures += 1
                self._give_up(talk, "failed", outcome.reason)
                if failures >= MAX_FAILURES_IN_A_ROW:
                    raise EngineFault(
                        f"{failures} requests in a row failed, the last with: {outcome.reason}; "
                        "what is answered is kept, and the same command goes on from there"
                    )
            else:
                failures = 0
                self._take(log, talk, outcome)
            progress(self._tally)

    def _next_request(self, waiting: Iterator[Talk]) -> TurnRequest | None:
        """The next turn that can be asked; those that can't are counted."""
        while (talk := self._next.popleft() if self._next else next(waiting, None)) is not None:
            conversation = talk.row.conversation
            try:
                ids = self._renderer.prompt_ids(conversation, talk.answers)
            except RequestError as error:
                self._give_up(talk, "template_error", str(error))
                continue
            room = self._config.max_context - self._config.max_new_tokens
            if not 0 < len(ids) <= room:
                reason = f"{len(ids)} prompt tokens, and 1 to {room} fit (--max-context)"
                self._give_up(talk, "too_long" if ids else "empty_prompt", reason)
                continue
            key = (conversation.id, talk.turn)
            self._running[key] = talk
            raw = self._renderer.config.raw
            return TurnRequest(
                key=key,
                prompt_ids=ids,
                sampling=self._config.sampling(*key),
                messages=None if raw else self._renderer.messages(conversation, talk.answers),
                raw_text=conversation.turns[0] if raw else "",
                template_args={} if raw else self._renderer.template_args(conversation),
            )
        return None

    def _take(self, log: AnswerLog, talk: Talk, outcome: Generated) -> None:
        name, turn = outcome.request.key
        if not outcome.answer_ids:
            self._give_up(talk, "empty", "no token came back")
            return
        answer = Answer(
            id=name,
            turn=turn,
            category=talk.row.conversation.category,
            prompt_ids=outcome.prompt_ids,
            answer_ids=outcome.answer_ids,
            finish_reason=outcome.finish_reason,
            temperature=outcome.request.sampling.temperature,
        )
        log.add(answer)
        text = self._renderer.answer_text(answer.answer_ids)
        verdict = judge(answer, text)
        self._tally.add(answer, verdict, resumed=False)
        following = self._after(talk, text, verdict)
        if following is not None:
            self._next.append(following)

    def _give_up(self, talk: Talk, kind: str, reason: str) -> None:
        """Count a turn that has no answer, and those after it."""
        where = f"{talk.row.where} ({talk.row.conversation.id!r}, turn {talk.turn})"
        self._tally.add_problem(Problem(where, kind, " ".join(reason.split())[:300]))
        self._tally.num_settled += 1
        self._tally.skip(talk.num_left - 1)

    def _pack(self, dropped: frozenset[tuple[str, int]], *, adopted: bool) -> None:
        def rank(answer: Answer) -> int | None:
            place = self._places.get(answer.id)
            is_empty = not self._renderer.answer_text(answer.answer_ids).strip()
            if place is None or is_empty or answer.key in dropped:
                return None
            return place << 20 | answer.turn

        def fields(packed_ids: frozenset[str]) -> dict[str, object]:
            # Licenses of what is there, not of all that was asked.
            answered = [
                row.conversation for row in self._files.rows if row.conversation.id in packed_ids
            ]
            return {
                "made_by": "blockdraft data regenerate",
                **self._settings(),
                "notes": self._source.notes(),
                "adopted_log": adopted,
                "licenses": _counted(conversation.license for conversation in answered),
                "sources": _counted(conversation.source for conversation in answered),
                "counts": {**self._tally.as_dict(), "loops_dropped": len(dropped)},
                "problems": [problem._asdict() for problem in self._tally.shown],
            }

        pack(self._folder, fields, vocab_size=self._vocab_size, rank=rank)


def _counted(values: Iterator[str | None]) -> dict[str, int]:
    return dict(sorted(Counter(value or "unknown" for value in values).items()))
