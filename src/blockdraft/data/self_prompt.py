"""`SelfPrompting`: user turns drawn from the target's own chat template.

A chat model that is fed its template up to where the user speaks goes on as the user. What it
writes is near what it was trained on. Who generates is an `AnswerSource`; what is accepted is
`self_prompt_filter.py`'s.
"""

import fcntl
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple, cast

from blockdraft.data.answer_requests import (
    NUM_SEEDS,
    AnswerSource,
    Generated,
    Outcome,
    Sampling,
    TurnRequest,
    derived_number,
)
from blockdraft.data.conversations import Conversation, to_line
from blockdraft.data.durable import cut_torn_line, new_file, write_json
from blockdraft.data.folders import writing
from blockdraft.data.leaks import EvalTurn
from blockdraft.data.manifest import sha256_of
from blockdraft.data.rendering import Renderer
from blockdraft.data.run_settings import record_settings
from blockdraft.data.self_prompt_filter import TurnFilter
from blockdraft.errors import ConfigError, EngineFault

MAX_FAILURES_IN_A_ROW = 50
MIN_TRIED = 1000
MIN_KEPT_SHARE = 0.002
"""A run of which less is kept after `MIN_TRIED` turns is ended: it would hardly get anywhere."""

PROBES = ("@@@@ 1", "#### 2")
KEY = "self-prompt"


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfPromptConfig:
    """How turns are drawn. `start` is how each one begins: it is fed, and kept."""

    count: int
    start: str = ""
    category: str = "chat"
    temperature: float = 1.0
    top_p: float = 0.95
    max_new_tokens: int = 256
    seed: int = 0

    def __post_init__(self) -> None:
        if self.count < 1 or self.max_new_tokens < 1:
            raise ConfigError("--count and --max-new-tokens must be at least 1")
        if not 0 < self.temperature <= 100:
            raise ConfigError("--temperature must be above 0: greedy turns would all be the same")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"--top-p is {self.top_p}; it must be above 0 and at most 1")


class UserTurn(NamedTuple):
    """What is fed before a user turn, and the ids that end one."""

    prefix: tuple[int, ...]
    end_ids: tuple[int, ...]


def find_user_turn(renderer: Renderer) -> UserTurn:
    """Where the template lets the user speak, from two prompts that differ in the user's text.

    Raises ConfigError for a template in which a plain text, not a special token, ends the turn.
    """
    first, second = (
        renderer.prompt_ids(Conversation(id="probe", source="", turns=(text,)), ())
        for text in PROBES
    )
    start = _num_common(first, second)
    num_after = _num_common(first[::-1], second[::-1])
    after = first[len(first) - num_after :]
    if start == 0:
        raise ConfigError("the chat template puts nothing before a user turn to go on from")
    if not after or renderer.codec.decode(after[:1]):
        raise ConfigError(
            "no special token ends a user turn in the target's chat template, so where a sampled "
            "turn ends can't be told; use prompts from elsewhere"
        )
    return UserTurn(first[:start], after[:1])


def _num_common(first: Sequence[int], second: Sequence[int]) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))


@dataclass(slots=True)
class PromptTally:
    """What became of the sampled turns."""

    wanted: int
    tried: int = 0
    kept: int = 0
    new_tokens: int = 0
    refused: Counter[str] = field(default_factory=Counter[str])

    def add(self, reason: str | None) -> None:
        self.tried += 1
        self.kept += reason is None
        if reason is not None:
            self.refused[reason] += 1

    def as_dict(self) -> dict[str, object]:
        return {
            "tried": self.tried,
            "kept": self.kept,
            "refused": dict(sorted(self.refused.items())),
        }


Progress = Callable[[PromptTally], None]


