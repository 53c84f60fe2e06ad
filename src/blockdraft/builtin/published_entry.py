"""`PublishedDrafter`: what is publicly known of one drafter checkpoint, and what follows from it.

It reads no files (`published.py` does) and makes no configuration (`checkpoint/published.py` does).
"""

from dataclasses import dataclass, fields
from typing import Literal

from blockdraft.errors import ConfigError

Format = Literal["v1", "v2", "speculators", "other"]
Thinking = Literal["on", "off"]

LOADED_AS_THEY_ARE: tuple[Format, ...] = ("v1", "v2")

_SHAPE = ("num_layers", "hidden_size", "intermediate_size", "num_heads", "num_kv_heads", "head_dim")
_SHAPE_V2 = ("vocab_size", "conv_kernel_size", "conv_group_size", "selector_rank")
_SHAPE_SPECULATORS = ("vocab_size", "draft_vocab_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedDrafter:
    """A row of the registry; None is "not known", which `notes` explains.

    `id` is the hub id, or a short name without a slash where that is all that is known; the same
    holds for `target`. Several entries have one id where its files were replaced: all but one of
    them are `replaced`. `weights` is False for a configuration that was published alone. The first
    `sliding_layers` of the layers have a window. `block_size` counts the anchor.
    """

    id: str
    target: str
    format: Format
    source: str
    notes: str
    mirrors: tuple[str, ...] = ()
    weights: bool = True
    revision: str | None = None
    replaced: bool = False
    block_size: int | None = None
    taps: tuple[int, ...] | None = None
    num_taps: int | None = None
    mask_token_id: int | None = None
    num_layers: int | None = None
    sliding_layers: int | None = None
    sliding_window: int | None = None
    is_causal: bool | None = None
    hidden_size: int | None = None
    intermediate_size: int | None = None
    num_heads: int | None = None
    num_kv_heads: int | None = None
    head_dim: int | None = None
    vocab_size: int | None = None
    draft_vocab_size: int | None = None
    num_target_layers: int | None = None
    max_positions: int | None = None
    rms_norm_eps: float | None = None
    rope_type: Literal["default", "yarn"] | None = None
    rope_theta: float | None = None
    rope_factor: float | None = None
    rope_original_positions: int | None = None
    rope_mscale: float | None = None
    rope_mscale_all_dim: float | None = None
    output_multiplier: float | None = None
    final_logit_softcapping: float | None = None
    input_embedding_scale: float | None = None
    conv_kernel_size: int | None = None
    conv_group_size: int | None = None
    selector_rank: int | None = None
    selector_top_k: int | None = None
    thinking: Thinking | None = None
    stated_parameters: str | None = None
    stated_size: str | None = None
    stated_tensors: int | None = None
    gated: bool | None = None
    licence: str | None = None

    def __post_init__(self) -> None:
        if self.taps is not None and self.num_taps is not None:
            raise ConfigError(f"{self.id}: num_taps is for drafters whose taps are not known")
        sliding, layers = self.sliding_layers, self.num_layers
        if sliding is not None and (layers is None or not 0 <= sliding <= layers):
            raise ConfigError(f"{self.id}: {sliding} sliding layers of {layers} can't be")
        if self.weights and "/" not in self.id + self.target:
            raise ConfigError(f"{self.id}: neither its hub id nor that of its target is known")

    @property
    def tap_count(self) -> int | None:
        """How many target layers it reads."""
        return self.num_taps if self.taps is None else len(self.taps)

    @property
    def has_hub_id(self) -> bool:
        """Whether it can be asked of the hub."""
        return self.weights and "/" in self.id

    @property
    def is_loadable(self) -> bool:
        """Whether `--drafter` takes its id and loads the files that the hub serves now."""
        return self.has_hub_id and not self.replaced and self.format in LOADED_AS_THEY_ARE

    @property
    def missing_shape(self) -> tuple[str, ...]:
        """The fields without which the shapes of its tensors are not known; empty = known."""
        names = (*_SHAPE, "tap_count")
        if self.format == "v2":
            names += _SHAPE_V2
        if self.format == "speculators":
            names += _SHAPE_SPECULATORS
        return tuple(name for name in names if getattr(self, name) is None)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Fields of the loader's configuration that are not known, besides those of the shape."""
        names = (
            "block_size",
            "taps",
            "mask_token_id",
            "sliding_layers",
            "vocab_size",
            "rope_theta",
        )
        names += ("max_positions", "rms_norm_eps")
        if self.sliding_layers:
            names += ("sliding_window",)
        if self.format == "v2":
            names += ("selector_top_k", "is_causal")
        if self.rope_type == "yarn":
            names += ("rope_factor", "rope_original_positions")
        return tuple(n for n in names if getattr(self, n) is None and n not in self.missing_shape)

    @property
    def num_parameters(self) -> int | None:
        """Parameters that follow from the shape; of speculators files, embedding and head too."""
        if self.missing_shape:
            return None
        hidden, head_dim = self._size("hidden_size"), self._size("head_dim")
        heads = 2 * self._size("num_heads") + 2 * self._size("num_kv_heads")
        layer = hidden * head_dim * heads + 3 * hidden * self._size("intermediate_size")
        layer += 2 * hidden + 2 * head_dim
        outside = self._size("tap_count") * hidden * hidden + 2 * hidden
        if self.format == "v2":
            side = self._size("conv_kernel_size") * hidden
            side += side * hidden // self._size("conv_group_size")
            layer += 2 * 2 * side
            outside += self._size("selector_rank") * (hidden + 2 * self._size("vocab_size"))
        if self.format == "speculators":
            outside += hidden * (self._size("vocab_size") + self._size("draft_vocab_size"))
        return self._size("num_layers") * layer + outside

    @property
    def layers_text(self) -> str | None:
        """Like "5 sliding-4096 + 1 full"; None when the depth is not known."""
        layers, sliding = self.num_layers, self.sliding_layers
        if layers is None:
            return None
        if sliding is None:
            return f"{layers} of unknown kind"
        window = "?" if self.sliding_window is None else str(self.sliding_window)
        kinds = [(sliding, f"sliding-{window}"), (layers - sliding, "full")]
        return " + ".join(f"{number} {kind}" for number, kind in kinds if number)

    @property
    def size_text(self) -> str:
        """Parameters and file size in words."""
        number = self.num_parameters
        parts: list[str] = []
        if number is not None:
            parts.append(f"{number / 1e9:.2f} B parameters")
        elif self.stated_parameters is not None:
            parts.append(f"{in_billions(self.stated_parameters):.2f} B parameters")
        if self.stated_size is not None:
            parts.append(self.stated_size)
        elif number is not None:
            parts.append(f"about {2 * number / 2**30:.2f} GiB in bfloat16")
        return ", ".join(parts) or "size not known"

    def as_json(self) -> dict[str, object]:
        """Every field, None where not known, and what follows from them."""
        values: dict[str, object] = {f.name: getattr(self, f.name) for f in fields(self)}
        return values | {
            "layers": self.layers_text,
            "num_parameters": self.num_parameters,
            "missing_shape": self.missing_shape,
            "loadable": self.is_loadable,
        }

    def _size(self, name: str) -> int:
        value: object = getattr(self, name)
        assert isinstance(value, int), f"{self.id}: {name} is not known"
        return value


def in_billions(stated: str) -> float:
    """A stated number of parameters, "0.54 B" or plain digits, in units of 1e9."""
    number, _, unit = stated.partition(" ")
    return float(number) if unit == "B" else float(number) / 1e9
