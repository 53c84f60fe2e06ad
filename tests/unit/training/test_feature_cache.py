"""Cached features: as the target computed them, of these answers only, resumable, checked."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from blockdraft.errors import ConfigError
from blockdraft.target.fingerprint import fingerprint_of
from blockdraft.testing import TinySize, tiny_target
from blockdraft.training.batches.batch import Batch, Sample, TargetFeatures
from blockdraft.training.features.cache import CachedFeatures, plain_batch
from blockdraft.training.features.format import (
    FeatureDtype,
    FeatureKind,
    decode,
    encode,
    hash_ids,
    plan_shards,
)
from blockdraft.training.features.live import LiveFeatures
from blockdraft.training.features.writer import FeatureWriter

TAPS = (0, 2)
HIDDEN = 8
KIND = FeatureKind(target="toy", fingerprint="f00", hidden_size=HIDDEN, taps=TAPS)


class ToySource:
    """Features that are a plain function of the token; it counts what it was asked for."""

    def __init__(self, *, final: bool = False, fails_at: int | None = None) -> None:
        self.num_tokens = 0
        self._final = final
        self._fails_at = fails_at

    def features(self, batch: Batch) -> TargetFeatures:
        if self._fails_at is not None and self.num_tokens >= self._fails_at:
            raise KeyboardInterrupt
        self.num_tokens += batch.num_tokens
        return self.compute(batch)

    def compute(self, batch: Batch) -> TargetFeatures:
        columns = torch.arange(len(TAPS) * HIDDEN)
        taps = torch.sin(batch.ids[:, None] + 0.3 * columns) * torch.exp(columns / 4)
        return TargetFeatures(taps, taps[:, :HIDDEN] / 3 if self._final else None)


def make_samples(lengths: Sequence[int], salt: int = 0) -> list[Sample]:
    return [
        Sample(
            row=3 * i, ids=tuple((i * 7 + t * 5 + salt) % 90 for t in range(length)), answer_start=1
        )
        for i, length in enumerate(lengths)
    ]


SAMPLES = make_samples([5, 9, 2, 30, 4, 11, 8])
SHARD_BYTES = 20 * KIND.bytes_per_token


def plenty(folder: Path) -> int:
    return 1 << 50


def ignore(_: int) -> None:
    pass


def writer(
    folder: Path,
    samples: Sequence[Sample] = SAMPLES,
    kind: FeatureKind = KIND,
    free: Callable[[Path], int] = plenty,
) -> FeatureWriter:
    return FeatureWriter(folder, samples, kind, shard_bytes=20 * kind.bytes_per_token, free=free)


def written(folder: Path, kind: FeatureKind = KIND) -> CachedFeatures:
    writer(folder, kind=kind).write(ToySource(final=kind.final), ignore)
    return CachedFeatures(folder, dtype=torch.float32)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.name != ".lock"}


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).square().sum() / expected.square().sum()) ** 0.5


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize(("dtype", "error"), [("bf16", 0.004), ("fp8", 0.04)])
def test_rows_come_back_in_any_order(
    tmp_path: Path, dtype: FeatureDtype, error: float, final: bool
) -> None:
    cache = written(tmp_path / "new" / "cache", replace(KIND, dtype=dtype, final=final))
    assert cache.num_shards > 2
    for order in ([6, 0, 3, 3], [2], [5, 4, 1]):
        batch = plain_batch([SAMPLES[i] for i in order])
        found, expected = cache.features(batch), ToySource(final=final).compute(batch)
        assert relative_error(found.taps, expected.taps) < error
        assert (found.final is not None) == final
        if found.final is not None and expected.final is not None:
            assert relative_error(found.final, expected.final) < error


def test_shards_are_what_the_size_said(tmp_path: Path) -> None:
    """T12: the bytes that are announced are the bytes that are taken."""
    for dtype in ("bf16", "fp8"):
        samples = make_samples([200] * 60)
        kind = replace(KIND, dtype=dtype, hidden_size=HIDDEN)
        made = FeatureWriter(tmp_path / dtype, samples, kind, free=plenty)
        announced = made.need().num_bytes
        made.write(ToySource(), ignore)
        taken = sum(len(content) for content in bytes_of(tmp_path / dtype).values())
        assert taken == pytest.approx(announced, rel=0.01)
        assert made.need().num_bytes == 0


def test_a_disk_that_is_too_small_is_not_filled(tmp_path: Path) -> None:
    """T12: it stops before it starts, and again when others have taken the room meanwhile."""
    source = ToySource()
    with pytest.raises(ConfigError, match=r"0\.00 GB more and its disk has 0\.50 GB free"):
        writer(tmp_path / "a", free=lambda _: 500_000_000).write(source, ignore)
    assert source.num_tokens == 0
    assert not (tmp_path / "a").exists()

    room = iter([1 << 50, 1 << 50, 1 << 50, 1000])
    with pytest.raises(ConfigError, match="make room"):
        writer(tmp_path / "b", free=lambda _: next(room)).write(source, ignore)
    index = writer(tmp_path / "b").write(ToySource(), ignore)
    assert index.is_complete


def test_it_goes_on_behind_the_last_shard(tmp_path: Path) -> None:
    straight = written(tmp_path / "straight")
    with pytest.raises(KeyboardInterrupt):
        writer(tmp_path / "broken").write(ToySource(fails_at=16), ignore)
    with pytest.raises(ConfigError, match="features of 3 of 7 samples"):
        CachedFeatures(tmp_path / "broken")
    source = ToySource()
    again = writer(tmp_path / "broken")
    done: list[int] = []
    assert again.num_tokens_left == 53
    again.write(source, done.append)
    assert source.num_tokens == sum(done) == 53
    assert bytes_of(tmp_path / "broken") == bytes_of(tmp_path / "straight")
    assert straight.num_shards == CachedFeatures(tmp_path / "broken").num_shards


def test_a_shard_that_was_cut_is_made_again(tmp_path: Path) -> None:
    written(tmp_path)
    before = bytes_of(tmp_path)
    shard = tmp_path / "features-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-7])
    with pytest.raises(ConfigError, match=r"features-00002\.safetensors has"):
        CachedFeatures(tmp_path)
    writer(tmp_path).write(ToySource(), ignore)
    assert bytes_of(tmp_path) == before


def test_a_complete_cache_costs_nothing_more(tmp_path: Path) -> None:
    written(tmp_path)
    source = ToySource()
    writer(tmp_path).write(source, ignore)
    assert source.num_tokens == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"taps": (0, 1)}, "other layers"),
        ({"dtype": "fp8"}, "another dtype"),
        ({"final": True}, "other final states"),
        ({"fingerprint": "bad"}, "other target"),
    ],
)
def test_a_cache_of_something_else_is_not_continued(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    written(tmp_path)
    kind = replace(KIND, **change)  # pyright: ignore[reportArgumentType] # one field of each type
    with pytest.raises(ConfigError, match=message):
        writer(tmp_path, kind=kind)


def test_features_of_other_answers_are_refused(tmp_path: Path) -> None:
    cache = written(tmp_path)
    with pytest.raises(ConfigError, match="of other answers"):
        writer(tmp_path, samples=make_samples([5, 9]))
    other = replace(SAMPLES[1], ids=(*SAMPLES[1].ids[:-1], 89))
    with pytest.raises(ConfigError, match="sample row 3 has other tokens"):
        cache.features(plain_batch([SAMPLES[0], other]))
    with pytest.raises(ConfigError, match="sample row 1 is not in the feature cache"):
        cache.features(plain_batch([replace(SAMPLES[0], row=1)]))
    cache.check_covers(SAMPLES)  # without reading a shard, so that a run can ask before it starts
    for wrong in (other, replace(SAMPLES[0], row=1)):
        with pytest.raises(ConfigError, match=f"sample row {wrong.row}"):
            cache.check_covers([*SAMPLES, wrong])


def test_damage_is_found_when_a_shard_is_first_read(tmp_path: Path) -> None:
    written(tmp_path)
    shard = tmp_path / "features-00001.safetensors"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    cache = CachedFeatures(tmp_path)
    cache.features(plain_batch(SAMPLES[:2]))
    with pytest.raises(ConfigError, match=r"features-00001\.safetensors is damaged"):
        cache.features(plain_batch([SAMPLES[3]]))
    with pytest.raises(ConfigError, match=r"features-00001\.safetensors is damaged"):
        cache.verify(lambda: None)
    CachedFeatures(tmp_path, check_hashes=False).features(plain_batch([SAMPLES[3]]))


def test_folders_that_hold_no_cache(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no feature cache"):
        CachedFeatures(tmp_path)
    with pytest.raises(ConfigError, match="no samples"):
        writer(tmp_path, samples=[])
    written(tmp_path)
    path = tmp_path / "index.json"
    good = path.read_text()
    for bad in ("{", "[]", '{"a": 1}', good.replace("features-1", "features-9"), "\u00ff"):
        path.write_bytes(bad.encode("latin-1"))
        with pytest.raises(ConfigError, match=r"index\.json"):
            CachedFeatures(tmp_path)
    value = json.loads(good)
    value["shards"][0]["file"] = "../elsewhere.safetensors"
    path.write_text(json.dumps(value))
    with pytest.raises(ConfigError, match="outside the folder"):
        CachedFeatures(tmp_path)


def test_requirements_of_a_training(tmp_path: Path) -> None:
    cache = written(tmp_path)
    cache.require(TAPS, final=False, fingerprint="f00")
    with pytest.raises(ConfigError, match=r"layers \(0, 2\), not \(0, 1\)"):
        cache.require((0, 1), final=False)
    with pytest.raises(ConfigError, match="no final states"):
        cache.require(TAPS, final=True)
    with pytest.raises(ConfigError, match="another target"):
        cache.require(TAPS, final=False, fingerprint="f01")


@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_the_cache_of_a_real_target(tmp_path: Path, dtype: FeatureDtype) -> None:
    target = tiny_target("llama", dtype=torch.float32)
    live = LiveFeatures(target, TAPS, final=True)
    kind = FeatureKind(
        target=target.spec.name,
        fingerprint=fingerprint_of(target),
        hidden_size=target.spec.hidden_size,
        taps=TAPS,
        dtype=dtype,
        final=True,
    )
    writer(tmp_path, kind=kind).write(live, ignore)
    cache = CachedFeatures(tmp_path, dtype=torch.float32)
    for one in SAMPLES:
        cache.check_against(live, one)
    other = tiny_target("llama", dtype=torch.float32, seed=1)
    with pytest.raises(ConfigError, match="the cache is of another target"):
        cache.check_against(LiveFeatures(other, TAPS), SAMPLES[3])


def test_a_fingerprint_is_of_the_weights_not_of_their_dtype() -> None:
    prints = [
        fingerprint_of(tiny_target("llama", dtype=d)) for d in (torch.float32, torch.bfloat16)
    ]
    assert prints[0] == prints[1]
    assert fingerprint_of(tiny_target("llama", seed=1)) != prints[0]
    assert fingerprint_of(tiny_target("llama", size=TinySize(num_layers=4))) != prints[0]


@given(
    values=st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=4, max_size=4),
    zeroed=st.booleans(),
)
def test_fp8_keeps_each_tap_to_its_own_scale(values: list[float], zeroed: bool) -> None:
    small = [0.0, 0.0] if zeroed else [1e-4, -3e-5]
    rows = torch.tensor([[*small, *values[:2]], [*values[2:], *small]])
    stored = encode(rows, "fp8", 2)
    found = decode(stored, torch.float32)
    assert found.isfinite().all()
    largest = rows.view(2, 2, 2).abs().amax(-1).repeat_interleave(2, -1)
    assert ((found - rows).abs() <= rows.abs() / 15 + largest / 448 / 256 + 1e-38).all()


@given(lengths=st.lists(st.integers(1, 40), max_size=20), room=st.integers(1, 60))
def test_shards_hold_all_samples_in_order(lengths: list[int], room: int) -> None:
    shards = plan_shards(lengths, room)
    assert [i for shard in shards for i in shard] == list(range(len(lengths)))
    for shard in shards:
        assert len(shard) == 1 or sum(lengths[i] for i in shard) <= room


def test_hashes_tell_ids_apart() -> None:
    assert hash_ids((1, 2)) == hash_ids([1, 2]) != hash_ids((2, 1))
    assert len(hash_ids((1,))) == 16
