"""What a target is and which engine runs it, from its configuration alone.

It reads no weights and converts nothing.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from blockdraft.builtin import builtin_models
from blockdraft.errors import ConfigError
from blockdraft.json_values import as_list
from blockdraft.native import why_not_native
from blockdraft.target.folder import read_json, refuse_drafter
from blockdraft.target.hf_config import read_model_config
from blockdraft.target.hub import parse_hub_id


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetReport:
    """Sizes are None where the configuration does not name them in the usual way.

    `why_not_native` is None where the native engine fits.
    """

    source: str
    model_type: str | None
    num_layers: int | None
    hidden_size: int | None
    num_heads: int | None
    num_kv_heads: int | None
    vocab_size: int | None
    context_limit: int | None
    engine: str
    why_not_native: str | None

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    def to_text(self) -> str:
        """Aligned lines, without a final newline."""
        engine = "native"
        if self.why_not_native is not None:
            engine = f"hf (transformers): {self.why_not_native}"
        rows = {
            "target": self.source,
            "type": self.model_type,
            "layers": self.num_layers,
            "hidden": self.hidden_size,
            "heads": f"{self.num_heads} query, {self.num_kv_heads} key/value",
            "vocabulary": self.vocab_size,
            "context": self.context_limit,
            "engine": engine,
        }
        return "\n".join(f"{name:<12}{'?' if v is None else v}" for name, v in rows.items())


def describe_target(source: str, revision: str | None) -> TargetReport:
    """Describe a folder, a hub id or a built-in name.

    Raises CheckpointError for a source without a readable configuration, ConfigError for one whose
    configuration does not exist yet.
    """
    config = read_source_config(source, revision)
    reason = why_not_native(config)

    def whole(name: str) -> int | None:
        value = cast(object, getattr(config, name, None))
        return value if isinstance(value, int) else None

    model_type = cast(object, getattr(config, "model_type", None))
    return TargetReport(
        source=source,
        model_type=model_type if isinstance(model_type, str) else None,
        num_layers=whole("num_hidden_layers"),
        hidden_size=whole("hidden_size"),
        num_heads=whole("num_attention_heads"),
        num_kv_heads=whole("num_key_value_heads"),
        vocab_size=whole("vocab_size"),
        context_limit=whole("max_position_embeddings"),
        engine="native" if reason is None else "hf",
        why_not_native=reason,
    )


def is_target_folder(source: str) -> bool:
    """Whether `source` is a folder whose configuration is that of a causal language model."""
    path = Path(source).expanduser() / "config.json"
    if not path.is_file():
        return False
    config = read_json(path)
    names = as_list(config.get("architectures"))
    return "dflash_config" not in config and any(str(n).endswith("ForCausalLM") for n in names)


def read_source_config(source: str, revision: str | None) -> object:
    path = Path(source).expanduser()
    for model in builtin_models():
        if model.name == source:
            if not model.cached:
                raise ConfigError(
                    f"{source} is not on this machine yet: `blockdraft generate` fetches it once"
                )
            path = model.path
    hub_id = None if path.exists() else parse_hub_id(source, revision)
    if revision is not None and hub_id is None:
        raise ConfigError(f"a revision ({revision}) belongs to a hub id, and {source} is none")
    if path.is_file():
        raise ConfigError(
            f"{source} is a file: it is made into a folder when it is first loaded; give a folder, "
            "a hub id or a built-in name"
        )
    if hub_id is not None:
        return read_model_config(hub_id.name, revision=hub_id.revision, from_hub=True)
    refuse_drafter(path, read_json(path / "config.json"))
    return read_model_config(path, revision=None, from_hub=False)
