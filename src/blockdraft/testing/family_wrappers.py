"""Tiny vision-language wrappers around families that decode: only their text part is looked at.

Families without a vision part have modules of their own.
"""

from blockdraft.testing.family_attention import DENSE_FAMILIES, FULL, SLIDING
from blockdraft.testing.family_entry import TINY_VISION, WINDOW, TinyFamily
from blockdraft.testing.family_experts import EXPERT_FAMILIES, LATENT
from blockdraft.testing.family_recurrent import QWEN3_5_MOE_TEXT, QWEN3_5_TEXT

TEXT_SHAPES = {family.key: family.shape for family in (*DENSE_FAMILIES, *EXPERT_FAMILIES)}

QWEN_VISION: dict[str, object] = {
    "depth": 1,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_heads": 2,
    "out_hidden_size": 32,
    "num_position_embeddings": 16,
}

WRAPPER_FAMILIES = (
    TinyFamily(
        key="qwen3_5_vl",
        title="Qwen3.5, Qwen3.6 (with vision, dense)",
        model_type="qwen3_5",
        examples=("Qwen/Qwen3.5-4B", "Qwen/Qwen3.6-27B"),
        layers="gated delta-net and full attention",
        shape=QWEN3_5_TEXT,
        vision=QWEN_VISION,
        seed=7,
    ),
    TinyFamily(
        key="qwen3_5_moe_vl",
        title="Qwen3.5, Qwen3.6 (with vision, experts)",
        model_type="qwen3_5_moe",
        examples=("Qwen/Qwen3.5-35B-A3B", "Qwen/Qwen3.6-35B-A3B"),
        layers="gated delta-net and full attention; experts",
        shape=QWEN3_5_MOE_TEXT,
        vision=QWEN_VISION,
    ),
    TinyFamily(
        key="qwen3_vl",
        title="Qwen3-VL",
        model_type="qwen3_vl",
        examples=("Qwen/Qwen3-VL-8B-Instruct",),
        layers="full attention, multimodal rotary positions",
        shape={
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10_000.0,
                "mrope_interleaved": True,
                "mrope_section": [2, 1, 1],
            }
        },
        vision=QWEN_VISION | {"deepstack_visual_indexes": [0]},
        seed=1,
    ),
    TinyFamily(
        key="gemma3_vl",
        title="Gemma 3 (with vision)",
        model_type="gemma3",
        examples=("google/gemma-3-4b-it", "google/gemma-3-27b-it"),
        layers="sliding and full attention by turns, two rotary bases, scaled embeddings",
        shape=TEXT_SHAPES["gemma3"],
        vision=TINY_VISION | {"image_size": 28, "patch_size": 14},
    ),
    TinyFamily(
        key="gemma4_vl",
        title="Gemma 4 (with vision)",
        model_type="gemma4",
        examples=("google/gemma-4-E4B-it",),
        layers="sliding and full attention, shared keys and values, per-layer inputs, soft-cap",
        shape=TEXT_SHAPES["gemma4"],
        vision=TINY_VISION | {"head_dim": 8, "num_key_value_heads": 2},
        seed=1,
    ),
    TinyFamily(
        key="gemma4_moe_vl",
        title="Gemma 4 (with vision, experts)",
        model_type="gemma4",
        examples=("google/gemma-4-26B-A4B-it", "google/gemma-4-31B-it"),
        layers="sliding and full attention, values equal to keys; experts beside a dense part",
        shape=TEXT_SHAPES["gemma4_moe"],
        vision=TINY_VISION | {"head_dim": 8, "num_key_value_heads": 2},
        seed=3,
    ),
    TinyFamily(
        key="gemma4_unified",
        title="Gemma 4 (12B)",
        model_type="gemma4_unified",
        examples=("google/gemma-4-12B-it",),
        layers="sliding and full attention, soft-cap, scaled embeddings",
        shape={
            "sliding_window": WINDOW,
            "layer_types": [SLIDING, SLIDING, FULL],
            "final_logit_softcapping": 8.0,
        },
        vision={"mm_embed_dim": 16, "output_proj_dims": 16, "mm_posemb_size": 16},
        seed=1,
    ),
    TinyFamily(
        key="glm5_next",
        title="GLM-5.3-Flash",
        model_type="glm5_next",
        examples=("zai-org/GLM-5.3-Flash",),
        layers="gated delta-net, and latent attention over the keys that an indexer picks; several "
        "residual streams; experts",
        shape=LATENT
        | {
            "qk_rope_head_dim": 0,
            # The fourth layer has the index, whatever this version of transformers calls it.
            "num_hidden_layers": 4,
            "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
            "index_topk": 8,
            "index_head_dim": 8,
            "index_n_heads": 16,
            "index_kpool": 2,
            "linear_head_dim": 8,
            "linear_num_heads": 4,
        },
        vision=QWEN_VISION | {"projection_intermediate_size": 16, "image_size": 28},
        seed=1,
        taps=False,
    ),
    TinyFamily(
        key="kimi_k25",
        title="Kimi-K2.5, Kimi-K2.6",
        model_type="kimi_k25",
        examples=("moonshotai/Kimi-K2.5", "moonshotai/Kimi-K2.6"),
        layers="latent attention, YaRN; dense and expert feed-forwards",
        shape=TEXT_SHAPES["kimi_k2"],
        vision=TINY_VISION | {"pos_emb_height": 4, "pos_emb_width": 4},
    ),
    TinyFamily(
        key="mistral3",
        title="Mistral Small 3.x (with vision)",
        model_type="mistral3",
        examples=("mistralai/Mistral-Small-3.2-24B-Instruct-2506",),
        layers="full attention",
        shape={"sliding_window": None},
        vision=TINY_VISION | {"head_dim": 8, "image_size": 28, "patch_size": 14},
    ),
    TinyFamily(
        key="muse_glimmer",
        title="Muse-Glimmer",
        model_type="muse_glimmer",
        examples=("meta-models/Muse-Glimmer-30B",),
        layers="sliding attention, full attention without rotary positions, soft-cap, output "
        "multiplier",
        shape={
            "num_hidden_layers": 4,
            "sliding_window": WINDOW,
            "layer_types": [SLIDING, FULL, SLIDING, FULL],
            "layer_rope_theta": [10_000.0, 0, 10_000.0, 0],
            "qk_scale_factor": 2.0,
        },
        vision=TINY_VISION,
        wrapper={"out_hidden_size": 16, "projector_hidden_size": 16},
        seed=3,
    ),
    TinyFamily(
        key="muse_spark",
        title="Muse-Spark-Open",
        model_type="muse_spark",
        examples=("meta-models/Muse-Spark-Open-816B-A42B",),
        layers="sliding attention, full attention without rotary positions, soft-cap, output "
        "multiplier; experts",
        shape={
            "num_hidden_layers": 4,
            "sliding_window": WINDOW,
            "layer_types": [SLIDING, FULL, SLIDING, FULL],
            "layer_rope_theta": [10_000.0, 0, 10_000.0, 0],
            "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
            "qk_scale_factor": 2.0,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "moe_hidden_size": 16,
        },
        vision=TINY_VISION,
        wrapper={
            "out_hidden_size": 16,
            "projector_hidden_size": 16,
            "audio_config": {"hidden_sizes": [8] * 4, "depths": [1] * 4, "out_hidden_size": 32},
        },
        seed=1,
        newer_than="5.17.0",
    ),
)
