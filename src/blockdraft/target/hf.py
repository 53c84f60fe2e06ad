"""`HFTarget`: any decoder-only Hugging Face transformers model as a `TargetModel`.

It takes a loaded model; finding and reading weights is the duty of `load.py`. `Any` is tolerated
in this file because transformers is untyped.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from blockdraft.decoding.interfaces import LMHead
from blockdraft.errors import ConfigError, UnsupportedTarget
from blockdraft.target.capture import capture
from blockdraft.target.families import read_family, why_not_invariant
from blockdraft.target.hf_state import HFParts, HFState
from blockdraft.target.quiet import first_line
from blockdraft.target.reading import Readout, last_hidden
from blockdraft.target.rows import check_fed, check_taps
from blockdraft.target.shape import read_shape
from blockdraft.target.spec import embedding_weight, read_spec
from blockdraft.target.text import TextCodec
from blockdraft.target.tryout import try_out

# What a forward pass is known to raise where a family or a dtype is not supported.
PASS_ERRORS = (
    RuntimeError,
    TypeError,
    ValueError,
    KeyError,
    AttributeError,
    IndexError,
    ArithmeticError,
)
PASS_ADVICE = "check its config.json, or try another dtype"
MOST_PASS_ROWS = 4096
NO_META = "device meta holds no weights, so nothing can be computed on it: use cpu or cuda"


class HFTarget:
    """A frozen transformers model; `open` gives independent states that share its weights.

    `batch_invariant` = n pads every verify pass to n rows and uses an attention that does not
    depend on the number of keys, so that a token's logits are the same bits whatever is verified
    with it: plain decoding and drafted decoding then agree exactly in any dtype.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        name: str | None = None,
        text: TextCodec | None = None,
        batch_invariant: int | None = None,
    ) -> None:
        """Freezes `model` and puts it in eval mode.

        Raises UnsupportedTarget for a model that can't be rolled back, found by its family or by
        a trial of a few tokens; ConfigError for a `batch_invariant` that makes no sense.
        """
        check_pass_width(batch_invariant, MOST_PASS_ROWS)
        self.text = text
        self._model: Any = model.eval().requires_grad_(False)
        name = name or type(model).__name__
        self.traits = traits = read_family(name, model)
        reason = None if batch_invariant is None else why_not_invariant(traits)
        if reason is not None:
            raise UnsupportedTarget(
                f"{name} can't be made batch-invariant: {reason}. Load it without batch_invariant"
            )
        self.spec = read_spec(name, model)
        self.shape = read_shape(model.config)
        context = self.spec.max_context_len
        # One token comes before the first pass.
        check_pass_width(batch_invariant, None if context is None else context - 1)
        if embedding_weight(model).is_meta:
            raise ConfigError(NO_META)
        try:
            self._parts: HFParts = try_out(self._model, self.spec, traits, batch_invariant)
        except PASS_ERRORS as error:
            advice = PASS_ADVICE
            if not traits.keeps_keys:
                advice = (
                    "it has no attention layer, by whose keys the code of hybrid families counts "
                    f"tokens; use a model that has one, or {advice}"
                )
            raise pass_failure(name, self._model.dtype, error, advice) from error

    @property
    def dtype(self) -> torch.dtype:
        return self._parts.dtype

    @property
    def device(self) -> torch.device:
        return self._parts.device

    @property
    def batch_invariant(self) -> int | None:
        return self._parts.pass_width

    @property
    def feeds_by_rows(self) -> bool:
        """Whether the recurrent layers take the rows of a pass one by one (see `mixing.py`)."""
        return self._parts.mixers is not None and self._parts.mixers.by_rows

    def embed(self, ids: Int[Tensor, "*rows"]) -> Float[Tensor, "*rows hidden"]:
        # Not by calling the module: Gemma's multiplies its rows by sqrt(hidden) on the way out.
        return nn.functional.embedding(ids.to(self.device), embedding_weight(self._model))

    def head(self, vocab_ids: Int[Tensor, " subset"] | None = None) -> LMHead:
        output: Any = self._model.get_output_embeddings()
        weight: Tensor = output.weight
        bias: Tensor | None = getattr(output, "bias", None)
        if vocab_ids is not None:
            rows = vocab_ids.to(weight.device)
            weight, bias = weight[rows], None if bias is None else bias[rows]

        def head(hidden: Float[Tensor, "*rows hidden"]) -> Float[Tensor, "*rows vocab"]:
            return nn.functional.linear(hidden.to(weight.dtype), weight, bias)

        return head

    def layer_tensors(self) -> dict[str, Tensor]:
        """The model's own tensors under their names, for drafters that start from its layers."""
        return dict(self._model.state_dict())

    def open(self, taps: Sequence[int] = ()) -> HFState:
        """Raises ConfigError for a tap that is no layer of this model, UnsupportedTarget where its
        layers can't be tapped.
        """
        check_taps(taps, self.spec)
        if taps and self._parts.why_no_taps is not None:
            raise UnsupportedTarget(f"{self.spec.name}: {self._parts.why_no_taps}")
        return HFState(self._parts, tuple(taps))

    def read(self, ids: Int[Tensor, " tokens"], taps: Sequence[int]) -> Readout:
        """The states of one whole document in one pass, without a cache; see `ReadableTarget`.

        Raises RequestError for ids that can't be fed, ConfigError for a tap that is no layer.
        """
        check_taps(taps, self.spec)
        check_fed(ids, 0, self.spec)
        parts = self._parts
        with capture(parts.layers, taps) as captured, last_hidden(self._model.base_model) as last:
            parts.call(ids.to(parts.device), cache=None, last_only=True)
        final = last.states(self.spec.name)
        features = captured.features()
        return Readout(final[:, :0] if features is None else features, final)


def pass_failure(
    name: str, dtype: torch.dtype, error: Exception, advice: str = PASS_ADVICE
) -> UnsupportedTarget:
    """The error for a model that computes nothing, because of what transformers raised."""
    return UnsupportedTarget(
        f"{name} fails in its first pass in {dtype} "
        f"({type(error).__name__}: {first_line(error)}): {advice}"
    )


def check_pass_width(batch_invariant: int | None, most: int | None) -> None:
    """Raise ConfigError for a number of rows that is too small, or above `most` (if known)."""
    if batch_invariant is None:
        return
    if batch_invariant < 3 or (most is not None and batch_invariant > most):
        limit = "" if most is None else f" and at most {most}"
        raise ConfigError(
            f"batch_invariant is the rows of a pass, so it must be at least 3{limit}, "
            f"not {batch_invariant}: use the drafter's block size"
        )
