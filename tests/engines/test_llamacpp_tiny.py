"""Our GGUF files in llama.cpp itself: the same text, and the same drafts accepted in every step.

A second implementation of the algorithm, written by others, runs the pair in float32 with float32
caches; the trained drafter is right often enough and wrong often enough to tell if any row is off.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

import pytest
import torch
from llamacpp_counting import FullWidth, by_position, llamacpp_steps
from llamacpp_process import EngineDied, LlamaOptions, LlamaProcess, LlamaStep, llamacpp
from tiny_pair import NUM_LAYERS, TinyPair, prompts, random_drafter, save_target
from tiny_tokenizer import END_OF_TEXT, IM_END, VOCAB_SIZE, make_tokenizer

from blockdraft.checkpoint import DrafterCheckpoint, build_drafter, save_checkpoint
from blockdraft.decoding import Commit, NoDrafter, SamplingParams, collect, decode
from blockdraft.engine import EngineConfig, Session, WidthMode, build_engine
from blockdraft.errors import CheckpointError, ConfigError
from blockdraft.interop.export import export_pair
from blockdraft.interop.gguf import GgufType, read_tokenizer, write_drafter, write_target
from blockdraft.interop.order import ExportOrder
from blockdraft.interop.target_facts import read_rows, read_target
from blockdraft.native import NativeTarget, TargetOptions, load_engine_target

pytest.importorskip("xllamacpp", reason="llama.cpp is not installed (pip install xllamacpp)")
pytestmark = pytest.mark.engines

PROMPTS = prompts(3, seed=5)
LENGTHS = (23, 60)


@dataclass(frozen=True, slots=True)
class Ready:
    """A target folder, loaded here and written for llama.cpp."""

    folder: Path
    target: NativeTarget
    gguf: Path


def ready(folder: Path) -> Ready:
    target = load_engine_target(folder, TargetOptions(dtype="float32", engine="native"))
    assert isinstance(target, NativeTarget)
    gguf = folder.parent / f"{folder.name}.gguf"
    write_target(folder, gguf, dtype="f32")
    return Ready(folder, target, gguf)


def written(made: Ready, drafter: DrafterCheckpoint, *, dtype: GgufType = "f32") -> Path:
    path = Path(tempfile.mkdtemp(dir=made.folder.parent)) / "drafter.gguf"
    tokenizer = read_tokenizer(made.folder)
    rows = read_rows(read_target(str(made.folder)))
    write_drafter(drafter, tokenizer, path, dtype=dtype, provenance={}, rows=rows)
    return path


@pytest.fixture(scope="module")
def trained(pair: TinyPair, tmp_path_factory: pytest.TempPathFactory) -> Ready:
    folder = tmp_path_factory.mktemp("trained") / "target"
    shutil.copytree(pair.target, folder)
    return ready(folder)


@dataclass(frozen=True, slots=True)
class Case:
    """A request, and what the reference decoder did for it."""

    prompt: tuple[int, ...]
    max_new_tokens: int
    commits: tuple[Commit, ...]


def decoded(
    made: Ready, drafter: DrafterCheckpoint, block_size: int, lengths: Sequence[int] = LENGTHS
) -> Iterator[Case]:
    ours = FullWidth(build_drafter(drafter, made.target, block_size=block_size))
    codec = made.target.text
    assert codec is not None
    for prompt in PROMPTS:
        for length in lengths:
            params = SamplingParams(max_new_tokens=length)
            commits = decode(made.target, ours, prompt, params, decode_text=codec.decode)
            yield Case(prompt, length, tuple(commits))


def same_answers(
    engine: LlamaProcess, cases: Sequence[Case], block_size: int, *, end_text: str = ""
) -> tuple[LlamaStep, ...]:
    """All steps of llama.cpp, after ids, text and every step of each answer were compared.

    `end_text` is that of an end token which is no special one, and which llama.cpp then shows.
    """
    steps: list[LlamaStep] = []
    for case in cases:
        ours = collect(case.prompt, case.commits)
        theirs = engine.complete(case.prompt, case.max_new_tokens)
        assert theirs.token_ids == ours.token_ids
        shown = end_text if ours.finish_reason == "stop" else ""
        assert theirs.text == ours.text + shown
        assert theirs.steps == llamacpp_steps(case.commits, block_size, case.max_new_tokens)
        steps += theirs.steps
    return tuple(steps)


def accepted(steps: Sequence[LlamaStep]) -> float:
    """Drafts accepted a step."""
    return sum(step.num_accepted for step in steps) / len(steps)


@pytest.mark.parametrize("block_size", [8, 4])
def test_text_and_every_step_are_those_of_llamacpp(
    trained: Ready, pair: TinyPair, block_size: int
) -> None:
    cases = list(decoded(trained, pair.drafter, block_size))
    drafter = written(trained, pair.drafter)
    with llamacpp(options(trained, drafter, block_size)) as engine:
        steps = same_answers(engine, cases, block_size)
        counters = engine.counters()
    assert counters.steps == len(steps)
    assert counters.drafted == sum(step.num_drafted for step in steps)
    assert counters.accepted == sum(step.num_accepted for step in steps)
    assert counters.accepted_by_position == by_position(steps, block_size - 1)
    # Partial acceptance, or the comparison would show little.
    assert 0.4 < accepted(steps) < block_size - 1.2
    assert 0 < counters.accepted_by_position[-1] < counters.accepted_by_position[0] < len(steps)


def test_our_engine_at_a_fixed_width_counts_what_llamacpp_counts(
    trained: Ready, pair: TinyPair
) -> None:
    """The packed drafter and the batching engine, all requests at once; of a step that the length
    limit cuts short, only how many drafts it had (see `llamacpp_counting`)."""
    width = 8
    built = build_engine(
        trained.target,
        build_drafter(pair.drafter, trained.target),
        EngineConfig(width=WidthMode("fixed", width), slots=4, kv_memory=4_000_000),
    )
    session = Session(built.engine)
    params = SamplingParams(max_new_tokens=60)
    answers = [session.open(prompt, params) for prompt in PROMPTS]
    with llamacpp(options(trained, written(trained, pair.drafter), width)) as engine:
        for prompt, answer in zip(PROMPTS, answers, strict=True):
            commits = tuple(answer)
            theirs = engine.complete(prompt, params.max_new_tokens)
            assert theirs.token_ids == tuple(i for commit in commits for i in commit.ids)
            ours = llamacpp_steps(commits, width, params.max_new_tokens)
            whole = [step for step in ours if step.num_drafted == width - 1]
            assert whole == list(theirs.steps[: len(whole)])
            assert [s.num_drafted for s in ours] == [s.num_drafted for s in theirs.steps]


def options(made: Ready, drafter: Path | None, block_size: int = 8) -> LlamaOptions:
    return LlamaOptions(
        target=str(made.gguf),
        drafter=None if drafter is None else str(drafter),
        n_max=block_size - 1,
    )


def export_order(made: Ready, drafter: Path, out: Path) -> ExportOrder:
    return ExportOrder(
        format="gguf", target=str(made.folder), drafter=str(drafter), out=out, outtype="f32"
    )


def test_an_exported_folder_is_all_that_llamacpp_needs(
    trained: Ready, pair: TinyPair, tmp_path: Path
) -> None:
    """`blockdraft export --format gguf`: target.gguf and drafter.gguf."""
    save_checkpoint(tmp_path / "drafter", pair.drafter)
    export_pair(export_order(trained, tmp_path / "drafter", tmp_path / "out"))
    case = next(decoded(trained, pair.drafter, 8, lengths=(40,)))
    files = (str(tmp_path / "out" / f"{name}.gguf") for name in ("target", "drafter"))
    with llamacpp(LlamaOptions(target=next(files), drafter=next(files), n_max=7)) as engine:
        same_answers(engine, [case], 8)


def test_an_end_token_that_was_drafted_ends_both(pair: TinyPair, tmp_path: Path) -> None:
    """A comma ends this target's answers; the drafter has learned where commas come."""
    folder = tmp_path / "target"
    shutil.copytree(pair.target, folder)
    comma = make_tokenizer().token_to_id(",")
    for name in ("config.json", "generation_config.json"):
        settings = json.loads((folder / name).read_text())
        settings["eos_token_id"] = [comma, IM_END, END_OF_TEXT]
        (folder / name).write_text(json.dumps(settings))
    made = ready(folder)
    cases = list(decoded(made, pair.drafter, 8, lengths=(40,)))
    ends = [case.commits[-1] for case in cases]
    # As an accepted draft that is not the last of its block, which llama.cpp counts otherwise.
    assert any(e.finish_reason == "stop" and e.num_accepted == len(e.ids) < 7 for e in ends)
    with llamacpp(options(made, written(made, pair.drafter))) as engine:
        same_answers(engine, cases, 8, end_text=",")


