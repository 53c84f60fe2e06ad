"""Which target families each engine can give hidden states of, by the names in config.json.

Lists as of the versions in `findings.ENGINE_NAMES`; those of vLLM and TensorRT-LLM are not closed.
"""

from blockdraft.check.facts import TargetFacts
from blockdraft.target.renamed import RENAMED

_SUFFIXES = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")

VLLM = frozenset(
    {
        "llama", "qwen2", "qwen3", "qwen3moe", "qwen3next", "qwen35", "qwen35moe", "qwen3vl",
        "qwen3vlmoe", "qwen3omnimoe", "gptoss", "gemma4", "deepseekv2", "deepseekv3", "kimik25",
        "minimaxm2", "mimov2", "nemotronh", "granite", "laguna", "museglimmer", "mistral3",
        "pixtral", "llava", "llama4", "apertus", "afmoe", "cohere2moe", "minicpm",
    }
)  # fmt: skip
"""Those that implement `SupportsEagle3`."""

SGLANG = frozenset(
    {
        "llama", "qwen3", "qwen3moe", "qwen3next", "qwen35", "qwen35moe", "qwen3vl", "qwen3vlmoe",
        "gptoss", "gemma4", "deepseekv2", "deepseekv3", "kimik25", "kimik3", "glm4moelite", "glm5",
        "nemotronh", "minimaxm3", "mimov2", "lfm2", "lfm2moe", "lfm2vl", "laguna", "minicpmv",
        "nanbeige", "museglimmer", "musespark", "inkling", "beam",
    }
)  # fmt: skip
"""Those with `set_dflash_layers_to_capture`."""

TRTLLM = frozenset({"llama", "qwen3", "gptoss", "laguna", "kimik2", "kimik25", "qwen35"})
"""Pairs that its developers report."""

LLAMACPP = frozenset(
    {
        "llama", "qwen3", "qwen3moe", "qwen3next", "qwen35", "qwen35moe", "qwen4exp", "gemma4",
        "gptoss", "lfm2", "deepseekv4", "minimaxm1", "minimaxm2", "bailingmoe3", "nemotronh",
        "hunyuanvl", "mimov2", "nanbeige", "museglimmer", "deepseek4", "mimo2",
    }
)  # fmt: skip
"""Those whose graphs set `t_layer_inp`."""


def family(target: TargetFacts) -> str | None:
    """The family as letters and digits: LlamaForCausalLM and "llama" are both "llama"."""
    name = target.architectures[0] if target.architectures else target.model_type
    if name is None:
        return None
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return _plain(name)


def may_be_among(target: TargetFacts, families: frozenset[str]) -> bool:
    """Whether an engine's list has the target, or nothing says which family it is of.

    Kimi-K2 is DeepSeek-V3 under a type of its own: engines list it by either name.
    """
    name, model_type = family(target), target.model_type
    names = {name}
    if model_type in RENAMED:
        names |= {_plain(model_type), _plain(RENAMED[model_type])}
    return name is None or not names.isdisjoint(families)


def is_known_family(target: TargetFacts) -> bool:
    """Whether any engine is known to have the model type, whatever transformers says of it."""
    return _plain(str(target.model_type)) in VLLM | SGLANG | TRTLLM | LLAMACPP


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum()).removesuffix("text")


def called(target: TargetFacts) -> str:
    """The target's architecture for people."""
    return target.architectures[0] if target.architectures else str(target.model_type)
