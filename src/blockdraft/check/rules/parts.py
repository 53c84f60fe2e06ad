"""Facts that the rules of several engines look at: masks read otherwise, heads of other kinds.

They answer questions; what follows from the answers differs by engine.
"""

from collections.abc import Callable

from blockdraft.check.facts import PairFacts
from blockdraft.check.findings import Verdict
from blockdraft.check.masks import Masks, trained_masks
from blockdraft.check.shape import DrafterShape
from blockdraft.json_values import as_object

ReadMasks = Callable[[DrafterShape], Masks]

SECOND_VERSION = "DFlash2"
"""What the names of its architectures begin with."""

SECOND_VERSION_KEYS = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")
_EXTRA_TENSORS = ("candidate_selector", "markov", "confidence", "gru", "gate_proj", "joint_proj")


def causality_reading(pair: PairFacts, read: ReadMasks, ignored: str) -> Verdict | None:
    """Layers whose causality the engine reads otherwise than training meant it."""
    found = _first_difference(pair, read, "causal")
    if found is None:
        return None
    layer, trained = found
    meant, taken = ("causal", "non-causal") if trained else ("non-causal", "causal")
    return Verdict(
        f"Layer {layer} was trained {meant} and is read as {taken}, since {ignored}: it loads, and "
        "most of the acceptance is lost.",
        "Train all layers as full_attention without causality, which every engine reads alike, or "
        "use an engine that reads this layout.",
    )


def window_reading(pair: PairFacts, read: ReadMasks, ignored: str) -> Verdict | None:
    """Layers whose window the engine does not apply, or applies where there is none."""
    found = _first_difference(pair, read, "window")
    if found is None:
        return None
    layer, window = found
    return Verdict(
        f"The window of layer {layer} ({window} tokens in training) is read otherwise, since "
        f"{ignored}: acceptance falls in contexts longer than the window.",
        "Write use_sliding_window and layer_types explicitly, or keep contexts shorter.",
    )


def _first_difference(pair: PairFacts, read: ReadMasks, part: str) -> tuple[int, int | None] | None:
    shape = pair.drafter.shape
    if not pair.drafter.is_folder:
        return None
    for layer, (meant, taken) in enumerate(zip(trained_masks(shape), read(shape), strict=False)):
        if part == "causal" and meant.causal != taken.causal:
            return layer, int(meant.causal)
        if part == "window" and meant.window != taken.window:
            return layer, meant.window
    return None


def taps_last_layer(pair: PairFacts) -> int | None:
    """The last layer of the target, when it is tapped."""
    depth = pair.target.num_layers or pair.drafter.shape.num_target_layers
    taps = pair.drafter.shape.taps or ()
    return depth - 1 if depth is not None and depth - 1 in taps else None


def has_own_head(pair: PairFacts) -> bool:
    """Whether the drafter brings an LM head; GGUF files may hold rows of the target's there."""
    return pair.drafter.is_folder and pair.drafter.tensor("lm_head.weight") is not None


def has_reduced_vocabulary(pair: PairFacts) -> bool:
    """Whether the drafter drafts fewer ids than the target has."""
    shape = pair.drafter.shape
    if not pair.drafter.is_folder:
        return False
    reduced = shape.draft_vocab_size is not None and shape.draft_vocab_size != shape.vocab_size
    return reduced or "d2t" in pair.drafter.tensors


def extra_head(pair: PairFacts) -> str | None:
    """A tensor or key of a drafter of another kind: DFlash 2, DSpark, Domino, LiLiCorr."""
    name = pair.drafter.has(*_EXTRA_TENSORS)
    if name is not None:
        return f"tensor {name}"
    raw = pair.drafter.raw
    keys = [*raw, *as_object(raw.get("dflash_config"))]
    starts = (*SECOND_VERSION_KEYS, "markov", "confidence", "gru_")
    found = next((key for key in keys if key.startswith(starts)), None)
    if found is not None:
        return f"key {found}"
    return (
        f"architecture {pair.drafter.shape.architectures[0]}" if is_second_version(pair) else None
    )


def is_second_version(pair: PairFacts) -> bool:
    """Whether the drafter names the architecture of DFlash 2."""
    return any(name.startswith(SECOND_VERSION) for name in pair.drafter.shape.architectures)


def last_layer_tapped(pair: PairFacts, happens: str, remedy: str) -> Verdict | None:
    """The verdict where the target's last layer is tapped; `happens` goes on after saying so."""
    layer = taps_last_layer(pair)
    if layer is None:
        return None
    return Verdict(f"The last layer ({layer}) is tapped: {happens}", remedy)


def own_head_replaced(pair: PairFacts, how: str) -> Verdict | None:
    """The verdict for engines that draft with the target's head; `how` says what they do."""
    if not has_own_head(pair):
        return None
    return Verdict(
        f"The drafter has an LM head of its own{how} drafts come from a head that was not trained "
        "with it.",
        "Train without a head of its own, or serve with vLLM.",
    )


def reduction_left_out(pair: PairFacts, happens: str, remedy: str) -> Verdict | None:
    """The verdict for engines that draft with the target's whole head instead of its rows."""
    if not has_reduced_vocabulary(pair) or has_own_head(pair):
        return None
    return Verdict(happens, remedy)


def other_head_unknown(pair: PairFacts, engine: str, happens: str = "") -> Verdict | None:
    """The verdict for engines that run plain DFlash only; `happens` goes on after saying so."""
    extra = extra_head(pair)
    if extra is None:
        return None
    return Verdict(
        f"{extra[0].upper()}{extra[1:]} belongs to a kind of drafter that {engine} does not run"
        f"{happens}.",
        "Use a plain DFlash drafter.",
    )


def uneven_keys(pair: PairFacts) -> str | None:
    """A layer whose keys have another size than those of the first."""
    drafter = pair.drafter
    first = drafter.tensor("layers.0.self_attn.k_proj.weight")
    for layer in range(1, drafter.shape.num_layers or 0):
        name = f"layers.{layer}.self_attn.k_proj.weight"
        tensor = drafter.tensor(name)
        if first is not None and tensor is not None and tensor.shape != first.shape:
            return name
    return None


def has_biases(pair: PairFacts) -> bool:
    """Whether the attention has biases, by its configuration or its tensors."""
    stored = any(name.endswith("_proj.bias") for name in pair.drafter.tensors)
    return pair.drafter.shape.attention_bias or stored


def needs_published_folder(pair: PairFacts, engine: str) -> Verdict | None:
    """The verdict for engines that read the published HF folder only."""
    if pair.drafter.format not in ("speculators", "gguf"):
        return None
    layout = "the speculators layout" if pair.drafter.format == "speculators" else "a GGUF file"
    return Verdict(
        f"{engine} does not read {layout}: loading fails, or keys below transformer_layer_config "
        "are missed.",
        "Run `blockdraft export --format hf` and serve that folder.",
    )
