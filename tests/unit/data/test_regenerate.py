"""Regeneration on a scripted target: turns in order, resume, policies, bad data."""

import json
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from blockdraft.data.answer_files import AnswerLog, read_log
from blockdraft.data.answer_requests import NextRequest, NotGenerated, Outcome
from blockdraft.data.answer_tally import Tally
from blockdraft.data.answers import Answer, AnswerTable
from blockdraft.data.conversation_files import read_conversations
from blockdraft.data.in_process import InProcessGenerator
from blockdraft.data.regenerate import MAX_FAILURES_IN_A_ROW, Regeneration, Report
from blockdraft.data.regenerate_config import RegenerateConfig
from blockdraft.data.rendering import Renderer, RenderingConfig
from blockdraft.decoding import NoDrafter
from blockdraft.engine import EngineConfig, build_engine
from blockdraft.errors import ConfigError, EngineFault
from blockdraft.target import Message
from blockdraft.testing import ByteTextCodec, ScriptedTarget
from blockdraft.testing.codec import ASSISTANT_ID, END_ID, USER_ID
from blockdraft.testing.laws import prefix_hash

VOCAB = ByteTextCodec.vocab_size
CONFIG = RegenerateConfig(max_new_tokens=24, max_context=400)
TURNS = {"a": ["two and two"], "b": ["hello", "and again", "bye"], "c": ["three"], "d": ["x", "y"]}


def ignore(tally: Tally) -> None:
    pass


def num_said(prefix: tuple[int, ...]) -> int:
    """How far the answer is."""
    return len(prefix) - 1 - max((i for i, t in enumerate(prefix) if t == ASSISTANT_ID), default=0)