class SelfPrompting:
    """One file of sampled prompts. While it is made, PATH.partial holds all that was sampled.

    The n-th sampled turn depends on the seed and on n alone, and turns are looked at in order: the
    file is the same whether the run was continued or not, and however many ran at once.
    """

    def __init__(
        self,
        path: Path,
        renderer: Renderer,
        config: SelfPromptConfig,
        source: AnswerSource,
        *,
        target: str,
        eval_turns: Sequence[EvalTurn] = (),
    ) -> None:
        """Raises ConfigError for a template without a place for the user."""
        self._path = path
        self._log = path.with_name(f"{path.name}.partial")
        self._settings_file = path.with_name(f"{path.name}.settings.json")
        self._renderer = renderer
        self._config = config
        self._source = source
        self._target = target
        self._filter = TurnFilter(renderer.codec, eval_turns)
        self._eval_turns = eval_turns
        self._user_turn = find_user_turn(renderer)
        self._start_ids = renderer.encode_plain(config.start) if config.start else ()
        self._kept: list[Conversation] = []
        self._next = 0
        self.tally = PromptTally(config.count)

    @property
    def manifest_path(self) -> Path:
        return self._path.with_name(f"{self._path.name}.manifest.json")

    def run(self, progress: Progress) -> None:
        """Sample until enough turns are kept, then write the file and its manifest.

        Raises ConfigError when the file exists, can't be written, was begun with other settings, or
        hardly any turn is any good; EngineFault when too many requests fail in a row.
        """
        if self._path.exists():
            raise ConfigError(f"{self._path} exists already; remove it or name another file")
        remedy = "make room or name another file; the same command goes on with what is kept"
        with writing(self._path.parent, remedy):
            self._run(progress)

    def _run(self, progress: Progress) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        settings = self._settings()
        record_settings(
            self._settings_file,
            settings,
            begun=self._log.exists(),
            remedy=f"remove {self._log.name} to begin anew",
        )
        with self._log.open("a", encoding="utf-8", newline="\n") as log:
            try:
                fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise ConfigError(
                    f"another run is writing {self._path}; wait for it to end"
                ) from error
            cut_torn_line(self._log)
            self._resume()
            progress(self.tally)
            for number, outcome in self._in_order():
                record = self._record(number, outcome)
                log.write(json.dumps(record) + "\n")
                log.flush()
                self._take(record)
                progress(self.tally)
                self._check_yield()
        self._write(settings)

    def _settings(self) -> dict[str, object]:
        return {
            "target": self._target,
            "template": self._renderer.describe(),
            "prompts": asdict(self._config),
            "eval_turns": f"{derived_number(*(turn.text for turn in self._eval_turns)):016x}",
            "num_eval_turns": len(self._eval_turns),
            "source": self._source.describe(),
        }

    def _resume(self) -> None:
        if not self._log.exists():
            return
        for number, line in enumerate(self._log.read_bytes().split(b"\n")[:-1], start=1):
            try:
                record = cast("dict[str, object]", json.loads(line))
                self._take(record)
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigError(
                    f"{self._log}, line {number} is damaged; remove the file to begin anew"
                ) from error

    def _in_order(self) -> Iterator[tuple[int, Outcome]]:
        """Outcomes in the order of their numbers, until enough turns are kept."""
        waiting: dict[int, Outcome] = {}
        failures = 0
        if self.tally.kept >= self._config.count:
            return
        self._next = number = self.tally.tried
        for outcome in self._source.answer(self._next_request):
            failures = 0 if isinstance(outcome, Generated) else failures + 1
            if failures >= MAX_FAILURES_IN_A_ROW:
                raise EngineFault(f"{failures} requests in a row failed: {outcome[1]}")
            if isinstance(outcome, Generated):
                self.tally.new_tokens += len(outcome.answer_ids)
            waiting[outcome.request.key[1]] = outcome
            while number in waiting:
                yield number, waiting.pop(number)
                number += 1
                if self.tally.kept >= self._config.count:
                    return

    def _next_request(self) -> TurnRequest:
        number = self._next
        self._next += 1
        return TurnRequest(
            key=(KEY, number),
            prompt_ids=(*self._user_turn.prefix, *self._start_ids),
            sampling=Sampling(
                max_new_tokens=self._config.max_new_tokens,
                temperature=self._config.temperature,
                top_p=self._config.top_p,
                seed=derived_number(self._config.seed, KEY, number) % NUM_SEEDS,
                stop_ids=self._user_turn.end_ids,
            ),
        )

    def _record(self, number: int, outcome: Outcome) -> dict[str, object]:
        """What the log says of one sampled turn: its ids, so that a continued run judges alike."""
        if not isinstance(outcome, Generated):
            return {"number": number, "ids": [], "ending": "length"}
        return {
            "number": number,
            "ids": list(outcome.answer_ids),
            "ending": outcome.finish_reason,
        }

    def _take(self, record: Mapping[str, object]) -> None:
        """Judge one sampled turn; those after it are held against it if it is kept."""
        number = cast(int, record["number"])
        ids = cast("list[int]", record["ids"])
        ending = "stop" if record["ending"] == "stop" else "length"
        if number != self.tally.tried:
            raise ValueError(number)
        own = [*self._start_ids, *(ids[:-1] if ending == "stop" else ids)]
        text = self._renderer.codec.decode(own).strip()
        reason = self._filter.refuse(text, own, ending) if ids else "failed"
        if reason is None:
            self._kept.append(
                Conversation(
                    id=f"self-{self._config.seed}-{number}",
                    source=f"{KEY}:{self._target}",
                    category=self._config.category,
                    system=self._renderer.config.system,
                    turns=(text,),
                )
            )
        self.tally.add(reason)

    def _check_yield(self) -> None:
        tally = self.tally
        if tally.tried >= MIN_TRIED and tally.kept < MIN_KEPT_SHARE * tally.tried:
            raise ConfigError(
                f"of {tally.tried} sampled turns {tally.kept} were any good "
                f"({json.dumps(tally.as_dict()['refused'])}); use another --start or more "
                "--max-new-tokens"
            )

    def _write(self, settings: Mapping[str, object]) -> None:
        with new_file(self._path) as unfinished:
            lines = [to_line(conversation) for conversation in self._kept[: self._config.count]]
            unfinished.write_text("".join(lines), encoding="utf-8", newline="\n")
        manifest = {
            "schema": 1,
            "made_by": "blockdraft data self-prompt",
            **settings,
            "counts": self.tally.as_dict(),
            "files": {self._path.name: sha256_of(self._path)},
        }
        write_json(self.manifest_path, manifest)
        self._log.unlink(missing_ok=True)
        self._settings_file.unlink(missing_ok=True)
