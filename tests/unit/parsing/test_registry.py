"""Which format a template speaks, and whether a prompt ends in reasoning."""

import pytest

from blockdraft.errors import ConfigError, RequestError
from blockdraft.parsing import choose_reasoning_format, choose_tool_format

HERMES = "{{ '<tool_call>\\n{\"name\": ' }}{{ call.arguments | tojson }}{{ '</tool_call>' }}"
CODER = "{{ '<tool_call>\\n<function=' + call.name + '>\\n<parameter=' }}{% call.arguments %}"
LLAMA = "{{ '<|start_header_id|>' }} {{ '{\"name\": ..., \"parameters\": ...}' }}"
GLM = "{{ '<tool_call>' + name + '<arg_key>' }}{% set args = call.arguments %}"
CHANNELS = "{{ '<|start|>assistant<|channel|>commentary to=functions.' + name }}"


@pytest.mark.parametrize(
    ("template", "name"),
    [
        (HERMES, "hermes"),
        (CODER, "qwen3-coder"),
        (LLAMA, "llama3-json"),
        ("{{ '<|python_tag|>' }}", "llama3-json"),
        (GLM, None),
        (CHANNELS, None),
        ("{{ message }}", None),
        (None, None),
    ],
)
def test_tool_format_of_a_template(template: str | None, name: str | None) -> None:
    """B16: a template with channel tokens is not taken for a format that it does not speak."""
    chosen = choose_tool_format(template)
    assert (chosen.name if chosen else None) == name


def test_tool_format_by_name() -> None:
    for name in ("hermes", "qwen3-coder", "llama3-json"):
        chosen = choose_tool_format(None, name)
        assert chosen is not None and chosen.name == name
    assert choose_tool_format(HERMES, "none") is None
    with pytest.raises(ConfigError, match="'pythonic': choose one of auto, none, hermes"):
        choose_tool_format(None, "pythonic")


def test_reasoning_format() -> None:
    assert choose_reasoning_format(None) is None
    assert choose_reasoning_format("{{ '<think>' }}", "none") is None
    chosen = choose_reasoning_format("{{ content.split('</think>') }}")
    assert chosen is not None and chosen.name == "think"
    with pytest.raises(ConfigError, match="'channel': choose one of auto, none, think"):
        choose_reasoning_format(None, "channel")


@pytest.mark.parametrize(
    ("prompt", "inside"),
    [
        ("<|im_start|>assistant\n<think>\n", True),
        ("<|im_start|>assistant\n<think>\nSo far", True),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("<|im_start|>assistant\n", False),
        ("<|im_start|>user\nwhat is <think>?<|im_end|>\n<|im_start|>assistant\n", False),
        ("[INST] what is <think>? [/INST]", False),
        ("", False),
    ],
)
def test_where_a_prompt_ends(prompt: str, inside: bool) -> None:
    chosen = choose_reasoning_format(None, "think")
    assert chosen is not None and chosen.starts_inside(prompt) is inside


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ([{"function": 3}], r"tools\[0\].function is no object"),
        ([{"function": {"name": ""}}], r"tools\[0\] has no name"),
        ([{"function": {"name": "f", "parameters": 3}}], "parameters is no object"),
        ([{"name": "f"}, {"name": "f"}], r"tools\[1\] is a second tool named 'f'"),
    ],
)
def test_bad_tools_are_refused(tools: list[dict[str, object]], message: str) -> None:
    chosen = choose_tool_format(None, "hermes")
    assert chosen is not None
    with pytest.raises(RequestError, match=message):
        chosen.parser(tools)
