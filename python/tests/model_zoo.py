"""Models of many kinds at tiny sizes, each with a training step: what `docs/models.md` is measured on.

run = ZOO["bert"].make()         # a Training with three batches; the same each time
run.step(*run.batches[0])

Those of `transformers` are built from their own configurations with random weights; nothing is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from step_models import Training, unet
from torch import nn
from torch.nn import functional

STEPS = 3
Batch = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Entry:
    """A model of the zoo: its kind, as people sort them, and a training run at its start."""

    name: str
    kind: str
    make: Callable[[], Training]


ZOO: dict[str, Entry] = {}


def _add(kind: str) -> Callable[[Callable[[], Training]], Callable[[], Training]]:
    def add(make: Callable[[], Training]) -> Callable[[], Training]:
        name = make.__name__
        ZOO[name] = Entry(name, kind, make)
        return make

    return add


# -- transformers: a configuration class, its sizes, a model class and a batch ----------------------
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
VISION = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48)
VISION |= {"image_size": 32, "patch_size": 8, "num_labels": 5}
AUDIO = dict(
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=48,
    conv_dim=(16, 16, 16),
    conv_stride=(5, 4, 2),
    conv_kernel=(10, 8, 3),
    num_conv_pos_embeddings=16,
    num_conv_pos_embedding_groups=2,
    num_feat_extract_layers=3,
    mask_time_prob=0.0,
    layerdrop=0.0,
    vocab_size=20,
)
MIXTURE = dict(num_local_experts=4, num_experts_per_tok=2)


def _tokens(g: torch.Generator) -> torch.Tensor:
    return torch.randint(3, 80, (2, 20), generator=g)


def language(g: torch.Generator) -> Batch:
    tokens = _tokens(g)
    return {"input_ids": tokens, "labels": tokens}


def masked(g: torch.Generator) -> Batch:
    tokens = _tokens(g)
    mask = torch.ones_like(tokens)
    mask[1, 15:] = 0
    labels = tokens.masked_fill(torch.rand(tokens.size(), generator=g) > 0.3, -100)
    return {"input_ids": tokens, "attention_mask": mask, "labels": labels}


def unmasked(g: torch.Generator) -> Batch:
    """No attention mask at all: most models make one from sizes alone."""
    return {k: v for k, v in masked(g).items() if k != "attention_mask"}


def translated(g: torch.Generator) -> Batch:
    return {"input_ids": _tokens(g), "labels": torch.randint(3, 80, (2, 12), generator=g)}


def pictures(g: torch.Generator) -> Batch:
    images = torch.randn(4, 3, 32, 32, generator=g)
    return {"pixel_values": images, "labels": torch.randint(0, 5, (4,), generator=g)}


def segmented(g: torch.Generator) -> Batch:
    images = torch.randn(2, 3, 32, 32, generator=g)
    return {"pixel_values": images, "labels": torch.randint(0, 5, (2, 32, 32), generator=g)}


def pictures_alone(g: torch.Generator) -> Batch:
    return {"pixel_values": torch.randn(4, 3, 32, 32, generator=g)}


def sound(g: torch.Generator) -> Batch:
    waves = torch.randn(2, 1600, generator=g)
    return {"input_values": waves, "labels": torch.randint(0, 5, (2,), generator=g)}


def spoken(g: torch.Generator) -> Batch:
    waves = torch.randn(2, 1600, generator=g)
    return {"input_values": waves, "labels": torch.randint(1, 20, (2, 6), generator=g)}


def spectrum(g: torch.Generator) -> Batch:
    features = torch.randn(2, 8, 40, generator=g)
    return {"input_features": features, "labels": torch.randint(3, 80, (2, 10), generator=g)}


def pairs(g: torch.Generator) -> Batch:
    images = torch.randn(2, 3, 32, 32, generator=g)
    return {"input_ids": _tokens(g), "pixel_values": images}


def _transformers(
    name: str,
    kind: str,
    config_name: str,
    model_name: str,
    sizes: dict[str, Any],
    batch: Callable[[torch.Generator], Batch],
) -> None:
    """A model of the library. The loss is its own, with a mean of its outputs where it has none."""

    def make() -> Training:
        import transformers

        torch.manual_seed(3)
        config = getattr(transformers, config_name)(**sizes)
        model = getattr(transformers, model_name)(config).train()
        optimizer = torch.optim.AdamW(model.parameters())
        generator = torch.Generator().manual_seed(4)
        made = [batch(generator) for _ in range(STEPS)]
        keys = list(made[0])
        more = {"return_loss": True} if config_name in ("CLIPConfig", "SiglipConfig") else {}

        def step(*tensors: torch.Tensor) -> torch.Tensor:
            loss = model(**dict(zip(keys, tensors)), **more).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return Training(model, optimizer, step, [tuple(b.values()) for b in made])

    ZOO[name] = Entry(name, kind, make)


def _register_encoders() -> None:
    kind = "encoder"
    for name, config, model, sizes, batch in (
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
    ):
        _transformers(name, kind, config, model, sizes, batch)


def _register_decoders() -> None:
    kind = "decoder"
    for name, config, model, sizes in (
        (
            "gpt2",
            "GPT2Config",
            "GPT2LMHeadModel",
            dict(vocab_size=80, n_embd=32, n_layer=2, n_head=2, n_positions=40, use_cache=False),
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
            }
            | {"window_size": 8},
        ),
        ("gpt_neox", "GPTNeoXConfig", "GPTNeoXForCausalLM", DECODER),
        (
            "opt",
            "OPTConfig",
            "OPTForCausalLM",
            {**DECODER, "ffn_dim": 48, "word_embed_proj_dim": 32},
        ),
        (
            "bloom",
            "BloomConfig",
            "BloomForCausalLM",
            dict(vocab_size=80, hidden_size=32, n_layer=2, n_head=2, use_cache=False),
        ),
        ("llama", "LlamaConfig", "LlamaForCausalLM", DECODER),
        ("mistral", "MistralConfig", "MistralForCausalLM", {**DECODER, "sliding_window": 8}),
        ("qwen2", "Qwen2Config", "Qwen2ForCausalLM", DECODER),
        ("qwen3", "Qwen3Config", "Qwen3ForCausalLM", {**DECODER, "head_dim": 16}),
        (
            "gemma2",
            "Gemma2Config",
            "Gemma2ForCausalLM",
            {**DECODER, "head_dim": 16, "sliding_window": 8},
        ),
        (
            "gemma3",
            "Gemma3TextConfig",
            "Gemma3ForCausalLM",
            {**DECODER, "head_dim": 16, "sliding_window": 8},
        ),
        ("phi", "PhiConfig", "PhiForCausalLM", {**DECODER, "num_key_value_heads": 2}),
        ("phi3", "Phi3Config", "Phi3ForCausalLM", DECODER),
        ("falcon", "FalconConfig", "FalconForCausalLM", {**DECODER, "alibi": False}),
        ("stablelm", "StableLmConfig", "StableLmForCausalLM", DECODER),
        ("olmo2", "Olmo2Config", "Olmo2ForCausalLM", DECODER),
        ("cohere", "CohereConfig", "CohereForCausalLM", DECODER),
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
        ),
        ("smollm3", "SmolLM3Config", "SmolLM3ForCausalLM", DECODER),
    ):
        _transformers(name, kind, config, model, sizes, language)


def _register_mixtures() -> None:
    kind = "mixture of experts"
    few = {**DECODER, **MIXTURE}
    fine = {**DECODER, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
    for name, config, model, sizes in (
        ("mixtral", "MixtralConfig", "MixtralForCausalLM", few),
        (
            "qwen2_moe",
            "Qwen2MoeConfig",
            "Qwen2MoeForCausalLM",
            {**fine, "shared_expert_intermediate_size": 24},
        ),
        ("qwen3_moe", "Qwen3MoeConfig", "Qwen3MoeForCausalLM", {**fine, "head_dim": 16}),
        ("olmoe", "OlmoeConfig", "OlmoeForCausalLM", fine),
        ("granitemoe", "GraniteMoeConfig", "GraniteMoeForCausalLM", few),
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
        ),
        (
            "gpt_oss",
            "GptOssConfig",
            "GptOssForCausalLM",
            {**DECODER, **MIXTURE, "head_dim": 16, "sliding_window": 8},
        ),
    ):
        _transformers(name, kind, config, model, sizes, language)
    _transformers(
        "switch",
        kind,
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
    )


def _register_states() -> None:
    kind = "state space and recurrent"
    small = dict(vocab_size=80, hidden_size=32, num_hidden_layers=2, use_cache=False)
    for name, config, model, sizes in (
        ("mamba", "MambaConfig", "MambaForCausalLM", {**small, "state_size": 4}),
        (
            "mamba2",
            "Mamba2Config",
            "Mamba2ForCausalLM",
            {
                **small,
                "state_size": 8,
                "num_heads": 4,
                "head_dim": 16,
                "n_groups": 1,
                "chunk_size": 8,
            },
        ),
        ("falcon_mamba", "FalconMambaConfig", "FalconMambaForCausalLM", {**small, "state_size": 4}),
        (
            "rwkv",
            "RwkvConfig",
            "RwkvForCausalLM",
            {**small, "attention_hidden_size": 32, "intermediate_size": 48, "context_length": 40},
        ),
        (
            "recurrent_gemma",
            "RecurrentGemmaConfig",
            "RecurrentGemmaForCausalLM",
            {**DECODER, "lru_width": 32, "attention_window_size": 8, "num_hidden_layers": 3},
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
        ),
    ):
        _transformers(name, kind, config, model, sizes, language)


def _register_sequences() -> None:
    kind = "encoder-decoder"
    for name, config, model, sizes in (
        ("t5", "T5Config", "T5ForConditionalGeneration", T5),
        ("bart", "BartConfig", "BartForConditionalGeneration", SEQ2SEQ),
        ("pegasus", "PegasusConfig", "PegasusForConditionalGeneration", SEQ2SEQ),
        ("marian", "MarianConfig", "MarianMTModel", SEQ2SEQ),
        (
            "m2m_100",
            "M2M100Config",
            "M2M100ForConditionalGeneration",
            {**SEQ2SEQ, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0},
        ),
        (
            "longt5",
            "LongT5Config",
            "LongT5ForConditionalGeneration",
            {**T5, "num_decoder_layers": 2, "local_radius": 3, "encoder_attention_type": "local"},
        ),
    ):
        _transformers(name, kind, config, model, sizes, translated)


def _register_visions() -> None:
    kind = "vision"
    for name, config, model, sizes, batch in (
        ("vit", "ViTConfig", "ViTForImageClassification", VISION, pictures),
        ("deit", "DeiTConfig", "DeiTForImageClassification", VISION, pictures),
        ("beit", "BeitConfig", "BeitForImageClassification", VISION, pictures),
        ("dinov2", "Dinov2Config", "Dinov2ForImageClassification", VISION, pictures),
        (
            "swin",
            "SwinConfig",
            "SwinForImageClassification",
            dict(image_size=32, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 2])
            | {"window_size": 4, "num_labels": 5},
            pictures,
        ),
        (
            "convnext",
            "ConvNextConfig",
            "ConvNextForImageClassification",
            dict(num_stages=2, hidden_sizes=[16, 32], depths=[1, 1], num_labels=5),
            pictures,
        ),
        (
            "resnet",
            "ResNetConfig",
            "ResNetForImageClassification",
            dict(embedding_size=8, hidden_sizes=[16, 32], depths=[1, 1], num_labels=5)
            | {"layer_type": "basic"},
            pictures,
        ),
        (
            "mobilenet_v2",
            "MobileNetV2Config",
            "MobileNetV2ForImageClassification",
            dict(image_size=32, depth_multiplier=0.25, num_labels=5),
            pictures,
        ),
        (
            "segformer",
            "SegformerConfig",
            "SegformerForSemanticSegmentation",
            dict(
                num_encoder_blocks=2,
                depths=[1, 1],
                sr_ratios=[2, 1],
                hidden_sizes=[16, 32],
                patch_sizes=[7, 3],
                strides=[4, 2],
                num_attention_heads=[1, 2],
                mlp_ratios=[2, 2],
                decoder_hidden_size=16,
                num_labels=5,
            ),
            segmented,
        ),
        (
            "vit_mae",
            "ViTMAEConfig",
            "ViTMAEForPreTraining",
            {
                **VISION,
                "decoder_hidden_size": 16,
                "decoder_num_hidden_layers": 1,
                "decoder_num_attention_heads": 2,
                "decoder_intermediate_size": 24,
            },
            pictures_alone,
        ),
        (
            "poolformer",
            "PoolFormerConfig",
            "PoolFormerForImageClassification",
            dict(
                hidden_sizes=[16, 32],
                depths=[1, 1],
                patch_sizes=[7, 3],
                strides=[4, 2],
                padding=[2, 1],
                num_encoder_blocks=2,
                num_labels=5,
            ),
            pictures,
        ),
    ):
        _transformers(name, kind, config, model, sizes, batch)


def _register_sounds() -> None:
    kind = "audio"
    classify = {**AUDIO, "num_labels": 5, "classifier_proj_size": 16}
    for name, config, model, sizes, batch in (
        ("wav2vec2", "Wav2Vec2Config", "Wav2Vec2ForSequenceClassification", classify, sound),
        ("wav2vec2_ctc", "Wav2Vec2Config", "Wav2Vec2ForCTC", AUDIO, spoken),
        ("hubert", "HubertConfig", "HubertForSequenceClassification", classify, sound),
        ("wavlm", "WavLMConfig", "WavLMForSequenceClassification", classify, sound),
        (
            "whisper",
            "WhisperConfig",
            "WhisperForConditionalGeneration",
            {**SEQ2SEQ, "num_mel_bins": 8, "max_source_positions": 20, "max_target_positions": 20},
            spectrum,
        ),
        (
            "speech_to_text",
            "Speech2TextConfig",
            "Speech2TextForConditionalGeneration",
            {
                **SEQ2SEQ,
                "input_feat_per_channel": 40,
                "max_source_positions": 20,
                "max_target_positions": 20,
                "num_conv_layers": 2,
                "conv_channels": 16,
                "encoder_layerdrop": 0.0,
                "decoder_layerdrop": 0.0,
            },
            spectrum,
        ),
        (
            "ast",
            "ASTConfig",
            "ASTForAudioClassification",
            {
                **VISION,
                "max_length": 40,
                "num_mel_bins": 16,
                "patch_size": 8,
                "frequency_stride": 8,
                "time_stride": 8,
            },
            lambda g: {
                "input_values": torch.randn(2, 40, 16, generator=g),
                "labels": torch.randint(0, 5, (2,), generator=g),
            },
        ),
    ):
        _transformers(name, kind, config, model, sizes, batch)


def _register_pairs() -> None:
    kind = "multi-modal"
    text = {**ENCODER, "eos_token_id": 2, "bos_token_id": 0, "pad_token_id": 1}
    seen = {k: v for k, v in VISION.items() if k != "num_labels"}
    both = dict(text_config=text, vision_config=seen)
    _transformers("clip", kind, "CLIPConfig", "CLIPModel", {**both, "projection_dim": 16}, pairs)
    _transformers("siglip", kind, "SiglipConfig", "SiglipModel", both, pairs)
    vilt = {**ENCODER, "image_size": 32, "patch_size": 8, "max_image_length": -1, "num_labels": 5}
    _transformers(
        "vilt",
        kind,
        "ViltConfig",
        "ViltForQuestionAnswering",
        vilt,
        lambda g: {**pairs(g), "labels": torch.rand(2, 5, generator=g)},
    )
    llava = dict(
        text_config={**DECODER, "model_type": "llama"},
        vision_config={**seen, "model_type": "clip_vision_model"},
        image_token_index=79,
        image_seq_length=16,
        vision_feature_layer=-1,
    )

    def image_tokens(g: torch.Generator) -> Batch:
        tokens = torch.randint(3, 79, (2, 24), generator=g)
        tokens[:, 2:18] = 79
        images = torch.randn(2, 3, 32, 32, generator=g)
        return {"input_ids": tokens, "pixel_values": images, "labels": tokens}

    _transformers(
        "llava", kind, "LlavaConfig", "LlavaForConditionalGeneration", llava, image_tokens
    )
    git = {**ENCODER, "vision_config": seen, "bos_token_id": 0, "eos_token_id": 2}
    _transformers(
        "git",
        kind,
        "GitConfig",
        "GitForCausalLM",
        git,
        lambda g: {**pairs(g), "labels": _tokens(g)},
    )
    blip = dict(
        text_config={**text, "encoder_hidden_size": 32, "projection_dim": 16},
        vision_config={**seen, "projection_dim": 16},
        projection_dim=16,
    )
    _transformers(
        "blip",
        kind,
        "BlipConfig",
        "BlipForConditionalGeneration",
        blip,
        lambda g: {
            "pixel_values": torch.randn(2, 3, 32, 32, generator=g),
            "input_ids": _tokens(g),
            "labels": _tokens(g),
        },
    )


def _register_others() -> None:
    series = dict(prediction_length=4, context_length=16, patch_length=4, patch_stride=4)
    _transformers(
        "patchtst",
        "time series",
        "PatchTSTConfig",
        "PatchTSTForPrediction",
        {
            **series,
            "num_input_channels": 2,
            "d_model": 16,
            "num_attention_heads": 2,
            "num_hidden_layers": 2,
            "ffn_dim": 24,
        },
        lambda g: {
            "past_values": torch.randn(4, 16, 2, generator=g),
            "future_values": torch.randn(4, 4, 2, generator=g),
        },
    )


for register in (
    _register_encoders,
    _register_decoders,
    _register_mixtures,
    _register_states,
    _register_sequences,
    _register_visions,
    _register_sounds,
    _register_pairs,
    _register_others,
):
    register()


# -- models of one's own ----------------------------------------------------------------------------
def _own(
    model: nn.Module, loss_of: Callable[..., torch.Tensor], batches: list[tuple[torch.Tensor, ...]]
) -> Training:
    optimizer = torch.optim.AdamW(model.parameters())

    def step(*tensors: torch.Tensor) -> torch.Tensor:
        loss = loss_of(*tensors)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return Training(model, optimizer, step, batches)


class RecurrentLanguageModel(nn.Module):
    """Embedding, two recurrent layers with dropout between, a tied head."""

    def __init__(self, cells: type[nn.RNNBase]) -> None:
        super().__init__()
        self.embed = nn.Embedding(80, 32)
        self.cells = cells(32, 32, num_layers=2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(32, 80)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        # oneDNN's LSTM makes memory of a size only it knows; PyTorch's own is taken instead.
        with torch.backends.mkldnn.flags(enabled=False):
            hidden = self.cells(self.embed(tokens))[0]
        scores = self.head(hidden[:, :-1]).flatten(0, 1)
        return functional.cross_entropy(scores, tokens[:, 1:].flatten())


def _recurrent(cells: type[nn.RNNBase]) -> Training:
    torch.manual_seed(3)
    model = RecurrentLanguageModel(cells)
    generator = torch.Generator().manual_seed(4)
    return _own(model, model, [(_tokens(generator),) for _ in range(STEPS)])


@_add("recurrent")
def lstm_language_model() -> Training:
    return _recurrent(nn.LSTM)


@_add("recurrent")
def gru_language_model() -> Training:
    return _recurrent(nn.GRU)


@_add("diffusion")
def u_net() -> Training:
    run = unet("adamw")
    del run.batches[STEPS:]
    return run


class GraphNetwork(nn.Module):
    """Two rounds of messages along fixed edges: gathers, and sums into nodes."""

    def __init__(self, edges: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("edges", edges)
        self.enter = nn.Linear(8, 16)
        self.message = nn.Linear(32, 16)
        self.update = nn.GRUCell(16, 16)
        self.leave = nn.Linear(16, 1)

    def forward(self, nodes: torch.Tensor) -> torch.Tensor:
        source, target = self.edges
        hidden = self.enter(nodes)
        for _ in range(2):
            ends = torch.cat([hidden[source], hidden[target]], 1)
            messages = functional.relu(self.message(ends))
            hidden = self.update(torch.zeros_like(hidden).index_add(0, target, messages), hidden)
        return self.leave(hidden)


@_add("graph")
def graph_network() -> Training:
    torch.manual_seed(3)
    generator = torch.Generator().manual_seed(4)
    model = GraphNetwork(torch.randint(0, 30, (2, 120), generator=generator))

    def loss_of(nodes: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return functional.mse_loss(model(nodes), wanted)

    batches = [
        (torch.randn(30, 8, generator=generator), torch.randn(30, 1, generator=generator))
        for _ in range(STEPS)
    ]
    return _own(model, loss_of, batches)


def generator_and_critic() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(3)
    maker = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16))
    critic = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Dropout(0.1), nn.Linear(32, 1))
    return maker, critic


@_add("adversarial")
def gan_in_one_step() -> Training:
    """Critic and generator, with an optimizer each, both trained in every step."""
    maker, critic = generator_and_critic()
    of_maker = torch.optim.AdamW(maker.parameters())
    of_critic = torch.optim.AdamW(critic.parameters())

    def step(real: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made = maker(noise)
        of_critic.zero_grad()
        critic_loss = functional.softplus(critic(made.detach())).mean()
        critic_loss = critic_loss + functional.softplus(-critic(real)).mean()
        critic_loss.backward()
        of_critic.step()
        of_maker.zero_grad()
        maker_loss = functional.softplus(-critic(made)).mean()
        maker_loss.backward()
        of_maker.step()
        return critic_loss, maker_loss

    generator = torch.Generator().manual_seed(4)
    batches = [
        (torch.randn(16, 16, generator=generator), torch.randn(16, 8, generator=generator))
        for _ in range(STEPS)
    ]
    return Training(maker, of_maker, step, batches, others=[critic, of_critic])
