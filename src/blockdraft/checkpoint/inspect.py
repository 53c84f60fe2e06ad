"""What a drafter checkpoint is, for people and for programs.

It loads nothing and prints nothing: a checkpoint in, a summary and its renderings out.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from torch import Tensor

from blockdraft.checkpoint.contents import DrafterCheckpoint
from blockdraft.drafter.config import DFlash2Config


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCounts:
    """Stored parameters by part.

    `head` and `mask_embedding` are 0 when the target's are used, `convolutions` and `selector`
    (codebooks included) in the first version of DFlash.
    """

    fusion: int
    attention: int
    mlp: int
    norms: int
    head: int
    mask_embedding: int
    convolutions: int
    selector: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFit:
    """The size of the target that the drafter was made for; `num_layers` None = not recorded."""

    hidden_size: int
    num_layers: int | None
    vocab_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSummary:
    """The facts of one checkpoint. `layers` describes each layer's attention in a few words.

    `dflash2` None is the first version of DFlash.
    """

    source: str
    dtype: str
    block_size: int
    mask_token_id: int
    taps: tuple[int, ...]
    layers: tuple[str, ...]
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope_type: str
    rope_theta: float
    position_limit: int
    draft_vocab_size: int | None
    dflash2: DFlash2Config | None
    parameters: ParameterCounts
    target: TargetFit

    def to_json(self) -> dict[str, object]:
        """The same facts as nested plain values that `json.dumps` takes."""
        return asdict(self)


def describe(checkpoint: DrafterCheckpoint) -> CheckpointSummary:
    """Summarize `checkpoint`."""
    config = checkpoint.config
    return CheckpointSummary(
        source=checkpoint.source,
        dtype=str(checkpoint.dtype).removeprefix("torch."),
        block_size=config.block_size,
        mask_token_id=config.mask_token_id,
        taps=config.taps,
        layers=tuple(_layer_text(checkpoint, i) for i in range(config.num_layers)),
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        rope_type=config.rope.rope_type,
        rope_theta=config.rope.theta,
        position_limit=config.position_limit,
        draft_vocab_size=config.draft_vocab_size,
        dflash2=config.dflash2,
        parameters=_count(checkpoint),
        target=TargetFit(
            hidden_size=config.hidden_size,
            num_layers=config.num_target_layers,
            vocab_size=config.vocab_size,
        ),
    )


def render_text(summary: CheckpointSummary) -> str:
    """The summary as aligned lines, without a final newline."""
    parts = summary.parameters
    counts = {
        "fusion": parts.fusion,
        "attention": parts.attention,
        "MLP": parts.mlp,
        "norms": parts.norms,
        "head": parts.head,
        "mask embedding": parts.mask_embedding,
        "convolutions": parts.convolutions,
        "selector": parts.selector,
    }
    shown = ", ".join(f"{name} {_short(count)}" for name, count in counts.items() if count)
    target = summary.target
    depth = "unrecorded number of" if target.num_layers is None else str(target.num_layers)
    vocabulary = "the target's, with its head"
    if summary.draft_vocab_size is not None:
        vocabulary = f"reduced to {summary.draft_vocab_size} ids"
    elif parts.head:
        vocabulary = "the target's, with a head of its own"
    rows = {"drafter": summary.source}
    if summary.dflash2 is not None:
        rows["version"] = _second_version(summary.dflash2)
    rows |= {
        "layers": f"{len(summary.layers)}: {_grouped(summary.layers)}",
        "heads": f"{summary.num_heads} query, {summary.num_kv_heads} key/value of"
        f" {summary.head_dim}",
        "taps": ", ".join(str(tap) for tap in summary.taps),
        "block size": f"{summary.block_size} (anchor and {summary.block_size - 1} drafts)",
        "mask token": f"{summary.mask_token_id}"
        + (", learned embedding" if parts.mask_embedding else ""),
        "vocabulary": vocabulary,
        "positions": f"{summary.position_limit}, RoPE {summary.rope_type}, theta"
        f" {summary.rope_theta:g}",
        "parameters": f"{_short(parts.total)} in {summary.dtype} ({shown})",
        "target": f"hidden {target.hidden_size}, {depth} layers, vocabulary {target.vocab_size}",
    }
    return "\n".join(f"{name:<12}{value}" for name, value in rows.items())


def _second_version(second: DFlash2Config) -> str:
    return (
        f"DFlash 2: convolutions of {second.conv_kernel_size} taps, groups of"
        f" {second.conv_group_size}; selector over {second.selector_top_k} candidates, rank"
        f" {second.selector_rank}"
    )


def _layer_text(checkpoint: DrafterCheckpoint, layer_idx: int) -> str:
    rule = checkpoint.config.mask_rule(layer_idx)
    kind = "full" if rule.window is None else f"window {rule.window}"
    return f"{kind}, {'causal' if rule.causal else 'bidirectional'}"


def _grouped(layers: tuple[str, ...]) -> str:
    """Runs of equal layers, in order: "2 x window 4, causal; 1 x full, bidirectional"."""
    runs: list[tuple[str, int]] = []
    for layer in layers:
        if runs and runs[-1][0] == layer:
            runs[-1] = (layer, runs[-1][1] + 1)
        else:
            runs.append((layer, 1))
    return "; ".join(f"{count} x {layer}" for layer, count in runs)


def _count(checkpoint: DrafterCheckpoint) -> ParameterCounts:
    state = checkpoint.state
    head = 0 if checkpoint.lm_head is None else checkpoint.lm_head.numel()
    mask = 0 if checkpoint.mask_embedding is None else checkpoint.mask_embedding.numel()
    return ParameterCounts(
        fusion=_sum(state, "fc."),
        attention=_sum(state, "_proj", within=".self_attn."),
        mlp=_sum(state, ".mlp."),
        norms=_sum(state, "norm"),
        head=head,
        mask_embedding=mask,
        convolutions=_sum(state, "_conv."),
        selector=_sum(state, "candidate_selector."),
        total=sum(tensor.numel() for tensor in state.values()) + head + mask,
    )


def _sum(state: Mapping[str, Tensor], part: str, *, within: str = "") -> int:
    return sum(t.numel() for name, t in state.items() if part in name and within in name)


def _short(count: int) -> str:
    for size, unit in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if count >= size:
            return f"{count / size:.1f}{unit}"
    return str(count)
