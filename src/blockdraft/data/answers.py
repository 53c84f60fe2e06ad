"""`AnswerTable`: the answers of one run, a folder in either of its two forms, by row.

Reading only: how the folder comes to be is in `answer_files.py`.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path

from blockdraft.data.answer_columns import AnswerChunk, chunk_answers, read_parquet
from blockdraft.data.answer_files import LOG_FILE, packed_files, read_log
from blockdraft.data.answer_row import Answer, AnswerEnd
from blockdraft.data.manifest import read_manifest
from blockdraft.errors import ConfigError

__all__ = ["Answer", "AnswerEnd", "AnswerTable"]


class AnswerTable:
    """Many answers, kept as columns; row i is made into an `Answer` when asked for."""

    def __init__(self, chunks: Iterable[AnswerChunk], manifest: Mapping[str, object]) -> None:
        self._chunks = tuple(chunk for chunk in chunks if len(chunk))
        self._ends = list(accumulate(len(chunk) for chunk in self._chunks))
        self.manifest = manifest

    @classmethod
    def open(cls, folder: str | Path) -> "AnswerTable":
        """The answers in `folder`, also of a run that is not finished (its manifest is empty).

        A line that is only half written is left out. Raises ConfigError, naming file and line, for
        a folder without answers and for damaged ones.
        """
        folder = Path(folder)
        log = folder if folder.is_file() and folder.suffix == ".jsonl" else folder / LOG_FILE
        if log.exists():
            return cls(chunk_answers(read_log(log), short=False), {})
        files = packed_files(folder)
        if not files:
            raise ConfigError(
                f"{folder} holds no answers (neither answers.parquet nor {LOG_FILE}); make them "
                "with blockdraft data regenerate"
            )
        chunks = (chunk for file in files for chunk in read_parquet(file))
        return cls(chunks, read_manifest(folder))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, row: int) -> Answer:
        if not 0 <= row < len(self):
            raise IndexError(row)
        chunk = bisect_right(self._ends, row)
        start = self._ends[chunk - 1] if chunk else 0
        return self._chunks[chunk][row - start]

    def __iter__(self) -> Iterator[Answer]:
        for chunk in self._chunks:
            for row in range(len(chunk)):
                yield chunk[row]

    @property
    def num_answer_tokens(self) -> int:
        return sum(chunk.answers.num_ids for chunk in self._chunks)

    @property
    def num_prompt_tokens(self) -> int:
        return sum(chunk.prompts.num_ids for chunk in self._chunks)
