"""The model card: measured numbers carried along, commands of each engine, nothing of a machine."""

import pytest

from blockdraft.checkpoint.card import LENGTH
from blockdraft.drafter import DrafterConfig
from blockdraft.interop.card import CardFacts, render_card, section_of
from blockdraft.interop.provenance import Conversion

ORIGINAL = """# drafter

## Measured

| set | tau |
|---|---:|
| GSM8K | 2.40 |

### How

greedy

## Made by

someone

## Other
"""


def card(
    config: DrafterConfig,
    *,
    to_format: str = "hf",
    target: str = "owner/model",
    provenance: dict[str, object] | None = None,
    original: str | None = None,
) -> str:
    conversion = Conversion(
        to_format=to_format,
        outtype="bf16",
        from_format="hf",
        source="mine",
        target=target,
        own_head=False,
        changes=("something changed",),
    )
    facts = CardFacts(
        config=config,
        parameters=1234567,
        conversion=conversion,
        provenance=provenance or {},
        original=original,
        notes=("something found",),
    )
    return render_card(facts)


def test_a_section_ends_at_the_next_of_its_level() -> None:
    assert section_of(ORIGINAL, "Measured")[-1] == "greedy"
    assert section_of(ORIGINAL, "Made by") == ["someone"]
    assert section_of(ORIGINAL, "Other") == []
    assert section_of(ORIGINAL, "Missing") == []


def test_what_the_source_measured_stands_in_the_card(config: DrafterConfig) -> None:
    text = card(config, original=ORIGINAL)
    assert "| GSM8K | 2.40 |" in text
    assert "someone" in text


def test_a_card_of_a_card_says_things_once(config: DrafterConfig) -> None:
    first = card(config, original=ORIGINAL)
    second = card(config, original=first)
    assert second.count("before this conversion") == 1
    assert first == second


def test_measured_values_come_from_the_provenance(config: DrafterConfig) -> None:
    text = card(
        config,
        provenance={
            "measured": {"GSM8K": 2.401},
            "measured_how": "blockdraft eval",
            "training": {"target": "t", "command": "blockdraft train x", "seed": 1, "steps": 9},
            "licenses": {"MIT": 12},
        },
    )
    assert "| GSM8K | 2.401 |" in text
    assert "blockdraft train x" in text
    assert "| MIT | 12 |" in text
    assert text.count(LENGTH) == 1 and card(config, original=text) == text


def test_only_a_tau_is_said_so(config: DrafterConfig) -> None:
    assert "Acceptance length 2.5" in card(config, provenance={"acceptance_length": 2.5})


def test_nothing_measured_is_said_so(config: DrafterConfig) -> None:
    text = card(config)
    assert "Nothing is recorded" in text
    assert "Not recorded" in text


def test_each_engine_counts_in_its_own_way(config: DrafterConfig) -> None:
    """A block of 5 is 4 drafts for vLLM and TensorRT-LLM, 5 tokens for SGLang."""
    text = card(config)
    assert '"num_speculative_tokens": 4' in text
    assert "--speculative-num-draft-tokens 5" in text
    assert "max_draft_len: 4" in text
    assert "--spec-draft-n-max 4" in card(config, to_format="gguf")
    assert "vllm serve DIR" in card(config, to_format="speculators")


@pytest.mark.parametrize("target", ["smollm2", "/some/where/model"])
def test_no_local_path_becomes_a_command(config: DrafterConfig, target: str) -> None:
    assert "vllm serve TARGET" in card(config, target=target)
    assert "base_model" not in card(config, target=target)


def test_a_hub_id_is_the_base_model(config: DrafterConfig) -> None:
    text = card(config)
    assert "base_model: owner/model" in text
    assert "vllm serve owner/model" in text
    assert text.isascii()
