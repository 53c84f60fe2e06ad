"""Self-prompting: where the user speaks, which turns are kept, the same file however made."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from blockdraft.data.answer_requests import Generated, NextRequest, NotGenerated, Outcome
from blockdraft.data.leaks import EvalTurn
from blockdraft.data.left_out import Place
from blockdraft.data.rendering import Renderer, RenderingConfig
from blockdraft.data.self_prompt import (
    PromptTally,
    SelfPromptConfig,
    SelfPrompting,
    find_user_turn,
)
from blockdraft.data.self_prompt_filter import TurnFilter
from blockdraft.errors import ConfigError, EngineFault
from blockdraft.target import Message
from blockdraft.testing import ByteTextCodec
from blockdraft.testing.codec import ASSISTANT_ID, BOS_ID, END_ID, USER_ID

NOUNS = ("river", "engine", "violin", "planet", "garden", "teacher", "window", "market")


def written_by(number: int) -> tuple[str, bool]:
    """What the n-th turn says, and whether it ends."""
    if number % 5 == 3:
        return "too short", True
    if number % 7 == 6:
        return "this one goes on and on", False
    noun, other = NOUNS[number % 8], NOUNS[number // 8 % 8]
    return f"Tell me how the {noun} number {number} differs from that {other}", True


class FakeWriter:
    """Answers a few requests at once, out of order; `dies_after` outcomes it is interrupted."""

    def __init__(
        self,
        write: Callable[[int], tuple[str, bool]] = written_by,
        *,
        width: int = 4,
        dies_after: int = -1,
    ) -> None:
        self.prompts: list[tuple[int, ...]] = []
        self._write = write
        self._width = width
        self._left = dies_after

    def answer(self, next_request: NextRequest) -> Iterator[Outcome]:
        while True:
            batch = [request for _ in range(self._width) if (request := next_request())]
            for request in reversed(batch):
                if self._left == 0:
                    raise KeyboardInterrupt
                self._left -= 1
                self.prompts.append(request.prompt_ids)
                text, ends = self._write(request.key[1])
                if text == "fails":
                    yield NotGenerated(request, "no luck")
                    continue
                ids = (*text.encode(), END_ID) if ends else tuple(text.encode())
                yield Generated(request, request.prompt_ids, ids, "stop" if ends else "length")

    def describe(self) -> dict[str, object]:
        return {"kind": "fake"}

    def notes(self) -> dict[str, object]:
        return {}


def ignore(tally: PromptTally) -> None:
    pass


def make(
    path: Path,
    writer: FakeWriter,
    *,
    count: int = 12,
    start: str = "",
    seed: int = 0,
    eval_texts: Sequence[str] = (),
) -> SelfPrompting:
    renderer = Renderer(ByteTextCodec(), RenderingConfig(), [END_ID])
    known = [EvalTurn(Place("eval.jsonl", 1), "e", text) for text in eval_texts]
    config = SelfPromptConfig(count=count, start=start, seed=seed)
    return SelfPrompting(path, renderer, config, writer, target="tiny", eval_turns=known)


def test_where_the_user_speaks() -> None:
    turn = find_user_turn(Renderer(ByteTextCodec(), RenderingConfig(), [END_ID]))
    assert turn == ((BOS_ID, USER_ID), (END_ID,))
    with_system = RenderingConfig(system="Hi")
    turn = find_user_turn(Renderer(ByteTextCodec(), with_system, [END_ID]))
    assert turn.prefix == (BOS_ID, USER_ID, *b"Hi", END_ID, USER_ID)


class PlainText(ByteTextCodec):
    """A template without special tokens around turns."""

    def chat(
        self, messages: Sequence[Message], template_args: Mapping[str, object] | None = None
    ) -> list[int]:
        text = "".join(f"{message['role']}: {message['content']}\n" for message in messages)
        return [*text.encode(), ASSISTANT_ID]


def test_a_template_that_ends_turns_with_plain_text() -> None:
    with pytest.raises(ConfigError, match="no special token ends a user turn"):
        find_user_turn(Renderer(PlainText(), RenderingConfig(), [END_ID]))


def test_the_file(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    run = make(path, FakeWriter())
    run.run(ignore)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == 12
    assert rows[0] == {
        "id": "self-0-0",
        "category": "chat",
        "source": "self-prompt:tiny",
        "turns": [written_by(0)[0]],
    }
    manifest = json.loads(run.manifest_path.read_text())
    assert manifest["counts"]["kept"] == 12
    assert set(manifest["counts"]["refused"]) == {"not_ended", "too_short"}
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "chat.jsonl",
        "chat.jsonl.manifest.json",
    ]
    with pytest.raises(ConfigError, match="exists already"):
        make(path, FakeWriter()).run(ignore)


@pytest.mark.parametrize("dies_after", [0, 3, 9])
@pytest.mark.parametrize("width", [1, 6])
def test_a_continued_run_writes_the_same_file(tmp_path: Path, dies_after: int, width: int) -> None:
    straight, path = tmp_path / "straight.jsonl", tmp_path / "chat.jsonl"
    make(straight, FakeWriter()).run(ignore)
    with pytest.raises(KeyboardInterrupt):
        make(path, FakeWriter(dies_after=dies_after)).run(ignore)
    with (tmp_path / "chat.jsonl.partial").open("ab") as file:
        file.write(b'{"number": 9, "id')
    make(path, FakeWriter(width=width)).run(ignore)
    assert path.read_bytes() == straight.read_bytes()


def test_other_settings_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    with pytest.raises(KeyboardInterrupt):
        make(path, FakeWriter(dies_after=5)).run(ignore)
    with pytest.raises(ConfigError, match=r"prompts\.seed was 0, is 1 now"):
        make(path, FakeWriter(), seed=1).run(ignore)
    (tmp_path / "chat.jsonl.partial").write_text("{}\n")
    with pytest.raises(ConfigError, match="line 1 is damaged"):
        make(path, FakeWriter()).run(ignore)


def test_two_runs_do_not_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    second: list[str] = []

    def begin_another(tally: PromptTally) -> None:
        if not second:
            with pytest.raises(ConfigError, match=r"another run is writing .*chat.jsonl") as caught:
                make(path, FakeWriter()).run(ignore)
            second.append(str(caught.value))

    make(path, FakeWriter()).run(begin_another)
    assert second and path.exists()


def test_a_file_that_can_not_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"can't write to .*file: .*; make room or name another"):
        make(tmp_path / "file" / "chat.jsonl", FakeWriter()).run(ignore)


def test_turns_may_begin_alike(tmp_path: Path) -> None:
    writer = FakeWriter(lambda number: (f" that adds {number} to a list", True))
    path = tmp_path / "code.jsonl"
    make(path, writer, count=3, start="Write a function").run(ignore)
    first = json.loads(path.read_text().splitlines()[0])
    assert first["turns"] == ["Write a function that adds 0 to a list"]
    assert set(writer.prompts) == {(BOS_ID, USER_ID, *b"Write a function")}


def test_a_target_that_writes_no_user_turns(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    with pytest.raises(ConfigError, match="of 1000 sampled turns 0 were any good"):
        make(path, FakeWriter(lambda number: ("no", True))).run(ignore)
    with pytest.raises(EngineFault, match=r"50 requests in a row failed: no luck"):
        make(tmp_path / "other.jsonl", FakeWriter(lambda number: ("fails", True))).run(ignore)


LONG = "Please explain to me in simple words how a steam engine turns heat into motion"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("What is a violin made of?", None),
        ("Only three words", "too_short"),
        ("again and again and again and again and again and again and again", "repetitive"),
        (LONG, "like_evaluation"),
        (f"{LONG}, briefly", "like_evaluation"),
        ("how do  BIRDS find their way", "duplicate"),
        ("One two three four five six seven eight nine ten and more", "near_duplicate"),
        ("What is a \ufffd violin made of?", "broken_characters"),
    ],
)
def test_which_turns_are_kept(text: str, reason: str | None) -> None:
    place = Place("eval.jsonl", 1)
    turns = TurnFilter(ByteTextCodec(), [EvalTurn(place, "e", LONG)])
    for known in (
        "How do birds find their way?",
        "one two three four five six seven eight nine ten and less",
    ):
        assert turns.refuse(known, tuple(known.encode()), "stop") is None
    assert turns.refuse(text, tuple(text.encode()), "stop") == reason
    assert turns.refuse("What does the other violin cost?", (1, USER_ID, 2), "stop") == (
        "special_tokens"
    )
    assert turns.refuse("What does it cost", (1, 2), "length") == "not_ended"


@pytest.mark.parametrize(
    "settings", [{"count": 0}, {"temperature": 0.0}, {"top_p": 1.5}, {"max_new_tokens": 0}]
)
def test_mistakes(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        SelfPromptConfig(**({"count": 1} | settings))  # pyright: ignore[reportArgumentType]: mixed
