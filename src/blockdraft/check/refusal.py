"""What our own loader says of a pair, without building or decoding anything.

The engines' rules are elsewhere; this is Blockdraft's.
"""

from blockdraft.check.facts import TargetFacts
from blockdraft.check.locate import Located
from blockdraft.checkpoint import check_pair, load_checkpoint
from blockdraft.decoding.interfaces import TargetSpec
from blockdraft.errors import CheckpointError


def own_refusal(drafter: Located, target: TargetFacts) -> str | None:
    """The first thing that Blockdraft refuses, None when it would load the pair."""
    if drafter.folder.is_file():
        return f"{drafter.source} is a GGUF file, which is not loaded as a drafter"
    try:
        checkpoint = load_checkpoint(drafter.folder)
        spec = _spec_of(target)
        if spec is not None:
            check_pair(checkpoint.config, spec)
    except CheckpointError as error:
        return " ".join(str(error).split())
    return None


def _spec_of(target: TargetFacts) -> TargetSpec | None:
    if target.hidden_size is None or target.num_layers is None or target.vocab_size is None:
        return None
    return TargetSpec(
        name=target.source,
        vocab_size=target.vocab_size,
        hidden_size=target.hidden_size,
        num_layers=target.num_layers,
        max_context_len=target.position_limit,
    )
