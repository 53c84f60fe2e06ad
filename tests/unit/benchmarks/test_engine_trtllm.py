"""Tests of the check of TensorRT-LLM's YAML: its section, the published fields, its class alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from engine_trtllm import BROKEN, LaunchFailed, speculative_section, verdicts
from trtllm_schema import FIELDS, InvalidConfig, check_class, check_table, load_class

SECTION = {"decoding_type": "DFlash", "max_draft_len": 7, "speculative_model": "/drafter"}
PRINTED = """cat > trtllm.yaml <<'END'
dtype: "bfloat16"
speculative_config:
  decoding_type: "DFlash"
  max_draft_len: 7
  speculative_model: "/drafter"
END
trtllm-serve /target
"""
SOURCE = """
import a_package_that_is_not_here

class AdvancedSamplingMode(StrEnum):
    FULL = "full"

class _MTPDraftCheckpointType(StrEnum):
    UNRESOLVED = "unresolved"

def Field(default=..., *, status=None, **kwargs):
    return PydanticField(default, **kwargs)

class DecodingBaseConfig(StrictBaseModel):
    max_draft_len: Optional[NonNegativeInt] = Field(default=None)
    speculative_model: Optional[Union[str, Path]] = Field(
        default=None,
        validation_alias=AliasChoices("speculative_model", "speculative_model_dir"),
    )
    max_concurrency: Optional[PositiveInt] = Field(default=None)
    acceptance_rate_threshold: Optional[float] = Field(default=None, ge=0.0, le=1.0)
    advanced_sampling_mode: AdvancedSamplingMode = Field(default=AdvancedSamplingMode.FULL)
    _private: bool = PrivateAttr(True)

class DFlashDecodingConfig(DecodingBaseConfig):
    target_layer_ids: Optional[List[int]] = Field(default=None)
    decoding_type: Literal["DFlash"] = Field(default="DFlash")
    attention_backend: Literal["VANILLA", "TRTLLM"] = Field(default="VANILLA")

    @functools.cached_property
    def spec_dec_mode(self):
        raise AssertionError

class SomethingElse(AClassThatIsNotHere):
    pass
"""


@pytest.mark.parametrize("text", [PRINTED, PRINTED.partition("\n")[2].partition("END")[0]])
def test_section_of_a_file_and_of_what_is_printed(text: str) -> None:
    assert speculative_section(text) == SECTION


def test_text_without_a_section() -> None:
    with pytest.raises(LaunchFailed, match="no speculative_config"):
        speculative_section("trtllm-serve /target\n")


def test_table_takes_what_launch_writes_and_refuses_what_is_broken() -> None:
    said = verdicts(SECTION, check_table)
    assert said["accepted"]
    broken = cast(Mapping[str, object], said["broken"])
    assert list(broken) == list(BROKEN)
    assert None not in broken.values()


def test_table_wants_the_kind_and_no_flag_for_a_number() -> None:
    with pytest.raises(InvalidConfig, match=r"^decoding_type: missing"):
        check_table({"max_draft_len": 7})
    with pytest.raises(InvalidConfig, match=r"^max_draft_len: True is not int"):
        check_table({**SECTION, "max_draft_len": True})
    check_table({**SECTION, "mask_token_id": None})


def test_class_out_of_its_source(tmp_path: Path) -> None:
    source = tmp_path / "llm_args.py"
    source.write_text(SOURCE, encoding="utf-8")
    model = load_class(source)
    check_class(SECTION, model)
    check_class({"decoding_type": "DFlash", "speculative_model_dir": "/drafter"}, model)
    for name, change in BROKEN.items():
        with pytest.raises(InvalidConfig, match="DFlashDecodingConfig"):
            check_class({**SECTION, **change}, model)
        assert name


def test_source_without_the_class(tmp_path: Path) -> None:
    source = tmp_path / "llm_args.py"
    source.write_text("class DecodingBaseConfig:\n    pass\n", encoding="utf-8")
    with pytest.raises(InvalidConfig, match="no class AdvancedSamplingMode, DFlashDecodingConfig"):
        load_class(source)


def test_alias_is_a_field_too() -> None:
    assert {"speculative_model", "speculative_model_dir"} <= FIELDS.keys()
