"""Whose answers these are: what a folder recorded of its target, against the one trained for.

A drafter learns to say what its target would say, so answers of another one teach it the wrong
words. Names and hashes only; whether the answers read well is not looked at.
"""

from collections.abc import Mapping

from blockdraft.api import TextTarget
from blockdraft.data.rendering import Renderer, RenderingConfig
from blockdraft.errors import ConfigError
from blockdraft.json_values import as_object
from blockdraft.target.fingerprint import fingerprint_of

Manifest = Mapping[str, object]


def check_origin(folder: str, manifest: Manifest, target: TextTarget, name: str) -> None:
    """Raise ConfigError unless the answers in `folder` can be those of `target`, called `name`."""
    difference = other_target(manifest, target, name)
    if difference is not None:
        raise ConfigError(
            f"the answers in {folder} are not those of target {name}: {difference}. Make them with "
            f"`blockdraft data regenerate --target {name}`, or set data.accept_other_target = true "
            "if it writes the same (the same model under another name, or quantized)"
        )


def other_target(manifest: Manifest, target: TextTarget, name: str) -> str | None:
    """What says that the answers of `manifest` are another target's, in words; None where nothing
    does. A folder that recorded nothing (no manifest) is not judged."""
    return _other_weights(manifest, target, name) or _other_template(manifest, target)


def _other_weights(manifest: Manifest, target: TextTarget, name: str) -> str | None:
    """By fingerprint where one was recorded, else by name. Endpoints name models as they like."""
    source, recorded = as_object(manifest.get("source")), as_object(manifest.get("notes"))
    writer = source.get("target")
    fingerprint, own = recorded.get("target_fingerprint"), fingerprint_of(target)
    if isinstance(fingerprint, str):
        if fingerprint == own:
            return None
        return f"target {writer} wrote them (fingerprint {fingerprint}, not {own})"
    if not isinstance(writer, str) or _last_part(writer) == _last_part(name):
        return None
    return f"target {writer} wrote them"


def _other_template(manifest: Manifest, target: TextTarget) -> str | None:
    template = as_object(manifest.get("template"))
    recorded, codec = template.get("template_sha256"), target.text
    if not isinstance(recorded, str) or codec is None:
        return None
    if not codec.has_chat_template:
        return "their prompts are of a chat template, and the target has none"
    config = RenderingConfig(template_args=dict(as_object(template.get("template_args"))))
    found = Renderer(codec, config, ()).template_digest()
    if found == recorded:
        return None
    return f"their prompts are of another chat template ({recorded[:12]}, not {found[:12]})"


def _last_part(name: str) -> str:
    """Of a folder or hub id: the same model may lie in several places."""
    return name.rstrip("/").rpartition("/")[2].partition("@")[0].lower()
