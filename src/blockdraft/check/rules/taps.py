"""Rules on the tapped layers: which they are, in what order, and whether `fc.weight` takes them.

What an engine does with the target's last layer is in the engines' modules.
"""

from blockdraft.check.facts import PairFacts
from blockdraft.check.findings import Rule, Verdict
from blockdraft.check.plausible import MOST

_CORRECT = "Correct config.json from the training configuration, or fetch the checkpoint again."


def taps_missing(pair: PairFacts) -> Verdict | None:
    shape = pair.drafter.shape
    if not pair.drafter.is_drafter or shape.taps or "target_layer_ids" in shape.malformed:
        return None
    return Verdict(
        "target_layer_ids is missing: SGLang and others guess the layers by a formula that is "
        "wrong for most published checkpoints, llama.cpp refuses; acceptance is lost silently.",
        "Write the layers of the training as dflash_config.target_layer_ids.",
    )


def taps_repeated(pair: PairFacts) -> Verdict | None:
    taps = pair.drafter.shape.taps or ()
    if len(set(taps)) == len(taps):
        return None
    return Verdict(
        f"target_layer_ids {list(taps)} names a layer twice: engines that collect layers in a set "
        "deliver fewer features than fc.weight takes, and stop.",
        _CORRECT,
    )


def taps_unsorted(pair: PairFacts) -> Verdict | None:
    taps = pair.drafter.shape.taps or ()
    if list(taps) == sorted(taps):
        return None
    return Verdict(
        f"target_layer_ids {list(taps)} is not ascending: some engines concatenate features in "
        "the order of depth, so the columns of fc.weight meet the wrong layers.",
        "Sort the ids and permute the column blocks of fc.weight in the same way.",
    )


def taps_outside(pair: PairFacts) -> Verdict | None:
    taps, depth = pair.drafter.shape.taps or (), _depth(pair)
    limit = MOST["num_target_layers"] if depth is None else depth
    wrong = [tap for tap in taps if not 0 <= tap < limit]
    if not wrong:
        return None
    hint = ""
    if depth is not None and max(taps) == depth:
        hint = " They look 1-based; the published layout counts from 0 (the output of layer i)."
    return Verdict(
        f"target_layer_ids has {wrong[0]}, but the target's layers are 0 to "
        f"{'?' if depth is None else depth - 1}: engines refuse it or never deliver that "
        f"feature.{hint}",
        _CORRECT,
    )


def taps_not_recorded(pair: PairFacts) -> Verdict | None:
    taps, trained = pair.drafter.shape.taps, pair.drafter.record.taps
    if taps is None or trained is None or taps == trained:
        return None
    shifted = {after - before for after, before in zip(taps, trained, strict=False)}
    how = "other layers"
    if len(taps) == len(trained) and shifted in ({1}, {-1}):
        higher = "higher" if shifted == {1} else "lower"
        how = f"every layer one {higher}, the off-by-one between layouts"
    return Verdict(
        f"The configuration taps {list(taps)}, training tapped {list(trained)} ({how}): it loads "
        "everywhere, and acceptance collapses.",
        "Write the trained layers, 0-based, as target_layer_ids.",
    )


def raised_taps_contradict(pair: PairFacts) -> Verdict | None:
    shape = pair.drafter.shape
    if shape.raised_taps is None or shape.taps is None:
        return None
    expected = tuple(tap + 1 for tap in shape.taps)
    if shape.raised_taps == expected:
        return None
    return Verdict(
        f"config.json has target_layer_ids {list(shape.taps)} and also auxiliary hidden state ids "
        f"{list(shape.raised_taps)}; the second kind is one higher, {list(expected)}. vLLM takes "
        "the second, others the first.",
        "Remove the auxiliary ids, or make them one higher than target_layer_ids.",
    )


def fusion_width(pair: PairFacts) -> Verdict | None:
    shape, fusion = pair.drafter.shape, pair.drafter.tensor("fc.weight")
    if fusion is None or shape.taps is None or shape.hidden_size is None:
        return None
    expected = (shape.hidden_size, len(shape.taps) * shape.hidden_size)
    if fusion.shape == expected:
        return None
    return Verdict(
        f"fc.weight is {list(fusion.shape)}, but {len(shape.taps)} tapped layers of hidden size "
        f"{shape.hidden_size} need {list(expected)}: vLLM, SGLang and llama.cpp refuse it.",
        "List exactly the layers of the training.",
    )


def _depth(pair: PairFacts) -> int | None:
    return pair.target.num_layers or pair.drafter.shape.num_target_layers


RULES = (
    Rule("DFL022", "error", "all", "target_layer_ids missing", taps_missing),
    Rule("DFL023", "error", "all", "a layer tapped twice", taps_repeated),
    Rule("DFL024", "warning", "all", "tapped layers not ascending", taps_unsorted),
    Rule("DFL025", "error", "all", "a tapped layer that the target does not have", taps_outside),
    Rule("DFL026", "error", "all", "other layers tapped than in training (off by one)",
         taps_not_recorded),
    Rule("DFL027", "error", "all", "two lists of tapped layers contradict each other",
         raised_taps_contradict),
    Rule("DFL028", "error", "all", "fc.weight does not fit the number of tapped layers",
         fusion_width),
)  # fmt: skip
