"""Tiny configurations of families with recurrent or convolution layers, alone or beside attention.

Families of attention alone and vision-language wrappers have modules of their own.
"""

from blockdraft.testing.family_entry import EXPERTS, HIDDEN_SIZE, WINDOW, TinyFamily

LINEAR, FULL, SLIDING = "linear_attention", "full_attention", "sliding_attention"

DELTA_NET: dict[str, object] = {
    "num_hidden_layers": 4,
    "head_dim": 16,
    "layer_types": [LINEAR, FULL, LINEAR, LINEAR],
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
"""Gated delta-net layers around one of full attention, as in Qwen3-Next."""

EXPERTS_AND_SHARED = EXPERTS | {"shared_expert_intermediate_size": HIDDEN_SIZE // 2}

QWEN3_5_ROPE: dict[str, object] = {
    "rope_type": "default",
    "rope_theta": 10_000.0,
    "partial_rotary_factor": 0.5,
    "mrope_interleaved": True,
    "mrope_section": [2, 1, 1],
}

QWEN3_5_TEXT = DELTA_NET | {"rope_parameters": QWEN3_5_ROPE}
QWEN3_5_MOE_TEXT = QWEN3_5_TEXT | EXPERTS_AND_SHARED

MAMBA2_LAYERS: dict[str, object] = {
    "mamba_d_state": 8,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_n_groups": 1,
    "mamba_chunk_size": 8,
}
"""State-space layers under the names that Granite 4, Falcon-H1 and Bamba share."""

DELTA_NET_FAMILIES = (
    TinyFamily(
        key="qwen3_next",
        title="Qwen3-Next, Qwen3-Coder-Next",
        model_type="qwen3_next",
        examples=("Qwen/Qwen3-Next-80B-A3B-Instruct", "Qwen/Qwen3-Coder-Next"),
        layers="gated delta-net and full attention; dense and expert feed-forwards",
        shape=DELTA_NET | EXPERTS_AND_SHARED | {"mlp_only_layers": [2]},
        seed=1,
    ),
    TinyFamily(
        key="qwen3_5",
        title="Qwen3.5, Qwen3.6 (text, dense)",
        model_type="qwen3_5_text",
        examples=("Qwen/Qwen3.5-9B", "Qwen/Qwen3.5-27B", "Qwen/Qwen3.6-27B"),
        layers="gated delta-net and full attention, multimodal rotary positions",
        shape=QWEN3_5_TEXT,
    ),
    TinyFamily(
        key="qwen3_5_moe",
        title="Qwen3.5, Qwen3.6 (text, experts)",
        model_type="qwen3_5_moe_text",
        examples=("Qwen/Qwen3.5-35B-A3B", "Qwen/Qwen3.6-35B-A3B", "Qwen/Qwen3.5-122B-A10B"),
        layers="gated delta-net and full attention, multimodal rotary positions; experts",
        shape=QWEN3_5_MOE_TEXT,
    ),
    TinyFamily(
        key="olmo_hybrid",
        title="OLMo Hybrid",
        model_type="olmo_hybrid",
        examples=("allenai/Olmo-Hybrid-7B",),
        layers="gated delta-net and full attention",
        shape={
            "layer_types": [LINEAR, FULL, LINEAR],
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 16,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 2,
        },
    ),
    TinyFamily(
        key="kimi_linear",
        title="Kimi-Linear",
        model_type="kimi_linear",
        examples=("moonshotai/Kimi-Linear-48B-A3B-Instruct",),
        layers="Kimi delta attention and latent attention; dense and expert feed-forwards",
        shape={
            "num_key_value_heads": 4,
            "head_dim": 4,
            "q_lora_rank": None,
            "kv_lora_rank": 16,
            "qk_rope_head_dim": 4,
            "qk_nope_head_dim": 8,
            "v_head_dim": 8,
            "moe_intermediate_size": 16,
            "num_experts": 4,
            "num_experts_per_token": 2,
            "mlp_layer_types": ["dense", "sparse", "sparse"],
            "layer_types": [LINEAR, FULL, LINEAR],
            "linear_head_dim": 8,
            "linear_num_heads": 4,
            "model_max_length": 512,
        },
        seed=4,
    ),
)

CONVOLUTION_FAMILIES = (
    TinyFamily(
        key="lfm2",
        title="LFM2, LFM2.5",
        model_type="lfm2",
        examples=("LiquidAI/LFM2-1.2B", "LiquidAI/LFM2.5-1.2B-Instruct"),
        layers="short convolutions and full attention",
        shape={"layer_types": ["conv", FULL, "conv"], "block_multiple_of": 8},
        seed=1,
    ),
    TinyFamily(
        key="lfm2_moe",
        title="LFM2 (experts)",
        model_type="lfm2_moe",
        examples=("LiquidAI/LFM2-8B-A1B",),
        layers="short convolutions and full attention; dense and expert feed-forwards",
        shape=EXPERTS | {"layer_types": ["conv", FULL, "conv"], "num_dense_layers": 1},
        seed=7,
    ),
)

STATE_SPACE_FAMILIES = (
    TinyFamily(
        key="granite4",
        title="Granite 4 (hybrid)",
        model_type="granitemoehybrid",
        examples=("ibm-granite/granite-4.0-h-tiny", "ibm-granite/granite-4.0-h-small"),
        layers="Mamba-2 and full attention without rotary positions; experts",
        shape=MAMBA2_LAYERS
        | {
            "layer_types": [LINEAR, FULL, LINEAR],
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "shared_intermediate_size": 16,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.5,
            "attention_multiplier": 0.3,
            "logits_scaling": 2.0,
        },
        seed=1,
    ),
    TinyFamily(
        key="nemotron_h",
        title="Nemotron-H, Nemotron 3",
        model_type="nemotron_h",
        examples=("nvidia/Nemotron-H-8B-Reasoning-128K", "nvidia/NVIDIA-Nemotron-Nano-9B-v2"),
        layers="Mamba-2, full attention, dense and expert feed-forwards, each a layer of its own",
        shape={
            "num_hidden_layers": 5,
            "layers_block_type": [LINEAR, "moe", FULL, "mlp", LINEAR],
            "ssm_state_size": 8,
            "mamba_num_heads": 4,
            "mamba_head_dim": 16,
            "n_groups": 2,
            "conv_kernel": 4,
            "chunk_size": 8,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "moe_shared_expert_intermediate_size": 16,
        },
    ),
    TinyFamily(
        key="zamba2",
        title="Zamba2",
        model_type="zamba2",
        examples=("Zyphra/Zamba2-2.7B-instruct",),
        layers="Mamba-2, and blocks of attention that share their weights",
        shape={
            "num_hidden_layers": 4,
            "layers_block_type": [LINEAR, "hybrid", LINEAR, "hybrid"],
            "mamba_d_state": 8,
            "mamba_d_conv": 4,
            "mamba_expand": 2,
            "mamba_ngroups": 1,
            "n_mamba_heads": 4,
            "mamba_headdim": 16,
            "chunk_size": 8,
            "num_mem_blocks": 1,
            "use_mem_rope": True,
            "attention_hidden_size": 64,
            "attention_head_dim": 16,
            "kv_channels": 8,
            "num_query_groups": 4,
            "num_key_value_heads": 4,
        },
        seed=9,
    ),
    TinyFamily(
        key="falcon_h1",
        title="Falcon-H1",
        model_type="falcon_h1",
        examples=("tiiuae/Falcon-H1-1.5B-Instruct",),
        layers="Mamba-2 and full attention side by side in every layer",
        shape=MAMBA2_LAYERS | {"mamba_d_ssm": 64},
        seed=1,
    ),
    TinyFamily(
        key="bamba",
        title="Bamba",
        model_type="bamba",
        examples=("ibm-ai-platform/Bamba-9B-v2",),
        layers="Mamba-2 and full attention",
        shape=MAMBA2_LAYERS | {"attn_layer_indices": [1]},
        seed=3,
    ),
    TinyFamily(
        key="jamba",
        title="Jamba",
        model_type="jamba",
        examples=("ai21labs/AI21-Jamba-Mini-1.7",),
        layers="Mamba and full attention; dense and expert feed-forwards",
        shape={
            "num_hidden_layers": 4,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "mamba_d_state": 8,
            "mamba_dt_rank": 4,
            "use_mamba_kernels": False,
        },
        seed=4,
    ),
    TinyFamily(
        key="mamba",
        title="Mamba",
        model_type="mamba",
        examples=("state-spaces/mamba-2.8b-hf",),
        layers="Mamba alone",
        shape={"state_size": 8, "time_step_rank": 4},
        attn="eager",
        seed=1,
    ),
    TinyFamily(
        key="mamba2",
        title="Mamba-2",
        model_type="mamba2",
        examples=("mistralai/Mamba-Codestral-7B-v0.1",),
        layers="Mamba-2 alone",
        shape={
            "num_heads": 4,
            "head_dim": 16,
            "state_size": 8,
            "n_groups": 1,
            "chunk_size": 8,
            "time_step_rank": 4,
        },
        attn="eager",
        seed=1,
    ),
    TinyFamily(
        key="recurrent_gemma",
        title="RecurrentGemma",
        model_type="recurrent_gemma",
        examples=("google/recurrentgemma-2b-it",),
        layers="gated linear recurrence and sliding attention",
        shape={
            "block_types": ["recurrent", "attention"],
            "lru_width": 32,
            "attention_window_size": WINDOW,
            "conv1d_width": 4,
        },
        refused="its recurrent state lies in its modules",
        seed=3,
    ),
    TinyFamily(
        key="minimax",
        title="MiniMax-Text-01, MiniMax-M1",
        model_type="minimax",
        examples=("MiniMaxAI/MiniMax-Text-01-hf",),
        layers="lightning attention and full attention; experts",
        shape={
            "layer_types": [LINEAR, FULL, LINEAR],
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "block_size": 4,
        },
        refused="the state of its lightning attention lies in a cache of its own",
    ),
)
