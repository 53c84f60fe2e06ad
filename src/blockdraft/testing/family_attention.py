"""Tiny configurations of dense families whose layers are all attention, full or sliding.

Families with experts, with recurrent layers and with a vision part have modules of their own.
"""

from blockdraft.testing.family_entry import HEAD_DIM, MAX_CONTEXT_LEN, WINDOW, TinyFamily

SLIDING, FULL = "sliding_attention", "full_attention"


def yarn(factor: float, original: int) -> dict[str, object]:
    """Rotary settings of YaRN, `factor` times beyond `original` positions."""
    return {
        "rope_type": "yarn",
        "rope_theta": 10_000.0,
        "factor": factor,
        "original_max_position_embeddings": original,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
    }


LLAMA3_ROPE: dict[str, object] = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}

DENSE_FAMILIES = (
    TinyFamily(
        key="llama3",
        title="Llama 3.x",
        model_type="llama",
        examples=("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.2-1B-Instruct"),
        layers="full attention, llama3 rotary scaling",
        shape={"rope_parameters": LLAMA3_ROPE},
        seed=5,
    ),
    TinyFamily(
        key="qwen2",
        title="Qwen2, Qwen2.5",
        model_type="qwen2",
        examples=("Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen2.5-7B-Instruct"),
        layers="full attention with biases; sliding window where configured",
        shape={"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
    ),
    TinyFamily(
        key="qwen3",
        title="Qwen3",
        model_type="qwen3",
        examples=("Qwen/Qwen3-4B", "Qwen/Qwen3-8B"),
        layers="full attention with query and key norms",
    ),
    TinyFamily(
        key="gemma2",
        title="Gemma 2",
        model_type="gemma2",
        examples=("google/gemma-2-9b-it",),
        layers="sliding and full attention by turns, soft-caps, scaled embeddings",
        shape={
            "sliding_window": WINDOW,
            "layer_types": [SLIDING, FULL, SLIDING],
            "query_pre_attn_scalar": HEAD_DIM,
            "final_logit_softcapping": 8.0,
            "attn_logit_softcapping": 10.0,
        },
        # Its soft-capped scores exist in eager attention only.
        attn="eager",
    ),
    TinyFamily(
        key="gemma3",
        title="Gemma 3 (text)",
        model_type="gemma3_text",
        examples=("google/gemma-3-1b-it",),
        layers="sliding and full attention by turns, two rotary bases, scaled embeddings",
        shape={
            "sliding_window": WINDOW,
            "layer_types": [SLIDING, SLIDING, FULL],
            "query_pre_attn_scalar": HEAD_DIM,
        },
    ),
    TinyFamily(
        key="mistral",
        title="Mistral",
        model_type="mistral",
        examples=("mistralai/Mistral-7B-Instruct-v0.1", "mistralai/Mistral-Nemo-Instruct-2407"),
        layers="sliding attention in every layer",
        shape={"sliding_window": WINDOW},
    ),
    TinyFamily(
        key="ministral",
        title="Ministral",
        model_type="ministral",
        examples=("mistralai/Ministral-8B-Instruct-2410",),
        layers="sliding and full attention",
        shape={"sliding_window": WINDOW, "layer_types": [SLIDING, FULL, SLIDING]},
    ),
    TinyFamily(
        key="ministral3",
        title="Ministral 3",
        model_type="ministral3",
        examples=("mistralai/Ministral-3-8B-Instruct-2512",),
        layers="full attention, YaRN, queries scaled by position",
        shape={
            "rope_parameters": yarn(4.0, 32)
            | {"mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1},
        },
    ),
    TinyFamily(
        key="granite",
        title="Granite 3.x (dense)",
        model_type="granite",
        examples=("ibm-granite/granite-3.3-8b-instruct",),
        layers="full attention, scaled embeddings, residuals and logits",
        shape={
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.5,
            "attention_multiplier": 0.3,
            "logits_scaling": 2.0,
        },
        seed=7,
    ),
    TinyFamily(
        key="smollm3",
        title="SmolLM3",
        model_type="smollm3",
        examples=("HuggingFaceTB/SmolLM3-3B",),
        layers="full attention, every fourth layer without rotary positions",
        shape={"num_hidden_layers": 4, "no_rope_layers": [1, 0, 1, 0]},
        seed=2,
    ),
    TinyFamily(
        key="phi3",
        title="Phi-3, Phi-4-mini",
        model_type="phi3",
        examples=("microsoft/Phi-3.5-mini-instruct", "microsoft/Phi-4-mini-instruct"),
        layers="sliding attention, LongRoPE up to its original length",
        shape={
            "sliding_window": WINDOW,
            "max_position_embeddings": MAX_CONTEXT_LEN,
            "original_max_position_embeddings": 256,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 10_000.0,
                "short_factor": [1.0, 1.1, 1.3, 1.7],
                "long_factor": [1.0, 2.0, 4.0, 8.0],
                "original_max_position_embeddings": 256,
            },
        },
        seed=6,
    ),
    TinyFamily(
        key="olmo2",
        title="OLMo 2",
        model_type="olmo2",
        examples=("allenai/OLMo-2-1124-7B-Instruct",),
        layers="full attention, norms behind each block",
        seed=11,
    ),
    TinyFamily(
        key="olmo3",
        title="OLMo 3",
        model_type="olmo3",
        examples=("allenai/Olmo-3-7B-Instruct",),
        layers="sliding and full attention",
        shape={"sliding_window": WINDOW, "layer_types": [SLIDING, FULL, SLIDING]},
        seed=5,
    ),
    TinyFamily(
        key="cohere2",
        title="Command R7B (Cohere 2)",
        model_type="cohere2",
        examples=("CohereLabs/c4ai-command-r7b-12-2024",),
        layers="sliding attention, full attention without rotary positions, parallel blocks",
        shape={
            "sliding_window": WINDOW,
            "layer_types": [SLIDING, FULL, SLIDING],
            "logit_scale": 0.5,
        },
    ),
    TinyFamily(
        key="glm4",
        title="GLM-4",
        model_type="glm4",
        examples=("zai-org/GLM-4-9B-0414", "zai-org/GLM-4-32B-0414"),
        layers="full attention, half of each head rotated",
        shape={"rope_parameters": {"rope_theta": 10_000.0, "partial_rotary_factor": 0.5}},
    ),
)
