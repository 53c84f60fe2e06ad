"""Families from folders, as users load them: wrappers give their text part, on either engine.

Weights are those of the grid; what is decoded with them is in test_sample.py.
"""

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from family_grid import DECODED, PROMPTS, difference, make_drafter, skip_missing

from blockdraft.decoding import SamplingParams, collect, decode
from blockdraft.native.config import why_not_native
from blockdraft.target import load_target
from blockdraft.target.quiet import quiet
from blockdraft.testing.families import TinyFamily, family_config, family_model, is_installed
from blockdraft.testing.plain import plain_text

WRAPPERS = [family for family in DECODED if family.vision is not None]
FROM_FOLDERS = [*WRAPPERS, *(family for family in DECODED if family.key in ("qwen3_5", "gemma4"))]
NUM_TOKENS = 8


@pytest.mark.parametrize("family", FROM_FOLDERS, ids=lambda family: family.key)
def test_a_folder_is_loaded_and_decodes(family: TinyFamily, tmp_path: Path) -> None:
    """The published files of these families hold the vision part too; none of it stays."""
    skip_missing(family)
    model = family_model(family)
    text = plain_text(model, PROMPTS[1], NUM_TOKENS)
    save = cast(Callable[..., None], model.save_pretrained)  # pyright: ignore[reportUnknownMemberType] # transformers is untyped
    with quiet():
        save(tmp_path / "model")
    target = load_target(tmp_path / "model", attn=family.attn)
    drafter = make_drafter("half right", [text], 4)
    answer = decode(target, drafter, text.prompt, SamplingParams(max_new_tokens=NUM_TOKENS))
    assert difference(text, collect(text.prompt, answer).token_ids, NUM_TOKENS) is None
    assert target.shape.hidden_size == target.spec.hidden_size
    assert not [name for name in target.layer_tensors() if "visual" in name or "_tower" in name]


def test_the_native_engine_takes_only_dense_families() -> None:
    """It says why for all others, wrappers included: their folders are of another shape."""
    known = [family for family in DECODED if is_installed(family)]
    native = {family.key for family in known if why_not_native(family_config(family)) is None}
    assert {"llama3", "qwen3", "mistral"} <= native
    assert native <= {"llama3", "qwen2", "qwen3", "mistral"}
