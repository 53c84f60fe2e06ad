"""`Checkpoints`: a run's snapshots as folders that appear whole or not at all, and their pruning.

It knows no live models and no ranks: only the main rank uses it. Layout of a run folder:

    step-00001000/            a snapshot; the newest is found by listing, no file points at it
        model.safetensors     trained weights, fp32
        optimizers.safetensors, ema.safetensors (only with an average), rng.safetensors
        state.json            progress, settings, number of ranks
        checksums.json        SHA-256 of each file above
        score.json            added once it was evaluated
    damaged-*                 a snapshot that could not be read, set aside; nothing reads it
    .unfinished-*, .removed-* left by a killed process; cleared at the next start
"""

import json
import logging
import math
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import cast

from safetensors import SafetensorError
from safetensors.torch import (
    load_file,  # pyright: ignore[reportUnknownVariableType]: bare PathLike
    save_file,  # pyright: ignore[reportUnknownVariableType]: bare PathLike
)
from torch import Tensor

from blockdraft.data.durable import sync
from blockdraft.data.manifest import sha256_of
from blockdraft.errors import CheckpointError, ConfigError
from blockdraft.json_values import read_object
from blockdraft.training.run.state import Settings, Snapshot, parse_progress

_LOGGER = logging.getLogger("blockdraft")

_FORMAT = 1
_STATE, _CHECKSUMS, _SCORE = "state.json", "checksums.json", "score.json"
_PARTS = ("model", "optimizers", "ema", "rng")
_NAME = re.compile(r"step-(\d{8,})")
_UNFINISHED, _REMOVED, _DAMAGED = ".unfinished-", ".removed-", "damaged-"


class Checkpoints:
    """Snapshots in the folder of a run; keeps the `keep_last` newest and `keep_best` best ones.

    Raises ConfigError unless at least one newest is kept.
    """

    def __init__(self, folder: Path, *, keep_last: int = 2, keep_best: int = 1) -> None:
        if keep_last < 1 or keep_best < 0:
            raise ConfigError(
                f"keep_last is {keep_last} and keep_best is {keep_best}, expected at least 1 and 0"
            )
        self._folder = folder
        self._keep_last = keep_last
        self._keep_best = keep_best

    def clear_leftovers(self) -> None:
        """Remove what a killed process left half written or half removed."""
        for mark in (_UNFINISHED, _REMOVED):
            for path in self._folder.glob(f"{mark}*"):
                shutil.rmtree(path, ignore_errors=True)

    def steps(self) -> list[int]:
        """Steps that have a folder, ascending; whether they are good shows when they are loaded."""
        if not self._folder.is_dir():
            return []
        matches = [_NAME.fullmatch(path.name) for path in self._folder.iterdir()]
        return sorted(int(match[1]) for match in matches if match is not None)

    def folder_of(self, step: int) -> Path:
        return self._folder / f"step-{step:08d}"

    def save(self, snapshot: Snapshot) -> Path:
        """Write `snapshot`, on disk when this returns, then prune; returns its folder.

        A folder of the same step is replaced.
        """
        folder = self.folder_of(snapshot.progress.step)
        self._folder.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=self._folder))
        try:
            _write(unfinished, snapshot)
            unfinished.chmod(0o755)  # mkdtemp makes it private
            if folder.exists():
                self._remove(folder)
            unfinished.rename(folder)
        except (OSError, SafetensorError) as error:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise CheckpointError(
                f"can't write {folder} ({error}); make room, then the same command goes on"
            ) from error
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        sync(self._folder)
        self.prune()
        return folder

    def peek(self) -> tuple[int, Settings] | None:
        """Step and settings of the newest snapshot by its own word; None where it can't be read.

        Nothing is checked or set aside, so that it is cheap: loading finds what is damaged.
        """
        for step in reversed(self.steps()):
            try:
                settings = read_object(self.folder_of(step) / _STATE)["settings"]
            except (OSError, ValueError, KeyError):
                return None
            return (step, cast(Settings, settings)) if isinstance(settings, Mapping) else None
        return None

    def load(self, step: int) -> Snapshot:
        """The snapshot of `step`, every byte checked. Raises CheckpointError."""
        return _read(self.folder_of(step))

    def load_latest(self) -> Snapshot | None:
        """The newest good snapshot, or None in a run without any folder.

        Damaged ones are set aside with a warning; raises CheckpointError when all are.
        """
        steps = self.steps()
        snapshot = self._first_good(reversed(steps))
        if snapshot is None and steps:
            raise CheckpointError(
                f"{self._folder}: none of its {len(steps)} checkpoints is good (they are kept as"
                f" {_DAMAGED}*); start a new run in another folder"
            )
        return snapshot

    def load_best(self) -> Snapshot:
        """The good snapshot with the best score, or the newest good one without any score.

        Damaged ones are set aside with a warning; raises CheckpointError when none is good.
        """
        snapshot = self._first_good(self.scores()) or self.load_latest()
        if snapshot is None:
            raise CheckpointError(f"{self._folder} has no checkpoint; run the training first")
        return snapshot

    def _first_good(self, steps: Iterable[int]) -> Snapshot | None:
        for step in list(steps):
            try:
                return self.load(step)
            except CheckpointError as error:
                # Under its own name it would count as one of those to keep.
                folder = self.folder_of(step)
                aside = folder.with_name(f"{_DAMAGED}{folder.name}-{os.getpid()}")
                folder.rename(aside)
                _LOGGER.warning("%s; it is kept aside as %s and not used", error, aside)
        return None

    def set_score(self, step: int, score: float | None) -> None:
        """Note that the snapshot of `step` was evaluated (larger is better, None = by nothing that
        chooses the best one), then prune."""
        folder = self.folder_of(step)
        _write_file(folder / f"{_SCORE}.new", json.dumps({"score": score}))
        (folder / f"{_SCORE}.new").rename(folder / _SCORE)
        sync(folder)
        self.prune()

    def is_evaluated(self, step: int) -> bool:
        """Whether all evaluations that were due at `step` are done."""
        try:
            return "score" in read_object(self.folder_of(step) / _SCORE)
        except (OSError, ValueError):
            return False

    def scores(self) -> dict[int, float]:
        """The evaluated steps and their scores, best first; of equal ones the newest first."""
        found: dict[int, float] = {}
        for step in self.steps():
            score = _read_score(self.folder_of(step) / _SCORE)
            if score is not None:
                found[step] = score
        return dict(sorted(found.items(), key=lambda item: (-item[1], -item[0])))

    def best(self) -> int | None:
        """The step with the best score, or None before any was evaluated."""
        return next(iter(self.scores()), None)

    def prune(self) -> None:
        """Remove all snapshots but the newest and the best ones."""
        steps = self.steps()
        kept = {*steps[-self._keep_last :], *list(self.scores())[: self._keep_best]}
        for step in steps:
            if step not in kept:
                self._remove(self.folder_of(step))

    def _remove(self, folder: Path) -> None:
        # Renamed first, so that no half removed folder ever looks like a checkpoint.
        hidden = self._folder / f"{_REMOVED}{folder.name}-{os.getpid()}"
        folder.rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)


