"""Rules that the engines' plans share: flags beside the user's own, and what can't be asked.

It knows no engine's flags.
"""

from collections.abc import Sequence

from blockdraft.errors import ConfigError
from blockdraft.launch.order import LaunchOrder, Layout

LAYOUT_NAMES: dict[Layout, str] = {
    "hf": "a published HF folder",
    "speculators": "a speculators folder",
    "gguf": "a GGUF file",
    "openvino": "an OpenVINO model",
    "remote": "a hub id",
}


def with_extra(own: Sequence[str], order: LaunchOrder) -> tuple[str, ...]:
    """`own` and then the user's flags; ConfigError where both set the same one."""
    taken = {flag_name(word) for word in own if word.startswith("-")}
    for word in order.extra:
        if word.startswith("-") and flag_name(word) in taken:
            raise ConfigError(
                f"{flag_name(word)} after -- is set by launch itself; drop it, or use launch's own "
                "flag for it"
            )
    return (*own, *order.extra)


def flag_name(word: str) -> str:
    """The flag of `--flag=value` or `--flag`, with dashes for underscores."""
    name = word.partition("=")[0]
    dashes = len(name) - len(name.lstrip("-"))
    return name[:dashes] + name[dashes:].replace("_", "-")


def extra_value(order: LaunchOrder, flags: Sequence[str]) -> str | None:
    """The value that the user's own flags give one of `flags`; None when none is there."""
    for at, word in enumerate(order.extra):
        if flag_name(word) in flags:
            _, equals, value = word.partition("=")
            if equals:
                return value
            return order.extra[at + 1] if at + 1 < len(order.extra) else ""
    return None


def refuse_pipeline(order: LaunchOrder, flags: Sequence[str], engine: str) -> None:
    """Raise ConfigError where the user's own flags ask for more than one pipeline stage."""
    size = extra_value(order, flags)
    if size not in (None, "1"):
        raise ConfigError(
            f"{engine} can't draft with DFlash over pipeline stages ({flags[0]} {size}): the "
            "drafter reads layers of every stage; use --tensor-parallel instead"
        )


def require_layouts(
    order: LaunchOrder, engine: str, *, target: Sequence[Layout], drafter: Sequence[Layout], do: str
) -> None:
    """Raise ConfigError unless both models lie there in a way that the engine reads."""
    sides: tuple[tuple[str, str, Layout, Sequence[Layout]], ...] = (
        ("target", order.pair.target.where, order.pair.target.layout, target),
        ("drafter", order.pair.drafter.where, order.pair.drafter.layout, drafter),
    )
    for side, where, layout, readable in sides:
        if layout not in readable:
            raise ConfigError(
                f"{engine} does not read the {side} {where}, {LAYOUT_NAMES[layout]}; it reads "
                f"{' or '.join(LAYOUT_NAMES[one] for one in readable)}: {do}"
            )


def refuse_lone_head(order: LaunchOrder, engine: str) -> None:
    """Raise ConfigError for a tied target whose matrix is stored under the head's name alone.

    vLLM 0.32 loads it without an error and computes with an empty embedding: all tokens are equally
    likely, and all drafts are accepted.
    """
    if order.pair.target.has_only_head:
        raise ConfigError(
            f"{order.pair.target.where} has its tied matrix as lm_head.weight only, and {engine} "
            "looks for model.embed_tokens.weight (vLLM goes on with an empty embedding, without an "
            "error); write the weights again under that name: python benchmarks/model_copy.py "
            "SOURCE FOLDER"
        )


def refuse_parallel(order: LaunchOrder, engine: str, *, tensor: bool, data: bool, do: str) -> None:
    """Raise ConfigError for a parallel size that the engine (or DFlash in it) does not have."""
    asked = (
        ("--tensor-parallel", order.tensor_parallel, tensor),
        ("--data-parallel", order.data_parallel, data),
    )
    for flag, size, known in asked:
        if size > 1 and not known:
            raise ConfigError(f"{flag} {size} is not available with {engine}: {do}")


def check_heads(order: LaunchOrder) -> None:
    """Raise ConfigError where the target's heads can't be shared out to the ranks."""
    heads = order.pair.target.num_heads
    if heads is not None and heads % order.tensor_parallel:
        raise ConfigError(
            f"--tensor-parallel {order.tensor_parallel} does not divide the {heads} attention heads"
            f" of {order.pair.target.where}; choose a divisor of {heads}"
        )


def drafter_splits(order: LaunchOrder) -> bool:
    """Whether the drafter's heads can be shared out like the target's."""
    heads = order.pair.drafter.num_heads
    return heads is None or heads % order.tensor_parallel == 0


def pair_notes(order: LaunchOrder) -> tuple[str, ...]:
    """What holds in every engine."""
    drafter = order.pair.drafter
    notes: list[str] = []
    trained = drafter.block_size
    if order.block_size is not None and drafter.block_size is None:
        notes.append(f"nothing of {drafter.where} is known here: --block-size is taken as it is")
    if trained is not None and order.block < trained:
        notes.append(
            f"blocks of {order.block} instead of the trained {trained}: cheaper steps, of at most "
            f"{order.block} tokens"
        )
    if drafter.layout == "hf" and drafter.has_reduced_vocabulary:
        notes.append(
            f"{drafter.where} drafts a part of the vocabulary, which engines read differently or "
            "not at all: `blockdraft export --format hf` writes a folder that all of them read"
        )
    longest = drafter.max_positions
    if order.max_model_len is not None and longest is not None and order.max_model_len > longest:
        notes.append(
            f"--max-model-len {order.max_model_len} is longer than the {longest} positions of the "
            "drafter; beyond them expect it to be accepted less"
        )
    return tuple(notes)
