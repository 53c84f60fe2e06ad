"""`build_engine`: which sides serve what, what is tapped, and what is refused before it runs."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

from blockdraft.decoding import (
    Commit,
    Drafter,
    NoDrafter,
    PromptLookupDrafter,
    SamplingParams,
    TargetModel,
    TargetState,
    collect,
    decode,
)
from blockdraft.drafter import BlockDrafter, DFlashDrafter, DrafterConfig
from blockdraft.engine import BuiltEngine, EngineConfig, build_engine, fast_drafter, parse_width
from blockdraft.errors import ConfigError
from blockdraft.native import NativeOptions, NativeTarget, PackedDrafter
from blockdraft.target.hf import HFTarget
from blockdraft.testing import OracleDrafter, RandomDrafter, TinySize, tiny_model, tiny_target

SIZE = TinySize(vocab_size=24, hidden_size=16, num_layers=3, max_context_len=256)
CONFIG = DrafterConfig(
    hidden_size=16,
    intermediate_size=16,
    num_layers=1,
    num_heads=2,
    num_kv_heads=1,
    head_dim=8,
    rms_norm_eps=1e-6,
    vocab_size=24,
    block_size=4,
    mask_token_id=3,
    taps=(0, 1),
    num_target_layers=3,
    layer_types=("full_attention",),
    max_position_embeddings=256,
)
PROMPTS = [(1, 5, 6, 7) * 6, (9,), (1, 5, 6, 7) * 5 + (8, 9), (1, 5, 6, 7) * 6]
PARAMS = SamplingParams(max_new_tokens=12, ignore_eos=True)
SMALL = EngineConfig(slots=3, max_context=64, kv_memory=100_000)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Measured costs go to a folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


@cache
def native(*, batch_invariant: int | None = None, size: TinySize = SIZE) -> NativeTarget:
    return NativeTarget(
        tiny_model("qwen3", size=size), options=NativeOptions(batch_invariant=batch_invariant)
    )


def block_drafter(target: TargetModel) -> DFlashDrafter:
    return DFlashDrafter(BlockDrafter(CONFIG).requires_grad_(False).double(), target)


def answers(built: BuiltEngine, prompts: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """One request after the other, so that prefixes are there to be hit."""
    texts: list[tuple[int, ...]] = []
    engine = built.engine
    for prompt in prompts:
        engine.submit(prompt, PARAMS)
        commits: list[Commit] = []
        while engine.has_work:
            for event in engine.step():
                assert isinstance(event.outcome, Commit), event.outcome
                commits.append(event.outcome)
            engine.scheduler.audit()
        texts.append(collect(prompt, commits).token_ids)
    assert engine.stats().faults == engine.stats().drafter_failures == 0
    return texts


def expected(target: TargetModel) -> list[tuple[int, ...]]:
    return [collect(p, decode(target, NoDrafter(), p, PARAMS)).token_ids for p in PROMPTS]


@pytest.fixture(scope="module")
def reference() -> HFTarget:
    return tiny_target("qwen3", size=SIZE)


@pytest.fixture(scope="module")
def reference_texts(reference: HFTarget) -> list[tuple[int, ...]]:
    return expected(reference)


@pytest.mark.parametrize("width", ["auto", "off", "fixed:3", "fixed:4"])
@pytest.mark.parametrize("kind", ["block", "lookup", "oracle", "none"])
@pytest.mark.parametrize("engine", ["native", "hf"])
def test_every_pair_and_width_gives_the_reference_s_text(
    engine: str,
    kind: str,
    width: str,
    reference: HFTarget,
    reference_texts: list[tuple[int, ...]],
) -> None:
    """Also with prefixes in store: a drafter that can't copy its context must not be misled."""
    target = native() if engine == "native" else reference
    drafters: dict[str, Drafter] = {
        "block": block_drafter(target),
        "lookup": PromptLookupDrafter(4),
        "oracle": OracleDrafter(reference, 4),
        "none": NoDrafter(),
    }
    built = build_engine(target, drafters[kind], replace(SMALL, width=parse_width(width)))
    assert answers(built, PROMPTS) == reference_texts
    batches = "batching brings no gain" not in built.banner
    assert built.batches == batches == (engine == "native")
    hits = built.engine.stats().prefixes.hits
    plain = width == "off" or kind == "none"
    assert (hits > 0) == (engine == "native" and (kind == "block" or plain))


class Recording(HFTarget):
    """Remembers what each state was opened to tap."""

    opened: list[tuple[int, ...]]

    def open(self, taps: Sequence[int] = ()) -> TargetState:  # pyright: ignore[reportIncompatibleMethodOverride]: its own state is hidden on purpose
        self.opened.append(tuple(taps))
        return super().open(taps)


