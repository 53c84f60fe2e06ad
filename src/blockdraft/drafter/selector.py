"""The candidate selector of DFlash 2: which of a slot's best ids follows which of the slot before.

It scores; a path is chosen in `decoding/choose.py`. docs/algorithm.md, "DFlash 2", has an example.

Shape legend: requests, slots, k = candidates of a slot, rank = numbers of a codebook row.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from blockdraft.decoding.interfaces import DraftLattice
from blockdraft.drafter.config import DFlash2Config


class CandidateSelector(nn.Module):
    """score(b) = logit of b + <predecessor[previous] * hidden_projection(h), successor[b]>.

    h is the slot's final-normed state, `previous` the id chosen in the slot before (the anchor
    for the first one), b one of the slot's `selector_top_k` best ids. The two codebooks have a row
    for each id of the vocabulary.
    """

    def __init__(self, hidden_size: int, vocab_size: int, config: DFlash2Config) -> None:
        super().__init__()
        rank = config.selector_rank
        self.top_k = config.selector_top_k
        self.hidden_projection = nn.Linear(hidden_size, rank, bias=False)
        # No embeddings: published files store the codebooks without ".weight".
        self.predecessor_codebook = nn.Parameter(torch.zeros(vocab_size, rank))
        self.successor_codebook = nn.Parameter(torch.zeros(vocab_size, rank))

    def lattices(
        self,
        hidden: Float[Tensor, "requests slots hidden"],
        logits: Float[Tensor, "requests slots vocab"],
        anchors: Int[Tensor, " requests"],
    ) -> list[DraftLattice]:
        """The candidates of each request's slots and the scores of all pairs, in fp32 or wider.

        All scores are computed at once, for every candidate before instead of the chosen one: the
        choice is then a walk over small tables, whatever the request's settings.
        """
        # Rows by which a target's padded vocabulary exceeds the codebooks stand for no token.
        num_rows = self.successor_codebook.shape[0]
        logits = logits[..., :num_rows]
        unary, candidates = logits.topk(min(self.top_k, logits.shape[-1]), dim=-1)
        wanted = self.hidden_projection(hidden.to(self.hidden_projection.weight.dtype))
        after = self.successor_codebook[candidates].transpose(-1, -2)
        anchor_rows = self.predecessor_codebook[anchors.clamp(max=num_rows - 1)]
        first = ((anchor_rows * wanted[:, 0])[:, None] @ after[:, 0])[:, 0]
        before = self.predecessor_codebook[candidates[:, :-1]] * wanted[:, 1:, None]
        pairs = before @ after[:, 1:]
        wide = torch.promote_types(unary.dtype, torch.float32)
        first = unary[:, 0].to(wide) + first
        pairs = unary[:, 1:, None].to(wide) + pairs
        return [DraftLattice(*parts) for parts in zip(candidates, first, pairs, strict=True)]
