"""`HFTarget`: any decoder-only Hugging Face transformers model as a `TargetModel`.

It takes a loaded model; finding and reading weights is the duty of `load.py`. `Any` is tolerated
in this file because transformers is untyped.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from blockdraft.decoding.interfaces import LMHead, TargetSpec
from blockdraft.errors import ConfigError, UnsupportedTarget
from blockdraft.target.capture import capture, find_decoder_layers
from blockdraft.target.hf_attention import register_chunked_attention
from blockdraft.target.hf_call import ModelCall
from blockdraft.target.hf_state import HFParts, HFState
from blockdraft.target.quiet import first_line
from blockdraft.target.reading import Readout, last_hidden
from blockdraft.target.rows import check_fed, check_taps
from blockdraft.target.shape import read_shape
from blockdraft.target.support import (
    refuse,
    trial_ids,
    try_attention,
    try_invariance,
    try_rollback,
    try_tree,
)
from blockdraft.target.text import TextCodec

# What a forward pass is known to raise where a family or a dtype is not supported.
PASS_ERRORS = (RuntimeError, TypeError, ValueError, KeyError, AttributeError, IndexError)
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
        a trial of five tokens; ConfigError for a `batch_invariant` that makes no sense.
        """
        check_pass_width(batch_invariant, MOST_PASS_ROWS)
        self.text = text
        self._model: Any = model.eval().requires_grad_(False)
        name = name or type(model).__name__
        refuse_family(name, model)
        self.spec = read_spec(name, model)
        self.shape = read_shape(model.config)
        context = self.spec.max_context_len
        # One token comes before the first pass.
        check_pass_width(batch_invariant, None if context is None else context - 1)
        if embedding_weight(model).is_meta:
            raise ConfigError(NO_META)
        try:
            self._parts = self._try_out(name, batch_invariant)
        except PASS_ERRORS as error:
            raise UnsupportedTarget(
                f"{name} fails in its first pass in {self._model.dtype} "
                f"({type(error).__name__}: {first_line(error)}): try another dtype"
            ) from error

    @property
    def dtype(self) -> torch.dtype:
        return self._parts.dtype

    @property
    def device(self) -> torch.device:
        return self._parts.device

    @property
    def batch_invariant(self) -> int | None:
        return self._parts.pass_width

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
        """Raises ConfigError for a tap that is no layer of this model."""
        check_taps(taps, self.spec)
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

    def _try_out(self, name: str, batch_invariant: int | None) -> HFParts:
        weight = embedding_weight(self._model)
        call = ModelCall(self._model)
        *ids, _ = trial_ids(self.spec.vocab_size)
        reference = call(torch.tensor(ids, device=weight.device), cache=None)
        if batch_invariant is not None:
            expected = reference
            use_chunked_attention(name, self._model)
            reference = call(torch.tensor(ids, device=weight.device), cache=None)
            try_attention(name, reference, expected)

        def parts(why_no_trees: str | None) -> HFParts:
            return HFParts(
                call=call,
                layers=find_decoder_layers(self._model.base_model, self.spec.num_layers),
                spec=self.spec,
                dtype=weight.dtype,
                device=weight.device,
                pass_width=batch_invariant,
                why_no_trees=why_no_trees,
            )

        trial = HFState(parts(why_no_trees=None), taps=())
        try_rollback(name, trial, reference)
        if batch_invariant is not None:
            try_invariance(name, lambda: HFState(parts(None), taps=()), batch_invariant)
        why_no_trees = refuse_tree(self._model)
        if why_no_trees is None and not (call.takes_positions and try_tree(trial, reference)):
            why_no_trees = "it does not follow a given attention mask"
        return parts(why_no_trees)


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


