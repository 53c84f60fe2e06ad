"""Everything a run needs to go on exactly: gathered from the ranks, and given back to them.

It touches no files; `checkpoints.py` writes and reads the `Snapshot`.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import cast

import torch
from torch import Tensor, nn

from blockdraft.errors import CheckpointError, ConfigError, Error
from blockdraft.training.optim.ema import Ema
from blockdraft.training.optim.optimizers import Optimizers
from blockdraft.training.ranks.distributed import (
    Ranks,
    gather_rows,
    share_failure,
    share_tensor,
    share_text,
)
from blockdraft.training.ranks.sharded import copy_whole, whole

Settings = Mapping[str, object]
"""The run's settings as plain JSON values, nested as the recipe is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run is: `step` optimizer steps done; next is batch `position` of `epoch`.

    `counts` are the trainer's own running totals (tokens, seconds).
    """

    step: int
    epoch: int
    position: int
    counts: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A run between two steps. All tensors are whole and on the CPU (see `capture`)."""

    progress: Progress
    settings: Settings
    world_size: int
    model: Mapping[str, Tensor]
    optimizers: Mapping[str, Tensor]
    ema: Mapping[str, Tensor] | None
    rng: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedParts:
    """The live objects whose state makes a run: what `capture` reads and `restore` writes.

    `generators` are the trainer's own, besides torch's global ones of the CPU and the device.
    """

    model: nn.Module
    optimizers: Optimizers
    ema: Ema | None
    ranks: Ranks
    generators: Mapping[str, torch.Generator] = field(default_factory=dict[str, torch.Generator])


def capture(parts: TrainedParts, progress: Progress, settings: Settings) -> Snapshot:
    """The run as it is now; independent of it afterwards.

    All ranks have to call it; only the main one gets the tensors.
    """
    keep = parts.ranks.is_main
    return Snapshot(
        progress=progress,
        settings=settings,
        world_size=parts.ranks.world_size,
        model=_whole_tensors(_model_state(parts.model), keep),
        optimizers=_whole_tensors(parts.optimizers.state_dict(), keep),
        ema=None if parts.ema is None else _whole_tensors(parts.ema.state_dict(), keep),
        rng=_gather_rng(parts),
    )


def restore(parts: TrainedParts, snapshot: Snapshot) -> None:
    """Make `parts` go on where `snapshot` was taken. All ranks have to call it, with the same.

    Bit-equal at the same number of ranks; at another one the global random states stay as they
    are. Raises CheckpointError when the snapshot is of another model or optimizer, or has no
    average where one is wanted.
    """
    own = _model_state(parts.model)
    for name in sorted(own.keys() | snapshot.model.keys()):
        shapes = [list(d[name].shape) if name in d else None for d in (snapshot.model, own)]
        if shapes[0] != shapes[1]:
            raise CheckpointError(
                f"{name} of the checkpoint is {shapes[0]}, of the model {shapes[1]}; resume with"
                " the settings that the run was started with"
            )
    if parts.ema is not None and snapshot.ema is None:
        raise CheckpointError(
            "the checkpoint has no averaged weights, but ema is set; resume without it"
        )
    for name, tensor in own.items():
        copy_whole(snapshot.model[name], into=tensor)
    parts.optimizers.load_state_dict(snapshot.optimizers)
    if parts.ema is not None and snapshot.ema is not None:
        parts.ema.load_state_dict(snapshot.ema)
    if snapshot.world_size == parts.ranks.world_size:
        _restore_rng(parts, snapshot.rng)


def share(load: Callable[[], Snapshot | None], ranks: Ranks) -> Snapshot | None:
    """What `load` returns on the main rank, on all ranks; only that one needs the files.

    An Error of `load` is raised on every rank, so that none waits for ever.
    """
    found: Snapshot | None = None
    failure: Error | None = None
    if ranks.is_main:
        try:
            found = load()
        except Error as error:
            failure = error
    share_failure(failure, ranks)
    if ranks.is_alone:
        return found
    text = share_text(None if found is None else _describe(found), ranks)
    if text is None:
        return None
    about = cast(dict[str, object], json.loads(text))
    shapes = cast(dict[str, list[tuple[str, list[int], str]] | None], about["tensors"])
    tensors: dict[str, dict[str, Tensor] | None] = {}
    for part, entries in shapes.items():
        source: Mapping[str, Tensor] = {}
        if found is not None:
            source = cast(Mapping[str, Tensor] | None, getattr(found, part)) or {}
        tensors[part] = None if entries is None else {}
        for name, shape, dtype in entries or []:
            like = torch.empty(shape, dtype=cast(torch.dtype, getattr(torch, dtype)), device="meta")
            shared = share_tensor(source.get(name), like, ranks).cpu()
            cast(dict[str, Tensor], tensors[part])[name] = shared
    return Snapshot(
        progress=parse_progress(about["progress"]),
        settings=cast(Settings, about["settings"]),
        world_size=cast(int, about["world_size"]),
        model=tensors["model"] or {},
        optimizers=tensors["optimizers"] or {},
        ema=tensors["ema"],
        rng=tensors["rng"] or {},
    )


