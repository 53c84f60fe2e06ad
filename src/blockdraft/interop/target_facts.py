"""What an export must know of a target: its sizes, and the rows of its embedding and head.

It reads configuration and those two tensors from the target's folder and loads no model.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from jaxtyping import Float
from torch import Tensor

from blockdraft.checkpoint.fields import Fields
from blockdraft.checkpoint.tensors import list_tensors, read_json, read_tensors
from blockdraft.decoding.interfaces import TargetSpec
from blockdraft.errors import CheckpointError
from blockdraft.target.folder import refuse_drafter
from blockdraft.target.load import resolve_source

Report = Callable[[str], None]

_EMBEDDING = "embed_tokens.weight"
_HEAD = "lm_head.weight"
_HEAD_BIAS = "lm_head.bias"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFacts:
    """A target as its folder describes it. `name` is what the user calls it."""

    name: str
    folder: Path
    model_type: str
    architectures: tuple[str, ...]
    hidden_size: int
    num_layers: int
    vocab_size: int

    @property
    def spec(self) -> TargetSpec:
        """The sizes that a drafter must fit."""
        return TargetSpec(
            name=self.name,
            vocab_size=self.vocab_size,
            hidden_size=self.hidden_size,
            num_layers=self.num_layers,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TargetRows:
    """The target's embedding and head, as stored; a tied head is the embedding itself."""

    embedding: Float[Tensor, "vocab hidden"]
    head: Float[Tensor, "vocab hidden"]


def read_target(
    source: str, *, revision: str | None = None, report: Report | None = None
) -> TargetFacts:
    """The facts of a built-in name, a folder, a GGUF file or a hub id.

    Raises the errors of finding and reading a target, CheckpointError for one without plain sizes.
    """
    folder = resolve_source(source, revision, report or _say_nothing)
    raw = read_json(folder / "config.json", source)
    refuse_drafter(folder, raw)
    top = Fields(raw, f"{source}/config.json")
    text = top.section("text_config", fallback=top)
    return TargetFacts(
        name=source,
        folder=folder,
        model_type=top.optional_text("model_type") or "",
        architectures=top.optional_texts("architectures") or (),
        hidden_size=text.integer("hidden_size"),
        num_layers=text.integer("num_hidden_layers"),
        vocab_size=text.integer("vocab_size"),
    )


def read_rows(target: TargetFacts) -> TargetRows:
    """The target's embedding and head; raises CheckpointError where they are not plain tensors."""
    where = target.name
    stored = list_tensors(target.folder, where)
    if _ending(stored, _HEAD_BIAS):
        raise CheckpointError(
            f"{where}: the target's head has a bias, which a drafter's own head can't have; export"
            " with --format hf, which leaves the head to the target"
        )
    # Of a tied model either of the two may be stored alone.
    embedding_name = _only(stored, _EMBEDDING, where) or _only(stored, _HEAD, where)
    head_name = _only(stored, _HEAD, where) or embedding_name
    if embedding_name is None or head_name is None:
        raise CheckpointError(
            f"{where}: the target has neither {_EMBEDDING} nor {_HEAD}; export with --format hf,"
            " which needs no rows of the target"
        )
    names = {embedding_name, head_name}
    tensors = read_tensors(target.folder, {name: stored[name] for name in names}, where)
    rows = TargetRows(embedding=tensors[embedding_name], head=tensors[head_name])
    for tensor in (rows.embedding, rows.head):
        if tuple(tensor.shape) != (target.vocab_size, target.hidden_size):
            raise CheckpointError(
                f"{where}: the embedding or head is {list(tensor.shape)}, expected"
                f" [{target.vocab_size}, {target.hidden_size}] from config.json; fetch it again"
            )
        if not tensor.is_floating_point():
            raise CheckpointError(
                f"{where}: the embedding or head is stored as {tensor.dtype}; quantized targets"
                " can't lend their rows: give the target in float16, bfloat16 or float32"
            )
    return rows


def _ending(stored: Mapping[str, object], end: str) -> list[str]:
    return [name for name in stored if name == end or name.endswith(f".{end}")]


def _only(stored: Mapping[str, object], end: str, where: str) -> str | None:
    found = _ending(stored, end)
    if len(found) > 1:
        raise CheckpointError(
            f"{where}: the target has several tensors {end} ({', '.join(found[:3])}); export with"
            " --format hf, which needs no rows of the target"
        )
    return found[0] if found else None


def _say_nothing(line: str) -> None:
    pass