def letters(prefix: tuple[int, ...]) -> torch.Tensor:
    """A letter that depends on all before it, or the end of the turn, likelier the later it is."""
    drawn = prefix_hash(prefix, seed=1)
    ends = num_said(prefix) > 2 and drawn % 7 == 0
    logits = torch.full((VOCAB,), -20.0, dtype=torch.float64)
    logits[ord("a") + drawn % 26] = 2.0
    logits[ord("a") + drawn // 26 % 26] += 21.0
    if ends:
        logits[END_ID] = 30.0
    return logits


class TextTarget(ScriptedTarget):
    """A scripted target with a dtype and a device, as an engine wants them."""

    dtype = torch.float64
    device = torch.device("cpu")


Law = Callable[[tuple[int, ...]], torch.Tensor]


def make_source(law: Law = letters, slots: int = 3) -> InProcessGenerator:
    target = TextTarget(law, VOCAB, max_context_len=400, stop_ids=(END_ID,))
    config = EngineConfig(slots=slots, max_context=400, kv_memory=100_000_000)
    engine = build_engine(target, NoDrafter(), config).engine
    return InProcessGenerator(engine, slots, {"kind": "in_process", "target": "scripted"})


def write_prompts(path: Path, turns: dict[str, list[str]] | None = None) -> Path:
    rows = [
        {"id": name, "category": "chat", "source": "test", "license": "MIT", "turns": texts}
        for name, texts in (turns or TURNS).items()
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


class Interrupted:
    """Passes outcomes on and then breaks off, as a kill would: no more comes."""

    def __init__(self, source: InProcessGenerator, after: int) -> None:
        self._source = source
        self._after = after

    def answer(self, next_request: NextRequest) -> Iterator[Outcome]:
        outcomes = self._source.answer(next_request)
        for _ in range(self._after):
            yield next(outcomes)
        raise KeyboardInterrupt

    def describe(self) -> dict[str, object]:
        return self._source.describe()

    def notes(self) -> dict[str, object]:
        return {}


class Failing:
    """Fails the requests whose conversations are named."""

    def __init__(self, source: InProcessGenerator, names: set[str]) -> None:
        self._source = source
        self._names = names

    def answer(self, next_request: NextRequest) -> Iterator[Outcome]:
        for outcome in self._source.answer(next_request):
            if outcome.request.key[0] in self._names:
                yield NotGenerated(outcome.request, "no luck")
            else:
                yield outcome

    def describe(self) -> dict[str, object]:
        return self._source.describe()

    def notes(self) -> dict[str, object]:
        return {}


Source = InProcessGenerator | Interrupted | Failing


def make_run(
    folder: Path,
    prompts: Path,
    source: Source | None = None,
    config: RegenerateConfig = CONFIG,
    rendering: RenderingConfig | None = None,
) -> Regeneration:
    renderer = Renderer(ByteTextCodec(), rendering or RenderingConfig(), [END_ID])
    files = read_conversations([prompts])
    return Regeneration(folder, files, renderer, config, source or make_source(), vocab_size=VOCAB)


def run(
    folder: Path,
    prompts: Path,
    source: Source | None = None,
    config: RegenerateConfig = CONFIG,
    *,
    adopt: bool = False,
    pack_only: bool = False,
) -> Report:
    made = make_run(folder, prompts, source, config)
    return made.run(ignore, adopt=adopt, pack_only=pack_only)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    return write_prompts(tmp_path / "prompts.jsonl")


def test_every_turn_is_asked_with_the_targets_own_answers(tmp_path: Path, prompts: Path) -> None:
    report = run(tmp_path / "out", prompts)
    table = AnswerTable.open(tmp_path / "out")
    assert report.finished and len(table) == 7
    assert [answer.key for answer in table] == [
        (name, turn) for name, texts in TURNS.items() for turn in range(len(texts))
    ]
    codec = ByteTextCodec()
    said: dict[tuple[str, int], str] = {}
    for answer in table:
        messages: list[Message] = []
        for turn in range(answer.turn):
            messages.append(Message(role="user", content=TURNS[answer.id][turn]))
            messages.append(Message(role="assistant", content=said[answer.id, turn]))
        messages.append(Message(role="user", content=TURNS[answer.id][answer.turn]))
        assert list(answer.prompt_ids) == codec.chat(messages)
        ended = answer.answer_ids[-1] == END_ID
        assert ended == (answer.finish_reason == "stop")
        said[answer.key] = codec.decode(answer.answer_ids)
        greedy: list[int] = []
        while len(greedy) < 24 and END_ID not in greedy:
            greedy.append(int(letters((*answer.prompt_ids, *greedy)).argmax()))
        assert answer.answer_ids == tuple(greedy)


def test_the_folder_at_the_end(tmp_path: Path, prompts: Path) -> None:
    out = tmp_path / "out"
    run(out, prompts)
    assert sorted(path.name for path in out.iterdir()) == [
        "answers.parquet",
        "manifest.json",
        "settings.json",
    ]
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["answers"]["number"] == 7
    assert manifest["answers"]["by_category"] == {"chat": 7}
    assert manifest["licenses"] == {"MIT": 4}
    assert manifest["template"]["rendered_example"].startswith("<bos><user>")
    assert len(manifest["template"]["template_sha256"]) == 64
    assert manifest["answers"]["answer_tokens"] == AnswerTable.open(out).num_answer_tokens


@pytest.mark.parametrize("after", [0, 1, 4, 6])
def test_a_continued_run_gives_what_a_straight_one_gives(
    tmp_path: Path, prompts: Path, after: int
) -> None:
    config = RegenerateConfig(
        max_new_tokens=24, max_context=400, sampled_share=0.5, sampled_temperature=2.0, seed=3
    )
    run(tmp_path / "straight", prompts, config=config)
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(out, prompts, Interrupted(make_source(), after), config)
    with (out / "answers.jsonl").open("ab") as file:
        file.write(b'{"id":"c","turn":0,"categ')  # killed while it wrote
    done = list(read_log(out / "answers.jsonl"))
    assert len(done) == after
    report = run(out, prompts, make_source(slots=1), config)
    assert report.counts["resumed"] == after
    straight, continued = AnswerTable.open(tmp_path / "straight"), AnswerTable.open(out)
    assert list(straight) == list(continued)
    assert {answer.temperature for answer in straight} == {0.0, 2.0}
    for name in ("answers.parquet", "settings.json"):
        assert (out / name).read_bytes() == (tmp_path / "straight" / name).read_bytes()


def test_seeds_do_not_depend_on_the_order(tmp_path: Path) -> None:
    config = RegenerateConfig(max_new_tokens=24, max_context=400, temperature=2.0)
    backward = dict(reversed(TURNS.items()))
    run(tmp_path / "a", write_prompts(tmp_path / "p1.jsonl"), make_source(slots=1), config)
    run(tmp_path / "b", write_prompts(tmp_path / "p2.jsonl", backward), config=config)
    first = {answer.key: answer for answer in AnswerTable.open(tmp_path / "a")}
    second = {answer.key: answer for answer in AnswerTable.open(tmp_path / "b")}
    assert first == second
    assert len({config.sampling(name, 0).seed for name in TURNS}) == len(TURNS)


def test_a_finished_folder_is_left_alone(tmp_path: Path, prompts: Path) -> None:
    run(tmp_path / "out", prompts)
    before = (tmp_path / "out" / "answers.parquet").stat().st_mtime_ns
    report = run(tmp_path / "out", prompts, Failing(make_source(), set(TURNS)))
    assert report.finished
    assert (tmp_path / "out" / "answers.parquet").stat().st_mtime_ns == before


def test_other_settings_are_refused(tmp_path: Path, prompts: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(out, prompts, Interrupted(make_source(), 2))
    with pytest.raises(ConfigError, match=r"answers\.seed was 0, is 5 now"):
        run(out, prompts, config=RegenerateConfig(max_new_tokens=24, max_context=400, seed=5))
    with pytest.raises(ConfigError, match=r"template\.system was null, is \"Short\.\" now"):
        make_run(out, prompts, rendering=RenderingConfig(system="Short.")).run(ignore)
    prompts.write_text(prompts.read_text() + '{"id":"e","turns":["more"]}\n')
    with pytest.raises(ConfigError, match=r"num_conversations was 4, is 5 now"):
        run(out, prompts)


def test_a_log_from_elsewhere_is_adopted_when_asked(tmp_path: Path, prompts: Path) -> None:
    out = tmp_path / "out"
    with AnswerLog(out):
        pass
    line = (
        '{"id":"a","category":"chat","prompt_ids":[256,1],"answer_ids":[97,257],'
        '"finish_reason":"stop","temperature":0.0}\n'
    )
    (out / "answers.jsonl").write_text(line + line.replace('"a"', '"unknown"'))
    with pytest.raises(ConfigError, match="--adopt"):
        run(out, prompts)
    report = run(out, prompts, adopt=True, pack_only=True)
    assert report.finished
    assert report.counts["problems"] == {"not_asked_for": 1}
    (answer,) = AnswerTable.open(out)
    assert answer.key == ("a", 0) and answer.answer_ids == (97, 257)


def test_two_runs_do_not_write_to_one_folder(tmp_path: Path, prompts: Path) -> None:
    with AnswerLog(tmp_path / "out"), pytest.raises(ConfigError, match="another run"):
        run(tmp_path / "out", prompts, adopt=True)


def test_a_folder_that_can_not_be_written_is_one_line(tmp_path: Path, prompts: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"can't write to .*out: Not a directory; make room or"):
        run(tmp_path / "file" / "out", prompts)


def test_a_disk_that_fills_up_keeps_what_was_answered(tmp_path: Path) -> None:
    turns = {f"p{i}": ["hello"] for i in range(60)}
    prompts, out = write_prompts(tmp_path / "p.jsonl", turns), tmp_path / "out"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(ConfigError, match=r"out: File too large; .* same command goes on"):
            run(out, prompts)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    report = run(out, prompts)
    resumed = report.counts["resumed"]
    assert report.finished and isinstance(resumed, int) and resumed > 5
    assert len(AnswerTable.open(out)) == 60


def test_failed_requests_are_tried_again(tmp_path: Path, prompts: Path) -> None:
    out = tmp_path / "out"
    report = run(out, prompts, Failing(make_source(), {"b"}))
    assert not report.finished and report.num_failed == 1
    assert report.counts["turns_not_tried"] == 2
    assert any("'b', turn 0" in problem.where for problem in report.shown)
    assert run(out, prompts).finished
    assert len(AnswerTable.open(out)) == 7


def test_a_run_that_fails_all_the_time_stops(tmp_path: Path) -> None:
    turns = {f"p{i}": ["hello"] for i in range(MAX_FAILURES_IN_A_ROW + 20)}
    prompts = write_prompts(tmp_path / "p.jsonl", turns)
    with pytest.raises(EngineFault, match=r"50 requests in a row failed.*no luck"):
        run(tmp_path / "out", prompts, Failing(make_source(), set(turns)))


def say(text: str, *, ends: bool) -> Law:
    """Says `text` over and over, or once."""
    ids = list(text.encode())

    def law(prefix: tuple[int, ...]) -> torch.Tensor:
        said = num_said(prefix)
        is_over = ends and said >= len(ids)
        logits = torch.zeros(VOCAB, dtype=torch.float64)
        logits[END_ID if is_over else ids[said % len(ids)]] = 9.0
        return logits

    return law


def loops_after_x(prefix: tuple[int, ...]) -> torch.Tensor:
    """Loops where the last user turn begins with x, else says something and ends."""
    last_user = max((i for i, t in enumerate(prefix) if t == USER_ID), default=0)
    loops = prefix[last_user + 1 : last_user + 2] == (ord("x"),)
    return (say("na ", ends=False) if loops else say("yes", ends=True))(prefix)


def test_loops_are_counted_and_dropped_on_demand(tmp_path: Path) -> None:
    turns = {f"p{i}": ["x" if i < 6 else "y", "more"] for i in range(10)}
    prompts = write_prompts(tmp_path / "p.jsonl", turns)
    kept: dict[float, list[Answer]] = {}
    for share in (1.0, 0.2, 0.0):
        config = RegenerateConfig(max_new_tokens=64, max_context=400, max_loop_share=share)
        report = run(tmp_path / f"{share}", prompts, make_source(loops_after_x), config)
        kept[share] = list(AnswerTable.open(tmp_path / f"{share}"))
        assert report.counts["loops"] == 6
        assert report.counts["turns_not_tried"] == 6
    assert [len(answers) for answers in kept.values()] == [14, 10, 8]
    assert sum(answer.finish_reason == "length" for answer in kept[0.2]) == 2


def test_empty_answers_are_left_out(tmp_path: Path, prompts: Path) -> None:
    """Bad data: the model may say nothing at all; later turns have nothing to go on from."""
    with pytest.raises(ConfigError, match="no answers to keep"):
        run(tmp_path / "none", prompts, make_source(say(" ", ends=True)))
    log = list(read_log(tmp_path / "none" / "answers.jsonl"))
    assert len(log) == 4


def test_prompts_that_are_too_long(tmp_path: Path) -> None:
    prompts = write_prompts(tmp_path / "p.jsonl", {"long": ["x" * 500], "short": ["y"]})
    report = run(tmp_path / "out", prompts)
    assert report.counts["problems"] == {"too_long": 1}
    (problem,) = report.shown
    assert "line 1" in problem.where and "376 fit" in problem.reason
    assert len(AnswerTable.open(tmp_path / "out")) == 1


def test_bad_lines(tmp_path: Path) -> None:
    """Broken JSON, wrong kinds, repeated ids: counted with their line numbers, or refused."""
    path = tmp_path / "p.jsonl"
    path.write_text(
        '{"id":"a","turns":["one"]}\n{"id":\n\n{"id":"b","turns":[]}\n{"id":"a","turns":["two"]}\n'
        '{"id":"c","turns":["\\ud800"]}\n[1]\n'
    )
    report = run(tmp_path / "out", path)
    assert report.counts["problems"] == {"bad_line": 4, "repeated_id": 1}
    assert [problem.where.rpartition(" ")[2] for problem in report.shown] == list("24567")
    with pytest.raises(ConfigError, match="line 2"):
        run(tmp_path / "strict", path, config=RegenerateConfig(strict=True))
    path.write_text("{}\n")
    with pytest.raises(ConfigError, match="no conversation in it"):
        run(tmp_path / "out", path)
    with pytest.raises(ConfigError, match="can't read prompts"):
        run(tmp_path / "out", tmp_path / "missing.jsonl")


def test_files_are_mixed_in_proportion(tmp_path: Path) -> None:
    first = write_prompts(tmp_path / "1.jsonl", {f"a{i}": ["x"] for i in range(6)})
    second = write_prompts(tmp_path / "2.jsonl", {f"b{i}": ["x"] for i in range(3)})
    rows = read_conversations([first, second]).rows
    assert "".join(row.conversation.id[0] for row in rows) == "abaabaaba"
    assert len(read_conversations([first, second], limit=2).rows) == 4


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_new_tokens": 0}, "--max-new-tokens 0"),
        ({"max_new_tokens": 512, "max_context": 512}, "under --max-context"),
        ({"sampled_share": 1.5}, "--sampled-share is 1.5"),
        ({"max_loop_share": -1.0}, "--max-loop-share is -1.0"),
        ({"sampled_share": 0.5, "sampled_temperature": 0.0}, "--sampled-temperature"),
        ({"top_p": 0.0}, "--top-p"),
        ({"temperature": -1.0}, "temperatures"),
    ],
)
def test_mistakes(settings: dict[str, float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        RegenerateConfig(**settings)  # pyright: ignore[reportArgumentType]: of several types
