"""The drafter against recorded outputs of the public reference (tests/data/golden).

Whole generations are compared elsewhere; here it is two blocks that share one cache.
"""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file  # pyright: ignore[reportUnknownVariableType]: bare PathLike

from blockdraft.checkpoint import load_checkpoint, load_drafter_model
from blockdraft.decoding import SamplingParams
from blockdraft.decoding.chain import build_chain
from blockdraft.decoding.choose import Chooser

_CASES = (
    "v1_full",
    "v1_one_layer_b4",
    "v1_sliding_mixed",
    "v1_sliding_noncausal",
    "v1_softcap_scale",
    "v1_yarn",
    "v2_conv_selector",
)


@pytest.mark.parametrize("batch_size", [1, 2])
@pytest.mark.parametrize("case", _CASES)
def test_two_steps_equal_the_reference(case: str, batch_size: int, data_dir: Path) -> None:
    """Hidden states and logits within 1e-4 in fp32, alone and as every row of a batch.

    In the batch a shifted second row makes the lengths differ, so that the first one is padded.
    """
    folder = data_dir / "golden" / case
    recorded = load_file(folder / "expected.safetensors")
    model = load_drafter_model(load_checkpoint(folder, dtype=torch.float32))
    table, weight = recorded["embed_tokens.weight"], recorded["lm_head.weight"]
    cache = model.new_cache(batch_size)
    for step, extra in (("step1", 2), ("step2", 1)):
        features = recorded[f"{step}.features"]
        new = features.shape[1]
        rows = torch.cat((features, torch.randn(1, extra, features.shape[2])), 1)
        batch = torch.cat((rows, torch.randn(batch_size - 1, *rows.shape[1:])))
        model.extend(cache, batch, [new] + [new + extra] * (batch_size - 1))
        embeddings = table[recorded[f"{step}.block_ids"]] * model.config.input_embedding_scale
        hidden = model.hidden(embeddings.expand(batch_size, -1, -1), cache)
        logits = model.logits(hidden, lambda states: states @ weight.T)
        expected = recorded[f"{step}.hidden"]
        torch.testing.assert_close(hidden[:1], expected, rtol=0, atol=1e-4)
        torch.testing.assert_close(logits[:1], recorded[f"{step}.logits"], rtol=0, atol=1e-4)


@pytest.mark.parametrize("step", ["step1", "step2"])
def test_candidates_and_greedy_path_equal_the_reference(step: str, data_dir: Path) -> None:
    """DFlash 2: each slot's candidates as a set, and the ids of the greedy walk through them."""
    folder = data_dir / "golden" / "v2_conv_selector"
    recorded = load_file(folder / "expected.safetensors")
    selector = load_drafter_model(load_checkpoint(folder)).candidate_selector
    assert selector is not None
    hidden, logits = recorded[f"{step}.hidden"][:, 1:], recorded[f"{step}.logits"]
    (lattice,) = selector.lattices(hidden, logits, recorded[f"{step}.block_ids"][:, 0])
    expected = recorded[f"{step}.candidates"][0]
    assert torch.equal(lattice.candidates.sort().values, expected.sort().values)
    params = SamplingParams()
    chooser = Chooser(params, build_chain(params, (1,), ()), 0, logits.shape[-1])
    block = chooser.decide_draft(lattice, 0, logits.shape[1])
    assert torch.equal(torch.tensor(block.ids), recorded[f"{step}.path"][0])


def test_every_recorded_drafter_case_is_compared(data_dir: Path) -> None:
    folders = sorted(p.parent.name for p in (data_dir / "golden").glob("v*/config.json"))
    assert folders == sorted(_CASES)
