"""`Answer`: one assistant turn as the token ids that were fed and those that came out.

Also its form as one JSON line of a log; files and tables are in `answer_files.py` and `answers.py`.
"""

import json
from dataclasses import dataclass
from typing import Literal, cast

from blockdraft.errors import ConfigError

AnswerEnd = Literal["stop", "length"]

KEYS = ("id", "turn", "category", "prompt_ids", "answer_ids", "finish_reason", "temperature")
MAX_ID = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to one turn of the conversation `id`.

    `turn` counts assistant turns from 0. `prompt_ids` are all ids before the answer, template
    included; `answer_ids` the generated ones, with the stop token when the answer ended by itself
    (`finish_reason` "stop"). `temperature` 0 was greedy.
    """

    id: str
    turn: int
    category: str | None
    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]
    finish_reason: AnswerEnd
    temperature: float

    @property
    def key(self) -> tuple[str, int]:
        """What names an answer in its data set."""
        return self.id, self.turn


def render_answer(answer: Answer) -> bytes:
    """The answer as one line of a log, its line feed included."""
    value = {
        "id": answer.id,
        "turn": answer.turn,
        "category": answer.category,
        "prompt_ids": answer.prompt_ids,
        "answer_ids": answer.answer_ids,
        "finish_reason": answer.finish_reason,
        "temperature": answer.temperature,
    }
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def parse_answer(line: bytes, where: str) -> Answer:
    """One line of a log; a missing "turn" is turn 0. Raises ConfigError headed by `where`."""
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not JSON ({error}); remove the line") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: not an object with the keys {', '.join(KEYS)}")
    fields = {"turn": 0} | cast("dict[str, object]", value)
    if wrong := sorted(set(fields) ^ set(KEYS)):
        problem = "unknown" if wrong[0] in fields else "missing"
        raise ConfigError(f"{where}: {problem} key {wrong[0]!r}; an answer has {', '.join(KEYS)}")
    turn, category, reason = fields["turn"], fields["category"], fields["finish_reason"]
    temperature, name = fields["temperature"], fields["id"]
    if not isinstance(name, str):
        raise ConfigError(f'{where}: "id" must be a string')
    if not isinstance(turn, int) or isinstance(turn, bool) or turn < 0:
        raise ConfigError(f'{where}: "turn" must be a whole number from 0')
    if category is not None and not isinstance(category, str):
        raise ConfigError(f'{where}: "category" must be a string or null')
    if reason not in ("stop", "length"):
        raise ConfigError(f'{where}: "finish_reason" must be "stop" or "length"')
    if isinstance(temperature, bool) or not isinstance(temperature, int | float):
        raise ConfigError(f'{where}: "temperature" must be a number')
    return Answer(
        id=name,
        turn=turn,
        category=category,
        prompt_ids=_ids(fields["prompt_ids"], f'{where}: "prompt_ids"'),
        answer_ids=_ids(fields["answer_ids"], f'{where}: "answer_ids"'),
        finish_reason="stop" if reason == "stop" else "length",
        temperature=float(temperature),
    )


def _ids(value: object, where: str) -> tuple[int, ...]:
    # Checked in C: a log may hold a million of these.
    if isinstance(value, list) and set(map(type, cast("list[object]", value))) <= {int}:
        ids = cast("list[int]", value)
        # Empty ones are for the reader to judge: a training counts and skips them.
        if not ids or (min(ids) >= 0 and max(ids) <= MAX_ID):
            return tuple(ids)
    raise ConfigError(f"{where} must be a list of token ids")