def _write(folder: Path, snapshot: Snapshot) -> None:
    for part in _PARTS:
        tensors = cast(Mapping[str, Tensor] | None, getattr(snapshot, part))
        if tensors is not None:
            path = folder / f"{part}.safetensors"
            save_file({n: t.contiguous() for n, t in tensors.items()}, path)
            sync(path)
    about = {
        "format": _FORMAT,
        "progress": asdict(snapshot.progress),
        "settings": snapshot.settings,
        "world_size": snapshot.world_size,
    }
    _write_file(folder / _STATE, json.dumps(about, indent=2))
    sums = {path.name: sha256_of(path) for path in sorted(folder.iterdir())}
    _write_file(folder / _CHECKSUMS, json.dumps(sums, indent=2))
    sync(folder)


def _read(folder: Path) -> Snapshot:
    try:
        _verify(folder)
        about = read_object(folder / _STATE)
        if about["format"] != _FORMAT:
            raise CheckpointError(
                f"{folder}: format {about['format']}, expected {_FORMAT}; it was written by"
                " another version"
            )
        parts = {
            part: load_file(path) if (path := folder / f"{part}.safetensors").exists() else None
            for part in _PARTS
        }
        return Snapshot(
            progress=parse_progress(about["progress"]),
            settings=cast(Settings, about["settings"]),
            world_size=cast(int, about["world_size"]),
            model=parts["model"] or {},
            optimizers=parts["optimizers"] or {},
            ema=parts["ema"],
            rng=parts["rng"] or {},
        )
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise CheckpointError(f"{folder} is damaged ({type(error).__name__}: {error})") from error


def _verify(folder: Path) -> None:
    sums = read_object(folder / _CHECKSUMS)
    present = {path.name for path in folder.iterdir()} - {_CHECKSUMS, _SCORE, f"{_SCORE}.new"}
    if present != sums.keys():
        odd = sorted(present ^ sums.keys())[0]
        raise CheckpointError(f"{folder} is damaged ({odd} is missing or foreign)")
    for name, expected in sums.items():
        if sha256_of(folder / name) != expected:
            raise CheckpointError(f"{folder} is damaged (checksum of {name})")


def _read_score(path: Path) -> float | None:
    """None for a score that is missing, damaged or not a number."""
    try:
        score = read_object(path).get("score")
    except (OSError, ValueError):
        return None
    return float(score) if isinstance(score, int | float) and math.isfinite(score) else None


def _write_file(path: Path, text: str) -> None:
    path.write_text(f"{text}\n", encoding="utf-8")
    sync(path)