@pytest.mark.parametrize("family", ["qwen3", "llama"])
def test_text_is_the_same_with_a_drafter_without_one_and_here(
    family: Literal["qwen3", "llama"], pair: TinyPair, tmp_path: Path
) -> None:
    """Large random weights: attention, rotary embedding and both kinds of head matter."""
    save_target(tmp_path / "target", family)
    made = ready(tmp_path / "target")
    ours = [
        tuple(i for commit in commits for i in commit.ids)
        for commits in (
            decode(made.target, NoDrafter(), prompt, SamplingParams(max_new_tokens=40))
            for prompt in PROMPTS
        )
    ]
    drafter = written(made, random_drafter(pair.drafter.config))
    for path in (None, drafter):
        with llamacpp(options(made, path)) as engine:
            theirs = [engine.plain_ids(prompt, 40) for prompt in PROMPTS]
            assert theirs == ours
            assert (engine.counters().drafted > 0) == (path is not None)


def test_plain_answers_of_the_trained_pair_are_the_drafted_ones(
    trained: Ready, pair: TinyPair
) -> None:
    cases = list(decoded(trained, pair.drafter, 8, lengths=(60,)))
    with llamacpp(options(trained, None)) as engine:
        for case in cases:
            answer = engine.complete(case.prompt, case.max_new_tokens)
            assert answer.token_ids == collect(case.prompt, case.commits).token_ids
            assert answer.steps == ()