@pytest.mark.parametrize(("width", "taps"), [("off", ()), ("fixed:4", (0, 1))])
def test_off_taps_nothing(width: str, taps: tuple[int, ...]) -> None:
    """P04: switched off at start, an engine does exactly what one without a drafter does."""
    Recording.opened = []
    target = Recording(tiny_model("qwen3", size=SIZE))
    Recording.opened.clear()
    drafter = block_drafter(target)
    built = build_engine(target, drafter, replace(SMALL, width=parse_width(width)))
    answers(built, PROMPTS[:2])
    assert Recording.opened == [taps] * 2
    assert built.engine.stats().acceptance.drafted_steps == (0 if width == "off" else 20)
    none = build_engine(target, NoDrafter(), SMALL)
    if width == "off":
        assert none.capacity == built.capacity


def test_capacity_counts_target_and_drafter() -> None:
    """Bytes a token: 3 layers of 2 * 2 * 4 numbers, and 1 layer of 2 * 1 * 8, in float64."""
    target = native()
    built = build_engine(target, block_drafter(target), replace(SMALL, width=parse_width("4")))
    assert built.capacity.target_bytes_per_token == 3 * 2 * 2 * 4 * 8
    assert built.capacity.drafter_bytes_per_token == 2 * 8 * 8
    assert "384 bytes a token for the target, 128 for the drafter" in built.banner
    stats = built.engine.stats()
    assert stats.rows_total == built.capacity.num_rows


def test_too_little_memory_says_what_to_raise() -> None:
    target = native()
    with pytest.raises(ConfigError, match=r"hold 4[0-9] tokens.*raise --kv-memory"):
        build_engine(target, block_drafter(target), replace(SMALL, kv_memory=25_000))
    with pytest.raises(ConfigError, match="more than the 256 tokens"):
        build_engine(target, NoDrafter(), EngineConfig(max_context=257))


def test_memory_that_cannot_be_had_is_a_config_error() -> None:
    """Out of memory at load says what to lower."""
    target = native()
    config = EngineConfig(slots=10**9, max_context=256, kv_memory=1 << 60)
    with pytest.raises(ConfigError, match=r"can't be had on cpu; lower --kv-memory, --slots"):
        build_engine(target, NoDrafter(), config)


@pytest.mark.parametrize("width", ["auto", "fixed:4"])
def test_batch_invariant_targets_take_turns_and_never_pass_too_many_rows(width: str) -> None:
    target = native(batch_invariant=4)
    built = build_engine(target, block_drafter(target), replace(SMALL, width=parse_width(width)))
    assert not built.batches
    assert answers(built, PROMPTS) == expected(target)


@pytest.mark.parametrize("width", ["auto", "fixed:9"])
def test_a_block_wider_than_a_batch_invariant_pass_is_refused_at_once(width: str) -> None:
    """Not in the middle of every request."""
    hf = HFTarget(tiny_model("qwen3", size=SIZE), batch_invariant=8)
    for target in (native(batch_invariant=8), hf):
        drafter = RandomDrafter(target.spec.vocab_size, 10)
        with pytest.raises(ConfigError, match="passes of 8 rows; load the target"):
            build_engine(target, drafter, replace(SMALL, width=parse_width(width)))
        narrow = build_engine(target, drafter, replace(SMALL, width=parse_width("fixed:8")))
        assert answers(narrow, PROMPTS[1:2])


@pytest.mark.parametrize("engine", ["native", "hf"])
def test_costs_are_measured_within_a_short_context(engine: str) -> None:
    """A target of 48 positions has no room for the usual measuring context."""
    size = replace(SIZE, max_context_len=48)
    target = native(size=size) if engine == "native" else tiny_target("qwen3", size=size)
    built = build_engine(target, block_drafter(target), EngineConfig(slots=3, kv_memory=100_000))
    assert built.capacity.max_context == 48
    assert answers(built, [(1, 2, 3)])


def test_costs_are_measured_once(own_cache: Path) -> None:
    target = native()
    drafter = block_drafter(target)
    said: list[str] = []
    for _ in range(2):
        build_engine(target, drafter, SMALL, report=said.append)
    assert said == ["measuring what passes cost on this machine, once"]
    assert len(list(own_cache.rglob("*.json"))) == 1
    build_engine(target, drafter, replace(SMALL, slots=2), report=said.append)
    assert len(said) == 2


def test_fixed_and_off_measure_nothing(own_cache: Path) -> None:
    target = native()
    for width in ("off", "fixed:3"):
        build_engine(target, block_drafter(target), replace(SMALL, width=parse_width(width)))
    assert not list(own_cache.rglob("*.json"))


def test_only_a_block_drafter_beside_a_native_target_is_packed() -> None:
    target = native()
    assert isinstance(fast_drafter(target, block_drafter(target)), PackedDrafter)
    for other in (NoDrafter(), PromptLookupDrafter(3)):
        assert fast_drafter(target, other) is other
    hf = tiny_target("qwen3", size=SIZE)
    drafter = block_drafter(hf)
    assert fast_drafter(hf, drafter) is drafter
    packed = fast_drafter(target, block_drafter(target))
    assert packed.taps == (0, 1) and packed.block_size == 4
    assert isinstance(packed, PackedDrafter) and packed.dtype == torch.float64
