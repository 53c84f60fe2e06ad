"""The registry as data: strict to read, honest about what is not known, one default a target."""

import pytest

from blockdraft.builtin.published import (
    best_published,
    default_drafter,
    find_published,
    likely_targets,
    published_drafters,
    published_for,
    read_entry,
)
from blockdraft.builtin.published_entry import PublishedDrafter
from blockdraft.errors import ConfigError

ENTRIES = published_drafters()
MINIMAL: dict[str, object] = {
    "id": "owner/drafter",
    "target": "owner/target",
    "format": "v1",
    "source": "a test",
    "notes": "Nothing is known.",
}


def test_one_entry_of_an_id_is_current() -> None:
    for name in {one.id for one in ENTRIES}:
        assert sum(not one.replaced for one in ENTRIES if one.id == name) == 1, name


@pytest.mark.parametrize("one", ENTRIES, ids=lambda one: str(one.id))
def test_what_is_not_known_is_said(one: PublishedDrafter) -> None:
    """A missing value has a sentence; nothing is filled in in silence."""
    assert one.notes and one.source
    if one.missing_shape or one.unknown:
        assert "known" in one.notes or "not in its file" in one.notes or "not stated" in one.notes
    if one.weights and not ("/" in one.id and "/" in one.target):
        assert "only" in one.notes and "short name" in one.notes


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"blocksize": 8}, "unknown key 'blocksize'"),
        ({"block_size": "8"}, "block_size is '8', another type"),
        ({"block_size": True}, "block_size is True"),
        ({"taps": [1, "2"]}, "taps is"),
        ({"format": "v3"}, "format is 'v3'"),
        ({"rope_theta": 10}, "rope_theta is 10"),
        ({"taps": [1, 2], "num_taps": 2}, "num_taps is for drafters whose taps are not known"),
        ({"num_layers": 2, "sliding_layers": 3}, "3 sliding layers of 2 can't be"),
        ({"id": "a", "target": "b"}, "neither its hub id nor that of its target"),
    ],
)
def test_mistakes_in_the_file_are_found(extra: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_entry(PublishedDrafter, MINIMAL | extra)


def test_an_entry_needs_its_source() -> None:
    lacking = {key: value for key, value in MINIMAL.items() if key != "source"}
    with pytest.raises(ConfigError, match="owner/drafter lacks source"):
        read_entry(PublishedDrafter, lacking)
    assert read_entry(PublishedDrafter, MINIMAL).block_size is None


DEFAULTS = {
    "Qwen/Qwen3-8B": "z-lab/Qwen3-8B-DFlash-b16",
    "qwen/qwen3-8b@b968826": "z-lab/Qwen3-8B-DFlash-b16",
    "Qwen/Qwen3-4B": "z-lab/Qwen3-4B-DFlash-b16",
    "meta-llama/Llama-3.1-8B-Instruct": "z-lab/LLaMA3.1-8B-Instruct-DFlash-UltraChat",
    "google/gemma-4-31B-it": "z-lab/gemma-4-31B-it-DFlash",
    "meta-models/Muse-Glimmer-30B": "z-lab/Muse-Glimmer-30B-DFlash2",
    "zai-org/GLM-5.3-Flash": "incoai/GLM-5.3-Flash-DFlash2",
    "Qwen/Qwen3-30B-A3B": None,
    "poolside/Laguna-S-2.1": None,
    "unsloth/Qwen3-8B": None,
    "Qwen3-8B": None,
    "GLM-5.1-FP8": None,
}


@pytest.mark.parametrize(("target", "drafter"), DEFAULTS.items(), ids=DEFAULTS)
def test_the_default_of_a_target(target: str, drafter: str | None) -> None:
    """U09: one that loads as it is, for exactly this target; none that must be read first."""
    default = default_drafter(target)
    assert (None if default is None else default.chosen.id) == drafter


def test_a_choice_has_a_reason() -> None:
    default = default_drafter("Qwen/Qwen3-8B")
    assert default is not None and len(default.others) == 3
    assert default.reason.startswith("chosen because it loads as it is and is by the authors")
    assert "RedHatAI/Qwen3-8B-speculator.dflash2 (other)" in default.reason
    only = default_drafter("google/gemma-4-31B-it")
    assert only is not None and "RedHatAI" in only.reason


def test_a_short_name_is_no_hub_id() -> None:
    """Any folder may have the short name that is all one knows of some targets: a suggestion."""
    short = [one for one in ENTRIES if one.is_loadable and "/" not in one.target]
    assert {one.target for one in short} >= {"GLM-5.1-FP8", "Muse-Spark-Open"}
    for one in short:
        assert default_drafter(one.target) is None
        best = best_published(one.target)
        assert best is not None and best.chosen is one
        assert likely_targets([f"/models/{one.target}"]) == [one.target]


def test_what_loads_is_what_the_loader_reads() -> None:
    """DFlash 2 in speculators' layout, and drafters with an embedding of their own, are refused."""
    for name in ("RedHatAI/Qwen3-8B-speculator.dflash2", "canada-quant/GLM-5.3-Flash-DFlash2-G"):
        found = find_published(name)
        assert found is not None and not found.is_loadable and found.format == "other"


def test_replaced_files_are_never_the_default() -> None:
    default = default_drafter("Qwen/Qwen3.5-122B-A10B")
    assert default is not None and default.chosen.num_layers == 6
    assert [one.replaced for one in published_for("Qwen/Qwen3.5-122B-A10B")] == [False, True]


def test_a_drafter_is_found_by_its_ids_and_revisions() -> None:
    def layers(drafter: str) -> int | None:
        found = find_published(drafter)
        return None if found is None else found.num_layers

    assert layers("z-lab/Qwen3.5-122B-A10B-DFlash") == 6
    assert layers("z-lab/Qwen3.5-122B-A10B-DFlash@6c7242c") == 4
    assert layers("z-lab/Qwen3.5-122B-A10B-DFlash@2274357aaaa") == 6
    assert layers("incoai/Qwen3.8-27B-DFlash2") == 5
    assert layers("owner/unknown") is None


@pytest.mark.parametrize(
    ("name", "targets"),
    [
        ("/models/Qwen3-8B", ["Qwen/Qwen3-8B"]),
        ("unsloth/qwen3-8b", ["Qwen/Qwen3-8B"]),
        ("/hub/models--Qwen--Qwen3-4B/snapshots/0123", ["Qwen/Qwen3-4B"]),
        ("/models/Qwen3-8B-finetuned", []),
        ("/models/Qwen3-8B/part", []),
        ("", []),
    ],
)
def test_likely_targets_are_whole_names(name: str, targets: list[str]) -> None:
    assert likely_targets([name]) == targets
