"""Tiny configurations of families with experts or latent attention, and no recurrent layer.

Dense families, those with recurrent layers and vision-language wrappers have modules of their own.
"""

from blockdraft.testing.family_attention import FULL, SLIDING, yarn
from blockdraft.testing.family_entry import EXPERTS, VOCAB_SIZE, WINDOW, TinyFamily

LATENT: dict[str, object] = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "num_key_value_heads": 4,
    "head_dim": 4,
    "moe_intermediate_size": 16,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
}
"""Multi-head latent attention and experts with a shared one, as DeepSeek-V3 has them."""


EXPERT_FAMILIES = (
    TinyFamily(
        key="qwen3_moe",
        title="Qwen3-MoE, Qwen3-Coder-30B-A3B",
        model_type="qwen3_moe",
        examples=("Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-Coder-30B-A3B-Instruct"),
        layers="full attention; dense and expert feed-forwards",
        shape=EXPERTS | {"mlp_only_layers": [1], "decoder_sparse_step": 1},
    ),
    TinyFamily(
        key="gpt_oss",
        title="gpt-oss",
        model_type="gpt_oss",
        examples=("openai/gpt-oss-20b", "openai/gpt-oss-120b"),
        layers="sliding and full attention by turns, attention sinks, YaRN; experts",
        shape={
            "num_hidden_layers": 4,
            "intermediate_size": 16,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": WINDOW,
            "layer_types": [SLIDING, FULL, SLIDING, FULL],
            "rope_parameters": yarn(4.0, 32) | {"truncate": False},
        },
        # It has its sinks in eager attention.
        attn="eager",
        seed=1,
    ),
    TinyFamily(
        key="gemma4",
        title="Gemma 4 (text)",
        model_type="gemma4_text",
        examples=("google/gemma-4-E4B-it",),
        layers="sliding and full attention of two head sizes, shared keys and values, per-layer "
        "inputs, soft-cap, scaled embeddings",
        shape={
            "num_hidden_layers": 5,
            "sliding_window": WINDOW,
            "layer_types": [SLIDING, FULL, SLIDING, SLIDING, FULL],
            "num_kv_shared_layers": 2,
            "vocab_size_per_layer_input": VOCAB_SIZE,
            "hidden_size_per_layer_input": 8,
            "final_logit_softcapping": 8.0,
            "global_head_dim": 16,
            "use_double_wide_mlp": True,
        },
        seed=11,
    ),
    TinyFamily(
        key="gemma4_moe",
        title="Gemma 4 (text, experts)",
        model_type="gemma4_text",
        examples=("google/gemma-4-26B-A4B-it", "google/gemma-4-31B-it"),
        layers="sliding and full attention, values equal to keys; experts beside a dense part",
        shape={
            "sliding_window": WINDOW,
            "layer_types": [SLIDING, SLIDING, FULL],
            "hidden_size_per_layer_input": 0,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
            "global_head_dim": 16,
            "enable_moe_block": True,
            "num_experts": 4,
            "top_k_experts": 2,
            "moe_intermediate_size": 16,
            "final_logit_softcapping": 8.0,
        },
    ),
    TinyFamily(
        key="deepseek_v3",
        title="DeepSeek-V3, DeepSeek-R1",
        model_type="deepseek_v3",
        examples=("deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-R1"),
        layers="latent attention, YaRN; dense and expert feed-forwards, groups of experts",
        shape=LATENT
        | {
            "first_k_dense_replace": 1,
            "n_group": 2,
            "topk_group": 1,
            "rope_parameters": yarn(4.0, 32) | {"mscale": 1.0, "mscale_all_dim": 1.0},
        },
    ),
    TinyFamily(
        key="kimi_k2",
        title="Kimi-K2 (text)",
        model_type="deepseek_v3",
        examples=("moonshotai/Kimi-K2-Instruct",),
        layers="latent attention, YaRN; dense and expert feed-forwards in one group",
        shape=LATENT
        | {
            "first_k_dense_replace": 1,
            "n_group": 1,
            "topk_group": 1,
            "rope_parameters": yarn(8.0, 16) | {"mscale": 1.0, "mscale_all_dim": 1.0},
        },
    ),
    TinyFamily(
        key="glm4_moe",
        title="GLM-4.5, GLM-4.6, GLM-4.7",
        model_type="glm4_moe",
        examples=("zai-org/GLM-4.5-Air", "zai-org/GLM-4.6"),
        layers="full attention, half of each head rotated; dense and expert feed-forwards",
        shape={
            "moe_intermediate_size": 16,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "first_k_dense_replace": 1,
            "use_qk_norm": True,
            "rope_parameters": {"rope_theta": 10_000.0, "partial_rotary_factor": 0.5},
        },
    ),
    TinyFamily(
        key="glm4_moe_lite",
        title="GLM-4.7-Flash",
        model_type="glm4_moe_lite",
        examples=("zai-org/GLM-4.7-Flash",),
        layers="latent attention; dense and expert feed-forwards",
        shape=LATENT | {"mlp_layer_types": ["dense", "sparse", "sparse"]},
        seed=2,
    ),
    TinyFamily(
        key="glm5",
        title="GLM-5, GLM-5.1",
        model_type="glm_moe_dsa",
        examples=("zai-org/GLM-5", "zai-org/GLM-5.1"),
        layers="latent attention over the keys that an indexer picks; experts",
        shape=LATENT
        | {
            "mlp_layer_types": ["dense", "sparse", "sparse"],
            "index_topk": 8,
            "index_head_dim": 8,
            "index_n_heads": 16,
        },
        seed=1,
    ),
    TinyFamily(
        key="minimax_m2",
        title="MiniMax-M2, M2.5, M2.7",
        model_type="minimax_m2",
        examples=("MiniMaxAI/MiniMax-M2", "MiniMaxAI/MiniMax-M2.5"),
        layers="full attention with norms over all heads, half of each rotated; experts",
        shape={
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "intermediate_size": 16,
            "rope_parameters": {"rope_theta": 10_000.0, "partial_rotary_factor": 0.5},
        },
        seed=3,
    ),
    TinyFamily(
        key="mixtral",
        title="Mixtral",
        model_type="mixtral",
        examples=("mistralai/Mixtral-8x7B-Instruct-v0.1",),
        layers="sliding attention in every layer; experts",
        shape={"sliding_window": WINDOW, "num_local_experts": 4, "num_experts_per_tok": 2},
        seed=2,
    ),
    TinyFamily(
        key="granitemoe",
        title="Granite 3.x (experts)",
        model_type="granitemoe",
        examples=("ibm-granite/granite-3.1-3b-a800m-instruct",),
        layers="full attention, scaled embeddings, residuals and logits; experts",
        shape={
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.5,
            "attention_multiplier": 0.3,
            "logits_scaling": 2.0,
        },
        seed=2,
    ),
    TinyFamily(
        key="olmoe",
        title="OLMoE",
        model_type="olmoe",
        examples=("allenai/OLMoE-1B-7B-0125-Instruct",),
        layers="full attention; experts",
        shape={"num_experts": 4, "num_experts_per_tok": 2},
        seed=3,
    ),
    TinyFamily(
        key="laguna",
        title="Laguna",
        model_type="laguna",
        examples=("poolside/Laguna-S-2.1", "poolside/laguna-XS.2"),
        layers="sliding and full attention with gated outputs; dense and expert feed-forwards",
        shape=EXPERTS
        | {
            "shared_expert_intermediate_size": 16,
            "sliding_window": WINDOW,
            "layer_types": [FULL, SLIDING, SLIDING],
            "num_attention_heads_per_layer": [4, 4, 4],
            "mlp_layer_types": ["dense", "sparse", "sparse"],
        },
        seed=1,
    ),
    TinyFamily(
        key="deepseek_v4",
        title="DeepSeek-V4",
        model_type="deepseek_v4",
        examples=("deepseek-ai/DeepSeek-V4-Flash",),
        layers="compressed attention",
        attn="eager",
        refused="its compressed attention cache can't be cut back",
    ),
)
