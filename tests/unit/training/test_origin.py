"""Whose answers a folder holds: what its manifest recorded against the target of the recipe."""

from dataclasses import dataclass
from typing import cast

import pytest
import torch

from blockdraft.api import TextTarget
from blockdraft.data.rendering import Codec, Renderer, RenderingConfig
from blockdraft.errors import ConfigError
from blockdraft.target import HFTarget
from blockdraft.target.fingerprint import fingerprint_of
from blockdraft.testing import tiny_target
from blockdraft.training.run.origin import Manifest, check_origin, other_target


class Template:
    """A codec whose template puts `mark` before everything; tokens are code points."""

    def __init__(self, mark: str, *, has_chat_template: bool = True) -> None:
        self._mark = mark
        self.has_chat_template = has_chat_template
        self.vocab_size = 256

    def encode(self, text: str) -> list[int]:
        return [ord(character) for character in text]

    def chat(self, messages: object, template_args: object = None) -> list[int]:
        return self.encode(f"{self._mark}{template_args}{messages}")

    def decode(self, ids: list[int], *, skip_special_tokens: bool = True) -> str:
        del skip_special_tokens
        return "".join(map(chr, ids))


@dataclass
class Speaking:
    """A tiny target with a codec of the test's own."""

    target: HFTarget
    text: Template

    def __getattr__(self, name: str) -> object:
        return getattr(self.target, name)


def speaking(mark: str = "<s>", *, seed: int = 0, template: bool = True) -> TextTarget:
    inner = tiny_target("llama", dtype=torch.float32, seed=seed)
    return cast(TextTarget, Speaking(inner, Template(mark, has_chat_template=template)))


def digest(mark: str, **template_args: object) -> str:
    config = RenderingConfig(template_args=template_args)
    return Renderer(cast(Codec, Template(mark)), config, ()).template_digest()


def manifest(
    *, target: str | None = "tiny", fingerprint: str | None = None, template: dict[str, object]
) -> Manifest:
    source = {"kind": "endpoint", "model": "x"} if target is None else {"target": target}
    return {
        "source": source,
        "notes": {} if fingerprint is None else {"target_fingerprint": fingerprint},
        "template": template,
    }


OURS: dict[str, object] = {"template_sha256": digest("<s>"), "template_args": {}}
THINKING: dict[str, object] = {
    "template_sha256": digest("<s>", thinking=True),
    "template_args": {"thinking": True},
}


@pytest.mark.parametrize("name", ["tiny", "models/tiny", "Org/Tiny@main", "/a/tiny/"])
@pytest.mark.parametrize("template", [OURS, THINKING, {"raw": True}, {}])
def test_answers_of_the_target_itself(name: str, template: dict[str, object]) -> None:
    """Wherever the model lies, and in whatever mode of its template it answered."""
    assert other_target(manifest(template=template), speaking(), name) is None
    assert other_target(manifest(target=None, template=template), speaking(), "any") is None
    assert other_target({}, speaking(), name) is None, "nothing recorded, nothing judged"


def test_weights_are_told_apart_before_names() -> None:
    target, other = speaking(), speaking(seed=1)
    same = manifest(target="elsewhere", fingerprint=fingerprint_of(target), template=OURS)
    assert other_target(same, target, "tiny") is None
    assert "fingerprint" in (other_target(same, other, "elsewhere") or "")


@pytest.mark.parametrize(
    ("found", "target", "words"),
    [
        (manifest(target="Org/Other", template=OURS), speaking(), "target Org/Other wrote them"),
        (manifest(template=OURS), speaking("<x>"), "of another chat template"),
        (
            manifest(template={**OURS, "template_args": {"thinking": True}}),
            speaking(),
            "of another chat template",
        ),
        (manifest(target=None, template=OURS), speaking("<x>"), "of another chat template"),
        (manifest(template=OURS), speaking(template=False), "the target has none"),
    ],
)
def test_answers_of_another_target_are_refused(
    found: Manifest, target: TextTarget, words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        check_origin("answers", found, target, "tiny")
    message = str(caught.value)
    assert "\n" not in message and message.startswith("the answers in answers are not those of")
    assert "data regenerate --target tiny" in message and "accept_other_target" in message
