"""The zoo's models of pictures, sound, pictures with text, and time series."""

from __future__ import annotations

import torch
from zoo_entries import Batch, register
from zoo_text import DECODER, ENCODER, SEQ2SEQ, random_tokens

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
    return {"input_ids": random_tokens(g), "pixel_values": images}


register(
    "vision",
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
)

classify = {**AUDIO, "num_labels": 5, "classifier_proj_size": 16}
register(
    "audio",
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
)

TEXT = {**ENCODER, "eos_token_id": 2, "bos_token_id": 0, "pad_token_id": 1}
SEEN = {k: v for k, v in VISION.items() if k != "num_labels"}
BOTH = dict(text_config=TEXT, vision_config=SEEN)
VILT = {**ENCODER, "image_size": 32, "patch_size": 8, "max_image_length": -1, "num_labels": 5}
LLAVA = dict(
    text_config={**DECODER, "model_type": "llama"},
    vision_config={**SEEN, "model_type": "clip_vision_model"},
    image_token_index=79,
    image_seq_length=16,
    vision_feature_layer=-1,
)


def image_tokens(g: torch.Generator) -> Batch:
    tokens = torch.randint(3, 79, (2, 24), generator=g)
    tokens[:, 2:18] = 79
    images = torch.randn(2, 3, 32, 32, generator=g)
    return {"input_ids": tokens, "pixel_values": images, "labels": tokens}


GIT = {**ENCODER, "vision_config": SEEN, "bos_token_id": 0, "eos_token_id": 2}
BLIP = dict(
    text_config={**TEXT, "encoder_hidden_size": 32, "projection_dim": 16},
    vision_config={**SEEN, "projection_dim": 16},
    projection_dim=16,
)
register(
    "multi-modal",
    ("clip", "CLIPConfig", "CLIPModel", {**BOTH, "projection_dim": 16}, pairs),
    ("siglip", "SiglipConfig", "SiglipModel", BOTH, pairs),
    (
        "vilt",
        "ViltConfig",
        "ViltForQuestionAnswering",
        VILT,
        lambda g: {**pairs(g), "labels": torch.rand(2, 5, generator=g)},
    ),
    ("llava", "LlavaConfig", "LlavaForConditionalGeneration", LLAVA, image_tokens),
    ("git", "GitConfig", "GitForCausalLM", GIT, lambda g: {**pairs(g), "labels": random_tokens(g)}),
    (
        "blip",
        "BlipConfig",
        "BlipForConditionalGeneration",
        BLIP,
        lambda g: {
            "pixel_values": torch.randn(2, 3, 32, 32, generator=g),
            "input_ids": random_tokens(g),
            "labels": random_tokens(g),
        },
    ),
)

register(
    "time series",
    (
        "patchtst",
        "PatchTSTConfig",
        "PatchTSTForPrediction",
        {
            "prediction_length": 4,
            "context_length": 16,
            "patch_length": 4,
            "patch_stride": 4,
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
    ),
)
