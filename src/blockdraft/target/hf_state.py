"""`HFState`: the cache of one request on a transformers model, with exact commit and roll back.

It owns no weights; all states of one target share the model and run one at a time.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from blockdraft.decoding.interfaces import TargetOutput, TargetSpec
from blockdraft.errors import UnsupportedTarget
from blockdraft.target.capture import capture
from blockdraft.target.hf_call import ModelCall
from blockdraft.target.mixing import Mixers
from blockdraft.target.recurrent import RecurrentStates
from blockdraft.target.rollback import KVCache, cut_to, keep_rows, rows_held
from blockdraft.target.rows import (
    check_fed,
    check_pass_rows,
    check_path,
    depths,
    is_chain,
    resolve_parents,
    visible,
)

PAD_ID = 0
"""Fed in pad rows. Any valid id will do: no real row sees a pad row."""

PREFILL_PIECE_LEN = 512
"""Rows of one prefill pass of a batch-invariant target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HFParts:
    """What every state of one model shares.

    `mixers`: the modules that write recurrent states; None = there are no such layers.
    `pass_width`: every verify pass is padded to this many rows, None = not at all.
    `why_no_trees`: the reason for which tree passes are refused, None = they are not; likewise
    `why_no_taps`, for layers that can't be tapped.
    """

    call: ModelCall
    layers: nn.ModuleList
    spec: TargetSpec
    dtype: torch.dtype
    device: torch.device
    mixers: Mixers | None = None
    pass_width: int | None = None
    why_no_trees: str | None = None
    why_no_taps: str | None = None


