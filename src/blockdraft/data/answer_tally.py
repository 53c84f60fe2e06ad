"""`Tally`: what became of the turns of a run, counted as it goes.

It decides about one answer (`judge`) and about how many loops stay; it keeps no answers.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from blockdraft.data.answer_requests import derived_number
from blockdraft.data.answer_row import Answer
from blockdraft.data.conversation_files import Problem
from blockdraft.data.loops import ends_in_loop

Verdict = Literal["good", "empty", "loop"]

MAX_SHOWN = 20
"""Problems that a report lists one by one."""


def judge(answer: Answer, text: str) -> Verdict:
    """What an answer is worth: nothing was said, the same was said over and over, or neither.

    An answer that ended by itself is no loop, whatever it repeated.
    """
    if not text.strip():
        return "empty"
    if answer.finish_reason == "length" and ends_in_loop(answer.answer_ids):
        return "loop"
    return "good"


@dataclass(slots=True)
class Tally:
    """Counts of one run, the answers of earlier runs (`num_resumed`) among them.

    `num_turns` is what there is to do; `num_settled` what is answered, refused or not to be tried.
    """

    num_turns: int
    num_settled: int = 0
    num_resumed: int = 0
    num_answers: int = 0
    num_tokens: int = 0
    new_tokens: int = 0
    num_ended: int = 0
    num_sampled: int = 0
    num_empty: int = 0
    num_not_tried: int = 0
    loops: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    problems: Counter[str] = field(default_factory=Counter[str])
    shown: list[Problem] = field(default_factory=list[Problem])

    def add(self, answer: Answer, verdict: Verdict, *, resumed: bool) -> None:
        """Count an answer."""
        self.num_settled += 1
        self.num_answers += 1
        self.num_tokens += len(answer.answer_ids)
        self.num_ended += answer.finish_reason == "stop"
        self.num_sampled += answer.temperature > 0
        self.num_empty += verdict == "empty"
        if verdict == "loop":
            self.loops.append(answer.key)
        if resumed:
            self.num_resumed += 1
        else:
            self.new_tokens += len(answer.answer_ids)

    def add_problem(self, problem: Problem) -> None:
        """Count a row or request that has no answer."""
        self.problems[problem.kind] += 1
        if len(self.shown) < MAX_SHOWN:
            self.shown.append(problem)

    def skip(self, num_turns: int) -> None:
        """Count turns that are not tried, since one before them has no answer to go on from."""
        self.num_not_tried += num_turns
        self.num_settled += num_turns

    def loops_to_drop(self, max_share: float, seed: int) -> frozenset[tuple[str, int]]:
        """Which loops to leave out, so that at most `max_share` of what stays are loops.

        Which ones depends on the seed and their keys, not on the order they came in.
        """
        num_others = self.num_answers - self.num_empty - len(self.loops)
        if max_share >= 1:
            return frozenset()
        num_kept = int(max_share / (1 - max_share) * num_others)
        shuffled = sorted(self.loops, key=lambda key: derived_number(seed, "loop", *key))
        return frozenset(shuffled[num_kept:])

    def as_dict(self) -> dict[str, object]:
        """The counts, for a report or a manifest."""
        return {
            "turns": self.num_turns,
            "answers": self.num_answers,
            "resumed": self.num_resumed,
            "answer_tokens": self.num_tokens,
            "ended_by_themselves": self.num_ended,
            "hit_the_limit": self.num_answers - self.num_ended,
            "loops": len(self.loops),
            "empty": self.num_empty,
            "sampled": self.num_sampled,
            "turns_not_tried": self.num_not_tried,
            "problems": dict(sorted(self.problems.items())),
        }
