"""The zoo's language models: encoders, decoders, mixtures of experts, state spaces, encoder-decoders."""

from __future__ import annotations

import torch
from zoo_entries import Batch, register

LM = dict(vocab_size=80, hidden_size=32, num_hidden_layers=2, num_attention_heads=2)
ENCODER = {**LM, "intermediate_size": 48, "max_position_embeddings": 40}
DECODER = {**ENCODER, "num_key_value_heads": 1, "bos_token_id": 0, "eos_token_id": 0}
DECODER |= {"pad_token_id": 0, "use_cache": False}
SEQ2SEQ = dict(
    vocab_size=80,
    d_model=32,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=2,
    decoder_attention_heads=2,
    encoder_ffn_dim=48,
    decoder_ffn_dim=48,
    max_position_embeddings=40,
    bos_token_id=0,
    eos_token_id=2,
    pad_token_id=1,
    decoder_start_token_id=2,
    use_cache=False,
)
T5 = dict(vocab_size=80, d_model=32, d_kv=16, d_ff=48, num_layers=2, num_heads=2)
T5 |= {"decoder_start_token_id": 0, "use_cache": False}


def random_tokens(g: torch.Generator) -> torch.Tensor:
    return torch.randint(3, 80, (2, 20), generator=g)


def language(g: torch.Generator) -> Batch:
    tokens = random_tokens(g)
    return {"input_ids": tokens, "labels": tokens}


def masked(g: torch.Generator) -> Batch:
    tokens = random_tokens(g)
    mask = torch.ones_like(tokens)
    mask[1, 15:] = 0
    labels = tokens.masked_fill(torch.rand(tokens.size(), generator=g) > 0.3, -100)
    return {"input_ids": tokens, "attention_mask": mask, "labels": labels}


def unmasked(g: torch.Generator) -> Batch:
    """No attention mask at all: most models make one from sizes alone."""
    return {k: v for k, v in masked(g).items() if k != "attention_mask"}


def translated(g: torch.Generator) -> Batch:
    return {"input_ids": random_tokens(g), "labels": torch.randint(3, 80, (2, 12), generator=g)}


register(
    "encoder",
    ("bert", "BertConfig", "BertForMaskedLM", ENCODER, masked),
    ("roberta", "RobertaConfig", "RobertaForMaskedLM", ENCODER, masked),
    (
        "distilbert",
        "DistilBertConfig",
        "DistilBertForMaskedLM",
        dict(
            vocab_size=80,
            dim=32,
            n_layers=2,
            n_heads=2,
            hidden_dim=48,
            max_position_embeddings=40,
        ),
        masked,
    ),
    ("albert", "AlbertConfig", "AlbertForMaskedLM", {**ENCODER, "embedding_size": 16}, masked),
    (
        "electra",
        "ElectraConfig",
        "ElectraForMaskedLM",
        {**ENCODER, "embedding_size": 16},
        masked,
    ),
    (
        "deberta_v2",
        "DebertaV2Config",
        "DebertaV2ForMaskedLM",
        {
            **ENCODER,
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "max_relative_positions": 8,
        },
        masked,
    ),
    (
        "modernbert",
        "ModernBertConfig",
        "ModernBertForMaskedLM",
        {**ENCODER, "local_attention": 8, "pad_token_id": 0, "reference_compile": False}
        | {"bos_token_id": 0, "eos_token_id": 0, "cls_token_id": 0, "sep_token_id": 0},
        masked,
    ),
    ("mpnet", "MPNetConfig", "MPNetForMaskedLM", ENCODER, masked),
    ("fnet", "FNetConfig", "FNetForMaskedLM", ENCODER, unmasked),
    (
        "squeezebert",
        "SqueezeBertConfig",
        "SqueezeBertForMaskedLM",
        {**ENCODER, "embedding_size": 32},
        masked,
    ),
    (
        "nystromformer",
        "NystromformerConfig",
        "NystromformerForMaskedLM",
        {**ENCODER, "num_landmarks": 5, "segment_means_seq_len": 20},
        unmasked,
    ),
    (
        "longformer",
        "LongformerConfig",
        "LongformerForMaskedLM",
        {**ENCODER, "attention_window": 4, "max_position_embeddings": 64},
        masked,
    ),
    (
        "xlnet",
        "XLNetConfig",
        "XLNetLMHeadModel",
        dict(vocab_size=80, d_model=32, n_layer=2, n_head=2, d_inner=48),
        unmasked,
    ),
)