class HFState:
    """A TargetState on a `DynamicCache`.

    cache: [0, context_len) committed | [context_len, context_len + pending) rows of the last verify
    Recurrent states have no rows: they are after the last one, and `commit` leads them back.
    """

    def __init__(self, parts: HFParts, taps: tuple[int, ...]) -> None:
        self._parts = parts
        self._taps = taps
        self._start()

    def _start(self) -> None:
        """The memory of nothing."""
        parts = self._parts
        self._cache: KVCache = parts.call.new_cache()
        self._recurrent: RecurrentStates | None = None
        if parts.mixers is not None:
            self._recurrent = RecurrentStates(self._cache, parts.mixers)
        self._context_len = 0
        self._parents: tuple[int, ...] | None = None

    @property
    def context_len(self) -> int:
        return self._context_len

    @property
    def cache_len(self) -> int:
        """Tokens in the key/value cache, pending rows included; 0 where no layer keeps keys."""
        return rows_held(self._cache)

    @property
    def recurrent_bytes(self) -> int:
        """Bytes of the recurrent and convolution states, which every `verify` copies once."""
        return 0 if self._recurrent is None else self._recurrent.num_bytes()

    def prefill(self, ids: Int[Tensor, " prompt"]) -> TargetOutput:
        """See TargetState. Raises RequestError for ids that can't be fed."""
        assert self._parents is None, "prefill with pending rows: commit the last verify first"
        check_fed(ids, self._context_len, self._parts.spec)
        # The batch-invariant attention holds the scores of all rows at once, so it gets pieces.
        piece_len = ids.numel() if self._parts.pass_width is None else PREFILL_PIECE_LEN
        outputs: list[TargetOutput] = []
        with self._whole_or_not_at_all():
            for piece in torch.split(ids, piece_len):
                outputs.append(self._feed_prompt(piece))
                self._context_len += piece.numel()
        if self._recurrent is not None:
            self._recurrent.forget()
        features = [output.features for output in outputs if output.features is not None]
        return TargetOutput(outputs[-1].logits, torch.cat(features) if features else None)

    def verify(
        self, ids: Int[Tensor, " rows"], parents: Sequence[int] | None = None
    ) -> TargetOutput:
        """See TargetState. Raises RequestError for ids that can't be fed, ConfigError for more
        rows than the fixed pass width, UnsupportedTarget for a tree where masks can't do it.
        """
        assert self._parents is None, "verify with pending rows: commit the last verify first"
        check_fed(ids, self._context_len, self._parts.spec)
        num_rows = ids.numel()
        resolved = resolve_parents(num_rows, parents)
        padded = self._pad(ids)
        recording = nullcontext() if self._recurrent is None else self._recurrent.recording()
        with self._whole_or_not_at_all(), recording:
            if is_chain(resolved):
                output = self._feed(padded, position_ids=self._chain_positions(padded.numel()))
            else:
                output = self._feed_tree(padded, resolved)
            cut_to(self._cache, self._context_len + num_rows)
            self._parents = resolved
        features = None if output.features is None else output.features[:num_rows]
        return TargetOutput(output.logits[:num_rows], features)

    def commit(self, rows: Sequence[int]) -> None:
        """See TargetState."""
        assert self._parents is not None, "commit without a verify"
        check_path(rows, self._parents)
        keep_rows(self._cache, self._context_len, rows)
        if self._recurrent is not None:
            self._recurrent.keep_first(len(rows), len(self._parents))
        self._context_len += len(rows)
        self._parents = None

    @contextmanager
    def _whole_or_not_at_all(self) -> Generator[None]:
        """A pass that breaks off (Ctrl-C, no memory left) leaves the committed context as it was.

        Some layers have its rows by then, others have not.
        """
        context_len = self._context_len
        if self._recurrent is not None:
            self._recurrent.save()
        try:
            yield
        except BaseException:
            if context_len == 0:
                self._start()
                raise
            self._parents = None
            self._context_len = context_len
            cut_to(self._cache, context_len)
            if self._recurrent is not None:
                self._recurrent.put_back()
            raise

    def _feed_prompt(self, ids: Int[Tensor, " rows"]) -> TargetOutput:
        mixers = self._parts.mixers
        positions = self._own_positions(ids.numel())
        if mixers is None or self._context_len == 0:
            return self._feed(ids, last_only=True, position_ids=positions)
        # Plain generation feeds the prompt in one piece, with whatever limits that has.
        with mixers.in_prompt():
            return self._feed(ids, last_only=True, position_ids=positions)

    def _feed(
        self,
        ids: Int[Tensor, " rows"],
        *,
        last_only: bool = False,
        position_ids: Int[Tensor, " rows"] | None = None,
        mask: Float[Tensor, "rows keys"] | None = None,
    ) -> TargetOutput:
        device = self._parts.device
        with capture(self._parts.layers, self._taps) as captured:
            logits = self._parts.call(
                ids.to(device),
                self._cache,
                last_only=last_only,
                position_ids=None if position_ids is None else position_ids.to(device),
                mask=mask,
            )
        return TargetOutput(logits, captured.features())

    def _feed_tree(self, ids: Int[Tensor, " rows"], parents: tuple[int, ...]) -> TargetOutput:
        if self._parts.why_no_trees is not None:
            raise UnsupportedTarget(
                f"{self._parts.spec.name} can't verify trees: {self._parts.why_no_trees}"
            )
        # Pad rows hang on the context like siblings of the first row, and nobody sees them.
        padded_parents = (*parents, *(-1 for _ in range(ids.numel() - len(parents))))
        mask = torch.zeros(ids.numel(), self._context_len + ids.numel(), dtype=self._parts.dtype)
        mask.masked_fill_(
            ~visible(padded_parents, self._context_len), torch.finfo(self._parts.dtype).min
        )
        positions = torch.tensor(depths(padded_parents)) + self._context_len
        return self._feed(ids, position_ids=positions, mask=mask.to(self._parts.device))

    def _pad(self, ids: Int[Tensor, " rows"]) -> Int[Tensor, " width"]:
        width = self._parts.pass_width
        if width is None:
            return ids
        check_pass_rows(ids.numel(), width)
        return nn.functional.pad(ids, (0, width - ids.numel()), value=PAD_ID)

    def _chain_positions(self, num_rows: int) -> Int[Tensor, " rows"] | None:
        """None (the model counts itself), unless pad rows would stand behind the last position."""
        limit = self._parts.spec.max_context_len
        end = self._context_len + num_rows
        if limit is None or end <= limit or not self._parts.call.takes_positions:
            return self._own_positions(num_rows)
        return torch.arange(self._context_len, end).clamp_max(limit - 1)

    def _own_positions(self, num_rows: int) -> Int[Tensor, " rows"] | None:
        """None (the model counts itself), unless it must be told."""
        if not self._parts.call.needs_positions:
            return None
        return torch.arange(self._context_len, self._context_len + num_rows)
