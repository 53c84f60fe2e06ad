"""`NativeTarget`: the native decoder as a `TargetModel`, made from a loaded transformers model.

One state owns one pool here; the engine drives the same model over a shared pool instead.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from blockdraft.decoding.interfaces import LMHead, TargetOutput, TargetSpec
from blockdraft.errors import UnsupportedTarget
from blockdraft.native.config import read_native_config, why_not_native
from blockdraft.native.linear import PLAIN, dense_linear, only
from blockdraft.native.model import NativeModel
from blockdraft.native.quantized import Quantize, quantized_linear
from blockdraft.native.segments import Segment
from blockdraft.native.tuning import Clock, fixed_kernel, measure_plan
from blockdraft.native.weights import take_weights
from blockdraft.target.hf import PASS_ERRORS, check_pass_width, pass_failure
from blockdraft.target.rows import (
    check_fed,
    check_pass_rows,
    check_path,
    check_taps,
    is_chain,
    resolve_parents,
)
from blockdraft.target.shape import read_shape
from blockdraft.target.spec import read_spec
from blockdraft.target.support import (
    trial_ids,
    try_invariance,
    try_rollback,
    try_tree,
)
from blockdraft.target.text import TextCodec

PREFILL_PIECE_LEN = 512
"""Rows of one prefill pass."""

_FIRST_ROWS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeOptions:
    """How the native decoder computes. `batch_invariant` is a number of rows a pass.

    `tuned`: the fastest kernels are chosen by timing them, so two loads may round differently.
    """

    batch_invariant: int | None = None
    quantize: Quantize | None = None
    tuned: bool = True


class NativeTarget:
    """A dense Llama-like decoder in our own code; `open` gives states that share its weights."""

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        name: str | None = None,
        text: TextCodec | None = None,
        options: NativeOptions | None = None,
        clock: Clock = time.perf_counter,
    ) -> None:
        """Takes the weights out of `model`, which is unusable afterwards.

        Raises UnsupportedTarget when the model is of another shape, or when its logits differ
        from transformers' own on a trial; ConfigError for options that make no sense.
        """
        options = options or NativeOptions()
        self.text = text
        self.quantize = options.quantize
        name = name or type(model).__name__
        reason = why_not_native(model.config)
        if reason is not None:
            raise UnsupportedTarget(f"{name} does not fit the native engine: {reason}")
        check_pass_width(options.batch_invariant, None)
        self.spec = read_spec(name, model)
        self.shape = read_shape(model.config)
        config = read_native_config(model.config)
        ids = trial_ids(self.spec.vocab_size)
        try:
            with torch.no_grad():
                device = model.get_parameter("lm_head.weight").device
                reference: Tensor = model(torch.tensor([ids], device=device)).logits[0].clone()
        except PASS_ERRORS as error:
            raise pass_failure(name, model.dtype, error) from error
        make = dense_linear
        if options.quantize is not None:
            make = partial(quantized_linear, bits=options.quantize)
        weights = take_weights(model.eval(), config, make)
        for linear in weights.linears:
            linear.prepare(only(PLAIN), final=False)
        self.model = NativeModel(config, weights, only(PLAIN))
        self._try_out(reference if options.quantize is None else self._own_logits(ids))
        if options.tuned and options.batch_invariant is None:
            on_cpu = self.device.type == "cpu"
            plan = measure_plan(weights.linears, self.dtype, clock, on_cpu=on_cpu)
        else:
            # Kernels round differently, so the same bits in every run need the same kernel.
            plan = only(fixed_kernel(weights.linears))
        for linear in weights.linears:
            linear.prepare(plan)
        self.model = NativeModel(config, weights, plan, invariant_rows=options.batch_invariant)
        if options.batch_invariant is not None:
            try_invariance(name, self.open, options.batch_invariant)

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def batch_invariant(self) -> int | None:
        return self.model.invariant_rows

    def embed(self, ids: Int[Tensor, "*rows"]) -> Float[Tensor, "*rows hidden"]:
        return functional.embedding(ids.to(self.device), self.model.weights.embedding)

    def head(self, vocab_ids: Int[Tensor, " subset"] | None = None) -> LMHead:
        weights = self.model.weights
        if vocab_ids is None:
            linear = weights.head
        else:
            rows = vocab_ids.to(self.device)
            bias = weights.head_bias
            linear = dense_linear(weights.head_weight[rows], None if bias is None else bias[rows])
            linear.prepare(only(linear.kernels[-1]))

        def head(hidden: Float[Tensor, "*rows hidden"]) -> Float[Tensor, "*rows vocab"]:
            flat = hidden.to(self.dtype).reshape(-1, hidden.shape[-1])
            return linear(flat).view(*hidden.shape[:-1], linear.num_out)

        return head

    def open(self, taps: Sequence[int] = ()) -> "NativeState":
        """Raises ConfigError for a tap that is no layer of this model."""
        check_taps(taps, self.spec)
        return NativeState(self.model, self.spec, tuple(taps))

    def _own_logits(self, ids: Sequence[int]) -> Float[Tensor, "rows vocab"]:
        """Without a cache: what quantized weights must be compared with."""
        pool = self.model.new_pool(len(ids))
        return self.model.forward(torch.tensor(ids), [Segment(0, 0, len(ids))], pool).logits

    def _try_out(self, reference: Float[Tensor, "5 vocab"]) -> None:
        """Compare with the original on five tokens, through cache, roll back and a tree."""
        state = self.open()
        try_rollback(self.spec.name, state, reference)
        if not try_tree(state, reference):
            raise UnsupportedTarget(f"{self.spec.name}: branches of a tree are not kept apart")


class NativeState:
    """A `TargetState` on a pool of its own, which grows by doubling.

    pool: [0, context_len) committed | [context_len, context_len + pending) rows of the last verify
    """

    def __init__(self, model: NativeModel, spec: TargetSpec, taps: tuple[int, ...]) -> None:
        self._model = model
        self._spec = spec
        self._taps = taps
        self._pool = model.new_pool(_FIRST_ROWS)
        self._context_len = 0
        self._parents: tuple[int, ...] | None = None

    @property
    def context_len(self) -> int:
        return self._context_len

    def prefill(self, ids: Int[Tensor, " prompt"]) -> TargetOutput:
        """See TargetState. Raises RequestError for ids that can't be fed."""
        assert self._parents is None, "prefill with pending rows: commit the last verify first"
        check_fed(ids, self._context_len, self._spec)
        self._pool.grow(self._context_len + ids.numel())
        features: list[Tensor] = []
        logits = torch.empty(0)
        for piece in torch.split(ids, PREFILL_PIECE_LEN):
            segment = Segment(0, self._context_len, piece.numel())
            output = self._model.forward(
                piece, [segment], self._pool, taps=self._taps, asked=[piece.numel() - 1]
            )
            logits = output.logits
            if output.features is not None:
                features.append(output.features)
            self._context_len += piece.numel()
        return TargetOutput(logits, torch.cat(features) if features else None)

    def verify(
        self, ids: Int[Tensor, " rows"], parents: Sequence[int] | None = None
    ) -> TargetOutput:
        """See TargetState. Raises RequestError for ids that can't be fed, ConfigError for more
        rows than a batch-invariant pass has.
        """
        assert self._parents is None, "verify with pending rows: commit the last verify first"
        check_fed(ids, self._context_len, self._spec)
        width = self._model.invariant_rows
        if width is not None:
            check_pass_rows(ids.numel(), width)
        resolved = resolve_parents(ids.numel(), parents)
        tree = None if is_chain(resolved) else resolved
        self._pool.grow(self._context_len + ids.numel())
        segment = Segment(0, self._context_len, ids.numel(), tree)
        output = self._model.forward(ids, [segment], self._pool, taps=self._taps)
        self._parents = resolved
        return TargetOutput(output.logits, output.features)

    def commit(self, rows: Sequence[int]) -> None:
        """See TargetState."""
        assert self._parents is not None, "commit without a verify"
        check_path(rows, self._parents)
        self._pool.gather(self._context_len, rows)
        self._context_len += len(rows)
        self._parents = None
