"""A reduced draft vocabulary: the target's most frequent tokens, a row subset of its own head.

Nothing is trained in it, so a checkpoint stays valid without it; what it costs is that every token
outside it ends a block. Counting and choosing only; the head's rows are `frozen_head.py`'s.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from blockdraft.errors import ConfigError
from blockdraft.training.batches.batch import Sample


@dataclass(frozen=True, slots=True)
class DraftVocabulary:
    """Target ids that can be drafted, ascending; `vocab_size` is the target's."""

    ids: Int[Tensor, " draft_vocab"]
    vocab_size: int

    def __post_init__(self) -> None:
        assert bool((self.ids.diff() > 0).all()), "draft ids must ascend"

    def __len__(self) -> int:
        return self.ids.shape[0]

    @property
    def d2t(self) -> Int[Tensor, " draft_vocab"]:
        """Offsets, as checkpoints store them: target id = draft id + d2t[draft id]."""
        return self.ids - torch.arange(len(self))

    def to_draft(self) -> Int[Tensor, " vocab"]:
        """The draft id of every target id, -1 for those that can't be drafted."""
        table = torch.full((self.vocab_size,), -1, dtype=torch.long)
        table[self.ids] = torch.arange(len(self))
        return table

    def coverage(self, samples: Iterable[Sample]) -> float:
        """The share of answer tokens that can be drafted; 1 without any answer."""
        counts = count_answer_tokens(samples, self.vocab_size)
        total = int(counts.sum())
        return 1.0 if total == 0 else int(counts[self.ids].sum()) / total


def count_answer_tokens(samples: Iterable[Sample], vocab_size: int) -> Int[Tensor, " vocab"]:
    """How often each token occurs in the answers."""
    counts = torch.zeros(vocab_size, dtype=torch.long)
    for sample in samples:
        answer = torch.tensor(sample.ids[sample.answer_start :])
        counts += torch.bincount(answer, minlength=vocab_size)
    return counts


def choose_vocabulary(
    samples: Sequence[Sample], vocab_size: int, size: int, *, always: Sequence[int] = ()
) -> DraftVocabulary:
    """The `size` most frequent tokens of the answers, `always` (stop ids) among them.

    Ties go to the lower id. Raises ConfigError for a size that is not inside the vocabulary.
    """
    if not len(always) < size <= vocab_size:
        raise ConfigError(
            f"draft vocabulary of {size} tokens: give more than {len(always)} and at most the "
            f"target's {vocab_size}"
        )
    counts = count_answer_tokens(samples, vocab_size)
    if always:
        counts[list(always)] = counts.max() + 1
    order = counts.argsort(descending=True, stable=True)
    return DraftVocabulary(order[:size].sort().values, vocab_size)
