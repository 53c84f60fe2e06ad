"""Which sampled user turns are worth asking, and which say what another one says.

Texts and ids in, a reason out; nothing is sampled or written here.
"""

from collections.abc import Sequence

from blockdraft.data.answer_row import AnswerEnd
from blockdraft.data.duplicates import NearIndex, share_most
from blockdraft.data.leaks import EvalPrompts, EvalTurn
from blockdraft.data.rendering import Codec
from blockdraft.data.words import fingerprint, shingles_of, words_of

MIN_WORDS = 4
REPEATED_RUN = 4
MIN_DISTINCT_SHARE = 0.5
"""Of all runs of four ids in a turn, so many must differ from one another."""


class TurnFilter:
    """Looks at turns in order; what it accepts, later ones are held against."""

    def __init__(self, codec: Codec, eval_turns: Sequence[EvalTurn] = ()) -> None:
        self._codec = codec
        self._eval = EvalPrompts(list(eval_turns))
        self._exact: set[bytes] = set()
        self._sets: list[list[int]] = []
        # How common a shingle will be is not known yet; any order finds the same.
        self._near = NearIndex(self._sets, lambda _: 1, share_most)

    def refuse(self, text: str, ids: Sequence[int], ending: AnswerEnd) -> str | None:
        """Why a turn is no good; None for one that is, which is then remembered.

        `ids` are the turn's own, without the token that ended it.
        """
        if ending != "stop":
            return "not_ended"
        words = words_of(text)
        if len(words) < MIN_WORDS:
            return "too_short"
        if self._codec.decode(ids, skip_special_tokens=False) != self._codec.decode(ids):
            return "special_tokens"
        if "\ufffd" in text:
            return "broken_characters"
        if repeats_itself(ids):
            return "repetitive"
        exact, shingles = fingerprint([words]), sorted(shingles_of(words))
        if self._eval.find(text, words, set(shingles)) is not None:
            return "like_evaluation"
        if exact in self._exact:
            return "duplicate"
        if next(self._near.matches(shingles), None) is not None:
            return "near_duplicate"
        self._exact.add(exact)
        self._sets.append(shingles)
        self._near.add(len(self._sets) - 1)
        return None


def repeats_itself(ids: Sequence[int]) -> bool:
    """Whether less than half of the runs of four ids differ from one another."""
    runs = [tuple(ids[i : i + REPEATED_RUN]) for i in range(len(ids) - REPEATED_RUN + 1)]
    return len(set(runs)) < MIN_DISTINCT_SHARE * len(runs)