def refuse_family(name: str, model: Any) -> None:
    """Raise UnsupportedTarget for families whose state can't be rolled back, naming the reason."""
    config: Any = model.config
    if getattr(config, "is_encoder_decoder", False):
        raise refuse(name, "it is an encoder-decoder model")
    if getattr(model, "_is_stateful", False):
        raise refuse(name, "it keeps a recurrent state (Mamba, linear attention or a hybrid)")
    if config.get_text_config(decoder=True) is not config:
        raise refuse(
            name, "it is a multimodal wrapper, whose positions are not those of plain text"
        )
    if _mentions(getattr(config, "rope_parameters", None), "mrope_section"):
        raise refuse(name, "it has multimodal rotary positions (M-RoPE)")
    for layer in cache_layers(name, config):
        if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer):
            raise refuse(
                name,
                f"it needs a cache of kind {type(layer).__name__}, which can't be cut back here",
            )


def refuse_tree(model: Any) -> str | None:
    """Why this model can't be given a tree mask; None when it may be tried."""
    config: Any = model.config
    if any(type(layer) is not DynamicLayer for layer in cache_layers(type(model).__name__, config)):
        return "its sliding-window layers need a mask of their own"
    if config._attn_implementation not in ("eager", "sdpa", register_chunked_attention()):
        return f"attention {config._attn_implementation} takes no mask (load it with attn='sdpa')"
    return None


def cache_layers(name: str, config: Any) -> list[Any]:
    """The cache layers that transformers itself would make for this configuration."""
    try:
        return list(DynamicCache(config=config).layers)
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise refuse(name, f"its cache can't be told from its configuration ({error!r})") from error


def read_spec(name: str, model: Any) -> TargetSpec:
    """Sizes from the weights, limits from the configurations."""
    output: Any = model.get_output_embeddings()
    if not isinstance(getattr(output, "weight", None), Tensor):
        raise UnsupportedTarget(f"{name} has no language-model head: load a causal language model")
    config: Any = model.config
    hidden_size = int(config.hidden_size)
    embedding = embedding_weight(model)
    if embedding.shape[1] != hidden_size or output.weight.shape[1] != hidden_size:
        raise UnsupportedTarget(f"{name} projects its embeddings, so a drafter can't share them")
    if len(embedding) != len(output.weight):
        raise UnsupportedTarget(
            f"{name} embeds {len(embedding)} tokens but predicts {len(output.weight)}"
        )
    return TargetSpec(
        name=name,
        vocab_size=len(embedding),
        hidden_size=hidden_size,
        num_layers=int(config.num_hidden_layers),
        max_context_len=context_limit(config),
        stop_ids=stop_ids(model),
    )


def embedding_weight(model: Any) -> Float[Tensor, "vocab hidden"]:
    embedding: Any = model.get_input_embeddings()
    return embedding.weight


def stop_ids(model: Any) -> tuple[int, ...]:
    """End-of-sequence ids of the generation configuration, else of the model's own."""
    for config in (model.generation_config, model.config):
        ids: Any = getattr(config, "eos_token_id", None)
        if ids is not None:
            return tuple(cast(list[int], ids)) if isinstance(ids, list) else (int(ids),)
    return ()


def context_limit(config: Any) -> int | None:
    """The longest context, None when the configuration names none.

    LongRoPE switches its tables at the original length, and would do so earlier in a wide pass
    than in a narrow one; the limit is set there, where nothing has been switched yet.
    """
    limit: Any = getattr(config, "max_position_embeddings", None)
    rope: Any = getattr(config, "rope_parameters", None)
    if _mentions(rope, "longrope"):
        limit = rope.get("original_max_position_embeddings") or getattr(
            config, "original_max_position_embeddings", limit
        )
    return None if limit is None else int(limit)


def use_chunked_attention(name: str, model: Any) -> None:
    """Switch `model` to `hf_attention.chunked_attention`; ConfigError where it has no such seam."""
    if not getattr(model, "_supports_attention_backend", False):
        raise ConfigError(
            f"{type(model).__name__} has its own attention code, so {name} can't be made "
            "batch-invariant: leave batch_invariant out"
        )
    model.set_attn_implementation(register_chunked_attention())


def _mentions(value: object, word: str) -> bool:
    """Whether nested dictionaries hold `word` anywhere, as a key or a value."""
    if not isinstance(value, dict):
        return value == word
    parts = cast(dict[str, object], value)
    return word in parts or any(_mentions(part, word) for part in parts.values())
