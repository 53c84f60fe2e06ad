"""Verification passes of fixed shapes: what CUDA graphs and torch.compile need.

The rows of `NativeModel.forward`, padded to [batch, width] with keys gathered to a fixed number, so
that one recorded pass serves all steps of a shape. Same weights, same tokens; on the CPU the plain
`forward` is faster, since it copies no keys. Prompts are not run here.

Pad rows and pad requests write to the pool's scratch row and see one key only.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from blockdraft.native.model import NativeModel, PassOutput
from blockdraft.native.pool import TokenPool
from blockdraft.native.segments import Segment
from blockdraft.native.tuning import best_seconds

_LOGGER = logging.getLogger("blockdraft")

FEWEST_KEYS = 256
MOST_WIDTH = 32


class StaticShape(NamedTuple):
    """Requests, rows a request, keys a request."""

    batch: int
    width: int
    keys: int


class StaticInputs(NamedTuple):
    """The tensors that change between passes of one shape."""

    ids: Int[Tensor, "batch width"]
    positions: Int[Tensor, "batch width"]
    written: Int[Tensor, "batch width"]
    read: Int[Tensor, "batch keys"]
    mask: Float[Tensor, "batch 1 width keys"]


class StaticOutputs(NamedTuple):
    """Logits and features of all rows, pads included (features empty without taps)."""

    logits: Float[Tensor, "rows vocab"]
    features: Float[Tensor, "rows feature"]


Recorded = Callable[[StaticInputs], StaticOutputs]
"""A pass of one shape, ready to run again."""


class StaticPasses:
    """Runs chains of verification in fixed shapes, each recorded when it first occurs.

    On CUDA a shape is recorded as a CUDA graph. With `compiled`, it is compiled by torch.compile
    first (its own disk cache keeps the result). A compiler that fails, or whose passes are slower
    than `NativeModel.forward`, is reported once, and passes go on without it.
    """

    def __init__(
        self,
        model: NativeModel,
        pool: TokenPool,
        taps: Sequence[int],
        *,
        compiled: bool,
        insists: bool = False,
    ) -> None:
        """`insists`: run fixed shapes also where they are slower, to test or to measure them."""
        self._model = model
        self._pool = pool
        self._taps = tuple(taps)
        self._compiled = compiled
        self._insists = insists
        self._recorded: dict[StaticShape, Recorded] = {}
        # A recorded pass keeps reading this very table, so it must never have to grow.
        model.prepare_positions(pool.num_rows)

    def run(self, ids: Int[Tensor, " fed"], segments: Sequence[Segment]) -> PassOutput | None:
        """One pass; None for what `NativeModel.forward` has to run: trees, wide rows, or everything
        on a CPU without a useful compiler.
        """
        width = max(segment.num_rows for segment in segments)
        on_cuda = self._model.device.type == "cuda"
        if not (on_cuda or self._compiled or self._insists) or width > MOST_WIDTH:
            return None
        if any(segment.parents is not None for segment in segments):
            return None
        longest = max(segment.end for segment in segments)
        shape = StaticShape(
            _next_power(len(segments)), width, max(FEWEST_KEYS, _next_power(longest))
        )
        inputs = self._inputs(ids, segments, shape)
        run = self._recorded.get(shape)
        if run is None:
            run = self._record(shape, inputs, lambda: self._run_plainly(ids, segments))
            if run is None:
                return None
            self._recorded[shape] = run
        outputs = run(inputs)
        rows = [
            s * width + i for s, segment in enumerate(segments) for i in range(segment.num_rows)
        ]
        # Copies, since a recorded pass writes its outputs into the same memory each time.
        index = torch.tensor(rows, device=self._model.device)
        features = outputs.features[index] if self._taps else None
        return PassOutput(outputs.logits[index], features)

    def _inputs(
        self, ids: Int[Tensor, " fed"], segments: Sequence[Segment], shape: StaticShape
    ) -> StaticInputs:
        scratch = self._pool.num_rows - 1
        batch, width, keys = shape
        all_ids = torch.zeros(batch, width, dtype=torch.long)
        positions = torch.zeros(batch, width, dtype=torch.long)
        written = torch.full((batch, width), scratch)
        read = torch.full((batch, keys), scratch)
        seen = torch.ones(batch, width, dtype=torch.long)
        start = 0
        for row, segment in enumerate(segments):
            num_rows = segment.num_rows
            here = torch.arange(segment.context_len, segment.end)
            all_ids[row, :num_rows] = ids[start : start + num_rows]
            positions[row, :num_rows] = here
            written[row, :num_rows] = segment.base + here
            # Masked keys are its own, too: 0 * NaN is NaN, so one request's could spoil another.
            read[row] = segment.base + torch.arange(keys).clamp_max(segment.end - 1)
            seen[row, :num_rows] = here + 1
            start += num_rows
        sees = torch.arange(keys) < seen[..., None]
        mask = torch.zeros(batch, 1, width, keys, dtype=self._model.dtype)
        mask.masked_fill_(~sees[:, None], -torch.inf)
        made = StaticInputs(all_ids, positions, written, read, mask)
        return StaticInputs(*(tensor.to(self._model.device) for tensor in made))

    def _run_plainly(self, ids: Int[Tensor, " fed"], segments: Sequence[Segment]) -> None:
        self._model.forward(ids, segments, self._pool, taps=self._taps)

    def _record(
        self, shape: StaticShape, inputs: StaticInputs, plainly: Callable[[], None]
    ) -> Recorded | None:
        run: Recorded | None = self._compile(shape, inputs) if self._compiled else self._compute
        if self._model.device.type == "cuda":
            return record_graph(self._compute if run is None else run, inputs)
        if self._insists:
            return self._compute if run is None else run
        if run is None:
            return None
        compiled_ms = best_seconds(lambda: run(inputs), time.perf_counter, 3) * 1e3
        plain_ms = best_seconds(plainly, time.perf_counter, 3) * 1e3
        if compiled_ms > plain_ms:
            self._compiled = False
            _LOGGER.warning(
                "compiled passes are slower here (%.1f ms, without the compiler %.1f ms); "
                "going on without it",
                compiled_ms,
                plain_ms,
            )
            return None
        return run

    def _compile(self, shape: StaticShape, inputs: StaticInputs) -> Recorded | None:
        """The compiled pass, tried once; None when the compiler fails."""
        _LOGGER.info(
            "compiling passes of %d requests, %d rows, %d keys (once; torch keeps the result)",
            *shape,
        )
        compiled: Recorded = torch.compile(self._compute, dynamic=False)
        try:
            compiled(inputs)
        except Exception as error:  # noqa: BLE001  a compiler may raise anything
            self._compiled = False
            first_line = str(error).strip().split("\n")[0][:200]
            kind = type(error).__name__
            _LOGGER.warning("torch.compile failed (%s: %s); going on without it", kind, first_line)
            return None
        return compiled

    @torch.no_grad()
    def _compute(self, inputs: StaticInputs) -> StaticOutputs:
        model, config = self._model, self._model.config
        batch, width = inputs.ids.shape
        by = model.rotation(inputs.positions.flatten())
        hidden = functional.embedding(inputs.ids.flatten(), model.weights.embedding)
        masks = {window: self._mask(inputs, window) for window in dict.fromkeys(config.windows)}
        written, read = inputs.written.flatten(), inputs.read.flatten()
        tapped: dict[int, Tensor] = {}
        for layer_idx, layer in enumerate(model.weights.layers):
            kept = self._pool.layer(layer_idx)
            heads = model.heads(layer, hidden, by)
            new = heads[:, config.num_heads :]
            new = new.reshape(-1, 2, config.num_kv_heads, config.head_dim).permute(1, 2, 0, 3)
            kept.index_copy_(2, written, new)
            # [2, kv, batch * keys, dim] -> keys and values, each [batch, kv, keys, dim]
            gathered = kept.index_select(2, read).view(
                2, config.num_kv_heads, batch, -1, config.head_dim
            )
            keys, values = gathered.transpose(1, 2).unbind(0)
            queries = heads[:, : config.num_heads].view(
                batch, width, config.num_kv_heads, config.num_groups, config.head_dim
            )
            folded = queries.permute(0, 2, 3, 1, 4).flatten(2, 3)
            attended = functional.scaled_dot_product_attention(
                folded, keys, values, attn_mask=masks[config.windows[layer_idx]]
            )
            attended = attended.view(
                batch, config.num_kv_heads, config.num_groups, width, config.head_dim
            )
            attended = attended.permute(0, 3, 1, 2, 4).reshape(batch * width, -1)
            hidden = layer.out(attended, hidden)
            hidden = layer.feed_forward(hidden)
            if layer_idx in self._taps:
                tapped[layer_idx] = hidden
        logits = model.weights.head(model.weights.norm(hidden))
        if not self._taps:
            return StaticOutputs(logits, hidden[:, :0])
        return StaticOutputs(logits, torch.cat([tapped[tap] for tap in self._taps], dim=-1))

    def _mask(self, inputs: StaticInputs, window: int | None) -> Float[Tensor, "b 1 queries keys"]:
        mask = inputs.mask
        if window is not None:
            columns = torch.arange(mask.shape[-1], device=mask.device)
            far = columns <= inputs.positions[:, None, :, None] - window
            mask = mask.masked_fill(far, -torch.inf)
        return mask.repeat(1, 1, self._model.config.num_groups, 1)


def record_graph(run: Recorded, example: StaticInputs) -> Recorded:
    """`run` as a CUDA graph over inputs of the shape of `example`."""
    held = StaticInputs(*(tensor.clone() for tensor in example))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):  # kernels choose their workspaces outside the recording
            run(held)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = run(held)

    def replay(inputs: StaticInputs) -> StaticOutputs:
        for mine, new in zip(held, inputs, strict=True):
            mine.copy_(new)
        graph.replay()
        return outputs

    return replay


def _next_power(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()
