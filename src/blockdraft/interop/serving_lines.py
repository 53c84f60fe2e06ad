"""How an exported drafter is started in each engine that reads its format, in short.

Facts: integration notes, 2.1, 3, 4, 5.3 and 6. `blockdraft launch` makes complete commands.
"""

import json

from blockdraft.drafter.config import DrafterConfig


def serving_lines(to_format: str, target: str, config: DrafterConfig) -> list[str]:
    """Markdown lines; `target` is how the engine finds the target. DIR stands for the folder."""
    if to_format == "speculators":
        return _speculators()
    if to_format == "gguf":
        return _gguf(config)
    return _hf(target, config)


def _hf(target: str, config: DrafterConfig) -> list[str]:
    if config.dflash2 is not None:
        return _second_version(target, config)
    drafts = config.block_size - 1
    vllm = json.dumps({"method": "dflash", "model": "DIR", "num_speculative_tokens": drafts})
    return [
        f"DIR is this folder{_where(target)}. vLLM and TensorRT-LLM count drafts, SGLang counts the"
        " anchor too.",
        "",
        "```sh",
        "# vLLM",
        f"vllm serve {target} --speculative-config '{vllm}'",
        "# SGLang",
        f"python -m sglang.launch_server --model-path {target} --speculative-algorithm DFLASH \\",
        f"  --speculative-draft-model-path DIR --speculative-num-draft-tokens {config.block_size}",
        "# TensorRT-LLM: the YAML below as dflash.yaml",
        f"trtllm-serve {target} --config dflash.yaml",
        '# OpenVINO: convert, then draft_model("DIR_ov", "CPU") in openvino_genai.LLMPipeline',
        "optimum-cli export openvino --model DIR --task text-generation-with-past \\",
        "  --trust-remote-code --disable-convert-tokenizer DIR_ov",
        "# Blockdraft",
        f'blockdraft generate --target {target} --drafter DIR "your prompt"',
        "```",
        "",
        "```yaml",
        "speculative_config:",
        "  decoding_type: DFlash",
        f"  max_draft_len: {drafts}",
        "  speculative_model: DIR",
        "```",
    ]


def _second_version(target: str, config: DrafterConfig) -> list[str]:
    drafts = config.block_size - 1
    vllm = json.dumps({"method": "dflash", "model": "DIR", "num_speculative_tokens": drafts})
    return [
        f"DIR is this folder{_where(target)}. It is a DFlash 2 drafter: vLLM needs a GPU and its"
        " model runner V2, TensorRT-LLM and OpenVINO do not run it. vLLM counts drafts, SGLang"
        " counts the anchor too.",
        "",
        "```sh",
        "# vLLM",
        f"vllm serve {target} --speculative-config '{vllm}'",
        "# SGLang",
        f"python -m sglang.launch_server --model-path {target} --speculative-algorithm DFLASH \\",
        f"  --speculative-draft-model-path DIR --speculative-num-draft-tokens {config.block_size}",
        "# llama.cpp: its own converter writes the drafter",
        "python convert_hf_to_gguf.py DIR --target-model-dir TARGET_FOLDER --outfile drafter.gguf",
        "# Blockdraft",
        f'blockdraft generate --target {target} --drafter DIR "your prompt"',
        "```",
    ]


def _speculators() -> list[str]:
    return [
        "DIR is this folder; vLLM finds the target and the number of drafts in it.",
        "",
        "```sh",
        "vllm serve DIR",
        "```",
        "",
        "The target is loaded from where `speculators_config.verifier.name_or_path` in config.json"
        " says; change it there when the target moves.",
    ]


def _gguf(config: DrafterConfig) -> list[str]:
    return [
        "```sh",
        "llama-server -m target.gguf -md drafter.gguf --spec-type draft-dflash \\",
        f"  --spec-draft-n-max {config.block_size - 1} -fa on --jinja",
        "```",
    ]


def _where(target: str) -> str:
    return ", TARGET the target's folder" if target == "TARGET" else ""
