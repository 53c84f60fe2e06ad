"""`ToyRecurrentTarget`: a tiny recurrent language model, the proof that `commit` fits such models.

A recurrent state can't be cropped: it holds all tokens at once. The toy shows both ways out that
real adapters have, keeping the state after every verified row and replaying the accepted rows.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from blockdraft.decoding.interfaces import LMHead, TargetOutput, TargetSpec
from blockdraft.target.rows import check_fed, check_path, resolve_parents

Rollback = Literal["keep", "replay"]


class ToyRecurrentTarget:
    """A TargetModel of `num_layers` stacked tanh cells, float64; trees supported.

    Layer l computes state_l' = tanh(A_l state_l + B_l input_l), input_0 = the token's embedding,
    input_l = state_{l-1}'. A feature is a layer's new state; the head reads the last layer's.
    """

    def __init__(
        self,
        vocab_size: int = 32,
        *,
        rollback: Rollback = "keep",
        hidden_size: int = 16,
        num_layers: int = 2,
        seed: int = 0,
    ) -> None:
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, dtype=torch.float64, generator=generator)

        self.rollback: Rollback = rollback
        self.spec = TargetSpec(
            name="toy-recurrent",
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            num_layers=num_layers,
        )
        self._embedding = normal(vocab_size, hidden_size)
        self._head = normal(vocab_size, hidden_size)
        self._recur = normal(num_layers, hidden_size, hidden_size) / hidden_size**0.5
        self._input = normal(num_layers, hidden_size, hidden_size) / hidden_size**0.5

    def embed(self, ids: Int[Tensor, "*rows"]) -> Float[Tensor, "*rows hidden"]:
        return self._embedding[ids]

    def head(self, vocab_ids: Int[Tensor, " subset"] | None = None) -> LMHead:
        rows = self._head if vocab_ids is None else self._head[vocab_ids]
        return lambda hidden: hidden.to(rows.dtype) @ rows.T

    def open(self, taps: Sequence[int] = ()) -> "ToyRecurrentState":
        return ToyRecurrentState(self, tuple(taps))

    def step(
        self, memory: Float64[Tensor, "layers hidden"], token_id: int
    ) -> Float64[Tensor, "layers hidden"]:
        """The memory after one more token; `memory` itself is left as it is."""
        signal = self._embedding[token_id]
        layers: list[Tensor] = []
        for layer in range(self.spec.num_layers):
            signal = torch.tanh(self._recur[layer] @ memory[layer] + self._input[layer] @ signal)
            layers.append(signal)
        return torch.stack(layers)


class ToyRecurrentState:
    """One recurrent memory, and what is needed to undo the rows of the last `verify`.

    keep:   one memory for each pending row; commit picks the last accepted row's.
    replay: only the ids of the pending rows; commit runs the accepted ones again.
    """

    def __init__(self, target: ToyRecurrentTarget, taps: tuple[int, ...]) -> None:
        self._target = target
        self._taps = taps
        self._memory = torch.zeros(
            target.spec.num_layers, target.spec.hidden_size, dtype=torch.float64
        )
        self._context_len = 0
        self._parents: tuple[int, ...] | None = None
        self._kept: list[Tensor] = []
        self._pending_ids: list[int] = []

    @property
    def context_len(self) -> int:
        return self._context_len

    def prefill(self, ids: Int[Tensor, " prompt"]) -> TargetOutput:
        output = self.verify(ids)
        self.commit(range(ids.numel()))
        return TargetOutput(output.logits[-1:], output.features)

    def verify(
        self, ids: Int[Tensor, " rows"], parents: Sequence[int] | None = None
    ) -> TargetOutput:
        assert self._parents is None, "the rows of the last verify wait for a commit"
        check_fed(ids, self._context_len, self._target.spec)
        self._parents = resolve_parents(ids.numel(), parents)
        self._pending_ids = [int(token_id) for token_id in ids]
        memories: list[Tensor] = []
        for token_id, parent in zip(self._pending_ids, self._parents, strict=True):
            before = self._memory if parent < 0 else memories[parent]
            memories.append(self._target.step(before, token_id))
        self._kept = memories if self._target.rollback == "keep" else []
        fed = torch.stack(memories)
        features = torch.cat([fed[:, tap] for tap in self._taps], dim=-1) if self._taps else None
        return TargetOutput(self._target.head()(fed[:, -1]), features)

    def commit(self, rows: Sequence[int]) -> None:
        assert self._parents is not None, "commit without a verify"
        check_path(rows, self._parents)
        if self._target.rollback == "replay":
            for row in rows:
                self._memory = self._target.step(self._memory, self._pending_ids[row])
        elif rows:
            self._memory = self._kept[rows[-1]]
        self._context_len += len(rows)
        self._parents, self._kept, self._pending_ids = None, [], []
