"""The five questions of a bench, answered in sentences with numbers and a verdict each.

Pure: a document in, answers out. The rules of each verdict are written in docs/report.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from blockdraft.bench.report.acceptance_answer import answer_acceptance
from blockdraft.bench.report.block_answer import answer_block_size
from blockdraft.bench.report.document import BenchDocument
from blockdraft.bench.report.latency_answer import answer_latency
from blockdraft.bench.report.reading import parse_document
from blockdraft.bench.report.reply import Reply
from blockdraft.bench.report.stack_answer import answer_stack
from blockdraft.bench.report.throughput_answer import answer_throughput

QUESTIONS: tuple[tuple[str, Callable[[BenchDocument], Reply]], ...] = (
    ("Is the mean acceptance length long enough?", answer_acceptance),
    ("Does end-to-end latency really fall?", answer_latency),
    ("Does throughput still gain as concurrency grows?", answer_throughput),
    ("Which block size balances acceptance and drafter cost?", answer_block_size),
    ("Does it fit the serving stack in use?", answer_stack),
)


NOTHING_ANSWERED = Reply(
    verdict="unknown",
    sentence="No request was answered; the failures say why.",
    figures={},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One question's answer: `headline` is its figure in a word, `detail` how it was decided."""

    question: int
    title: str
    reply: Reply

    def to_json(self) -> dict[str, object]:
        """Plain values, to be written as they are."""
        told: dict[str, object] = {"question": self.question, "title": self.title}
        return told | asdict(self.reply)


def answer_questions(document: BenchDocument) -> tuple[Answer, ...]:
    """All five, in order; "unknown", with what to do, where the document does not tell."""
    is_empty = bool(document.figures) and all(one.answers == 0 for one in document.figures)
    return tuple(
        Answer(
            question=number,
            title=title,
            reply=NOTHING_ANSWERED if is_empty and answer is not answer_stack else answer(document),
        )
        for number, (title, answer) in enumerate(QUESTIONS, start=1)
    )


def answers_json(document: Mapping[str, object]) -> list[dict[str, object]]:
    """The part "answers" of a document of version 2 that holds all its other parts.

    Raises ConfigError where the document is not of the shape that reports read.
    """
    parsed = parse_document(dict(document))
    return [answer.to_json() for answer in answer_questions(parsed)]