def test_a_reduced_vocabulary_drafts_the_same(trained: Ready, pair: TinyPair) -> None:
    """`d2t` as absolute ids with the target's own rows as head; some digits can't be drafted."""
    left_out = {make_tokenizer().token_to_id(token) for token in ("2", "4", "7")}
    kept = torch.tensor([i for i in range(VOCAB_SIZE) if i % 3 != 1 and i not in left_out])
    reduced = replace(
        pair.drafter,
        config=replace(pair.drafter.config, draft_vocab_size=len(kept)),
        d2t=kept - torch.arange(len(kept)),
    )
    cases = list(decoded(trained, reduced, 8, lengths=(60,)))
    with llamacpp(options(trained, written(trained, reduced))) as engine:
        steps = same_answers(engine, cases, 8)
    assert accepted(steps) > 0.2


MASKS: dict[str, dict[str, object]] = {
    "causal": {"is_causal": True},
    "causal windows": {"layer_types": ("sliding_attention",) * 2, "sliding_window": 12},
    "windows that see the whole block": {
        "layer_types": ("sliding_attention",) * 2,
        "sliding_window": 9,
        "is_causal": False,
    },
    "a full and a sliding layer": {
        "layer_types": ("full_attention", "sliding_attention"),
        "sliding_window": 8,
        "is_causal": False,
    },
}


@pytest.mark.parametrize("mask", MASKS)
def test_masks_that_the_format_can_say_mean_the_same(
    trained: Ready, pair: TinyPair, mask: str
) -> None:
    """Longer texts than the windows, with weights trained for another mask: still equal counts."""
    fields = cast("dict[str, bool]", MASKS[mask])
    masked = replace(pair.drafter, config=replace(pair.drafter.config, **fields))
    cases = list(decoded(trained, masked, 8, lengths=(60,)))
    with llamacpp(options(trained, written(trained, masked))) as engine:
        steps = same_answers(engine, cases, 8)
    assert accepted(steps) > 0.1


def test_a_tap_of_the_last_layer_is_refused_here_and_kills_llamacpp(
    trained: Ready, pair: TinyPair, tmp_path: Path
) -> None:
    last = (0, NUM_LAYERS - 1)
    with pytest.raises(ConfigError, match="the last layer of a 4-layer target"):
        replace(pair.drafter.config, taps=last)
    # A checkpoint that does not say how deep its target is: refused beside the target.
    config = replace(pair.drafter.config, taps=last, num_target_layers=None)
    unaware = replace(pair.drafter, config=config)
    save_checkpoint(tmp_path / "drafter", unaware)
    order = export_order(trained, tmp_path / "drafter", tmp_path / "out")
    with pytest.raises(CheckpointError, match="the last layer of a 4-layer target"):
        export_pair(order)
    assert not (tmp_path / "out").exists()
    with pytest.raises(EngineDied, match="layer input tensor is null"):  # noqa: SIM117
        with llamacpp(options(trained, written(trained, unaware))) as engine:
            engine.complete(PROMPTS[0], 8)


@pytest.mark.parametrize("dtype", ["bf16", "f16", "q8_0"])
def test_other_types_load_and_draft(
    trained: Ready, pair: TinyPair, dtype: GgufType, tmp_path: Path
) -> None:
    """Their rounding is llama.cpp's, so texts are only compared where they are its own."""
    target = tmp_path / "target.gguf"
    write_target(trained.folder, target, dtype=dtype)
    drafter = written(trained, pair.drafter, dtype=dtype)
    with llamacpp(LlamaOptions(target=str(target), drafter=str(drafter), n_max=7)) as engine:
        steps = engine.complete(PROMPTS[0], 60).steps
    assert accepted(steps) > 0.3


def test_llamacpp_tokenizes_the_exported_tokenizer_as_we_do(trained: Ready) -> None:
    texts = (
        "count the blocks: 12 blocks, 13 blocks.",
        "it's  two   spaces,\n\nnew lines\t& TABS; a123b 4567",
        "na\u00efve \u4e2d\u6587 \U0001f600 \u0416\u0443\u043a",
        "<|im_start|>user\nhello<|im_end|>\n",
    )
    codec = trained.target.text
    assert codec is not None and len(read_tokenizer(trained.folder).tokens) == VOCAB_SIZE
    with llamacpp(options(trained, None)) as engine:
        for text in texts:
            assert engine.tokenize(text) == tuple(codec.encode(text)), text