def check_settings(saved: Settings, current: Settings, free: frozenset[str] = frozenset()) -> None:
    """Raise ConfigError, naming all of them, when settings differ that decide the run's course.

    `free` are dotted names (a whole section, or one setting) that may change on resuming.
    """
    before, now = flatten(saved), flatten(current)
    changed = [
        f"{name} (was {before.get(name)!r}, now {now.get(name)!r})"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
        and not any(name == one or name.startswith(f"{one}.") for one in free)
    ]
    if changed:
        raise ConfigError(
            f"the run was started with other settings: {', '.join(changed)}; resume with the old"
            " ones, or start a new run from the checkpoint's weights"
        )


def flatten(settings: Settings, prefix: str = "") -> dict[str, object]:
    """Nested settings as one level under dotted names, as JSON reads them back (tuple = list)."""
    flat: dict[str, object] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flatten(cast(Settings, value), f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = cast(object, json.loads(json.dumps(value)))
    return flat


def parse_progress(raw: object) -> Progress:
    """Progress from its JSON form; raises TypeError or KeyError for another one."""
    fields = dict(cast(Mapping[str, object], raw))
    progress = Progress(
        step=cast(int, fields.pop("step")),
        epoch=cast(int, fields.pop("epoch")),
        position=cast(int, fields.pop("position")),
        counts=cast(Mapping[str, float], fields.pop("counts")),
    )
    if fields:
        raise KeyError(next(iter(fields)))
    return progress


def _describe(snapshot: Snapshot) -> str:
    """JSON of all but the tensors' values."""
    parts = {name: getattr(snapshot, name) for name in ("model", "optimizers", "ema", "rng")}
    tensors = {
        part: None
        if values is None
        else [(n, list(t.shape), str(t.dtype).removeprefix("torch.")) for n, t in values.items()]
        for part, values in cast(dict[str, Mapping[str, Tensor] | None], parts).items()
    }
    about = {
        "progress": asdict(snapshot.progress),
        "settings": snapshot.settings,
        "world_size": snapshot.world_size,
        "tensors": tensors,
    }
    return json.dumps(about)


def _model_state(model: nn.Module) -> dict[str, Tensor]:
    return {name: t.detach() for name, t in (*model.named_parameters(), *model.named_buffers())}


def _whole_tensors(tensors: Mapping[str, Tensor], keep: bool) -> dict[str, Tensor]:
    kept: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        gathered = whole(tensor)
        if keep:
            kept[name] = gathered.to("cpu", copy=True)
    return kept


def _gather_rng(parts: TrainedParts) -> dict[str, Tensor]:
    """Random states of all ranks, as "<name>.<rank>"."""
    own = {"torch": torch.get_rng_state()}
    if parts.ranks.device.type == "cuda":
        own["cuda"] = torch.cuda.get_rng_state(parts.ranks.device)
    own |= {f"own.{name}": g.get_state() for name, g in parts.generators.items()}
    return {
        f"{name}.{rank}": row
        for name, state in own.items()
        for rank, row in enumerate(gather_rows(state, parts.ranks))
    }


def _restore_rng(parts: TrainedParts, states: Mapping[str, Tensor]) -> None:
    rank = parts.ranks.rank
    torch.set_rng_state(states[f"torch.{rank}"])
    device_state = states.get(f"cuda.{rank}")
    if parts.ranks.device.type == "cuda" and device_state is not None:
        torch.cuda.set_rng_state(device_state, parts.ranks.device)
    for name, generator in parts.generators.items():
        state = states.get(f"own.{name}.{rank}")
        if state is None:
            raise CheckpointError(f"the checkpoint has no random state {name}; start a new run")
        generator.set_state(state)