register(
    "decoder",
    (
        "gpt2",
        "GPT2Config",
        "GPT2LMHeadModel",
        dict(vocab_size=80, n_embd=32, n_layer=2, n_head=2, n_positions=40, use_cache=False),
        language,
    ),
    (
        "gpt_neo",
        "GPTNeoConfig",
        "GPTNeoForCausalLM",
        {
            **DECODER,
            "num_layers": 2,
            "num_heads": 2,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 8,
        },
        language,
    ),
    ("gpt_neox", "GPTNeoXConfig", "GPTNeoXForCausalLM", DECODER, language),
    (
        "opt",
        "OPTConfig",
        "OPTForCausalLM",
        {**DECODER, "ffn_dim": 48, "word_embed_proj_dim": 32},
        language,
    ),
    (
        "bloom",
        "BloomConfig",
        "BloomForCausalLM",
        dict(vocab_size=80, hidden_size=32, n_layer=2, n_head=2, use_cache=False),
        language,
    ),
    ("llama", "LlamaConfig", "LlamaForCausalLM", DECODER, language),
    ("mistral", "MistralConfig", "MistralForCausalLM", {**DECODER, "sliding_window": 8}, language),
    ("qwen2", "Qwen2Config", "Qwen2ForCausalLM", DECODER, language),
    ("qwen3", "Qwen3Config", "Qwen3ForCausalLM", {**DECODER, "head_dim": 16}, language),
    (
        "gemma2",
        "Gemma2Config",
        "Gemma2ForCausalLM",
        {**DECODER, "head_dim": 16, "sliding_window": 8},
        language,
    ),
    (
        "gemma3",
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        {**DECODER, "head_dim": 16, "sliding_window": 8},
        language,
    ),
    ("phi", "PhiConfig", "PhiForCausalLM", {**DECODER, "num_key_value_heads": 2}, language),
    ("phi3", "Phi3Config", "Phi3ForCausalLM", DECODER, language),
    ("falcon", "FalconConfig", "FalconForCausalLM", {**DECODER, "alibi": False}, language),
    ("stablelm", "StableLmConfig", "StableLmForCausalLM", DECODER, language),
    ("olmo2", "Olmo2Config", "Olmo2ForCausalLM", DECODER, language),
    ("cohere", "CohereConfig", "CohereForCausalLM", DECODER, language),
    (
        "codegen",
        "CodeGenConfig",
        "CodeGenForCausalLM",
        dict(
            vocab_size=80,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=40,
            n_ctx=40,
            rotary_dim=4,
            use_cache=False,
        ),
        language,
    ),
    ("smollm3", "SmolLM3Config", "SmolLM3ForCausalLM", DECODER, language),
)

FEW = {**DECODER, "num_local_experts": 4, "num_experts_per_tok": 2}
FINE = {**DECODER, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
register(
    "mixture of experts",
    ("mixtral", "MixtralConfig", "MixtralForCausalLM", FEW, language),
    (
        "qwen2_moe",
        "Qwen2MoeConfig",
        "Qwen2MoeForCausalLM",
        {**FINE, "shared_expert_intermediate_size": 24},
        language,
    ),
    ("qwen3_moe", "Qwen3MoeConfig", "Qwen3MoeForCausalLM", {**FINE, "head_dim": 16}, language),
    ("olmoe", "OlmoeConfig", "OlmoeForCausalLM", FINE, language),
    ("granitemoe", "GraniteMoeConfig", "GraniteMoeForCausalLM", FEW, language),
    (
        "deepseek_v3",
        "DeepseekV3Config",
        "DeepseekV3ForCausalLM",
        {
            **DECODER,
            "num_key_value_heads": 2,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "n_group": 2,
            "topk_group": 1,
            "first_k_dense_replace": 1,
            "q_lora_rank": 16,
            "kv_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8,
            "v_head_dim": 16,
            "n_shared_experts": 1,
        },
        language,
    ),
    (
        "gpt_oss",
        "GptOssConfig",
        "GptOssForCausalLM",
        {**FEW, "head_dim": 16, "sliding_window": 8},
        language,
    ),
    (
        "switch",
        "SwitchTransformersConfig",
        "SwitchTransformersForConditionalGeneration",
        {
            **T5,
            "num_experts": 4,
            "num_sparse_encoder_layers": 1,
            "num_sparse_decoder_layers": 1,
            "num_decoder_layers": 2,
        },
        translated,
    ),
)

SMALL = dict(vocab_size=80, hidden_size=32, num_hidden_layers=2, use_cache=False)
register(
    "state space and recurrent",
    ("mamba", "MambaConfig", "MambaForCausalLM", {**SMALL, "state_size": 4}, language),
    (
        "mamba2",
        "Mamba2Config",
        "Mamba2ForCausalLM",
        {
            **SMALL,
            "state_size": 8,
            "num_heads": 4,
            "head_dim": 16,
            "n_groups": 1,
            "chunk_size": 8,
        },
        language,
    ),
    (
        "falcon_mamba",
        "FalconMambaConfig",
        "FalconMambaForCausalLM",
        {**SMALL, "state_size": 4},
        language,
    ),
    (
        "rwkv",
        "RwkvConfig",
        "RwkvForCausalLM",
        {**SMALL, "attention_hidden_size": 32, "intermediate_size": 48, "context_length": 40},
        language,
    ),
    (
        "recurrent_gemma",
        "RecurrentGemmaConfig",
        "RecurrentGemmaForCausalLM",
        {**DECODER, "lru_width": 32, "attention_window_size": 8, "num_hidden_layers": 3},
        language,
    ),
    (
        "jamba",
        "JambaConfig",
        "JambaForCausalLM",
        {
            **DECODER,
            "num_experts": 2,
            "num_experts_per_tok": 1,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "mamba_d_state": 4,
            "mamba_dt_rank": 4,
            "use_mamba_kernels": False,
        },
        language,
    ),
    (
        "lfm2",
        "Lfm2Config",
        "Lfm2ForCausalLM",
        {
            **DECODER,
            "layer_types": ["conv", "full_attention"],
            "block_ffn_dim_multiplier": 1.0,
            "block_auto_adjust_ff_dim": False,
        },
        language,
    ),
)

register(
    "encoder-decoder",
    ("t5", "T5Config", "T5ForConditionalGeneration", T5, translated),
    ("bart", "BartConfig", "BartForConditionalGeneration", SEQ2SEQ, translated),
    ("pegasus", "PegasusConfig", "PegasusForConditionalGeneration", SEQ2SEQ, translated),
    ("marian", "MarianConfig", "MarianMTModel", SEQ2SEQ, translated),
    (
        "m2m_100",
        "M2M100Config",
        "M2M100ForConditionalGeneration",
        {**SEQ2SEQ, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0},
        translated,
    ),
    (
        "longt5",
        "LongT5Config",
        "LongT5ForConditionalGeneration",
        {**T5, "num_decoder_layers": 2, "local_radius": 3, "encoder_attention_type": "local"},
        translated,
    ),
)
