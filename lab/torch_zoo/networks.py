"""More models of timm, torchvision and transformers for ``torch_models.py``, by architecture."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from lab.torch_zoo.cases import SIZES, TOKENS, Case, image_model, language_model

IMAGE_MODELS: dict[str, tuple[int, dict[str, Any]]] = {
    "resnext50_32x4d": (64, {}),
    "densenet121": (64, {}),
    "vgg11_bn": (32, {}),
    "inception_v3": (139, {"aux_logits": False}),
    "regnetx_002": (64, {}),
    "regnety_002": (64, {}),
    "convmixer_768_32": (42, {}),
    "mixer_s32_224": (64, {"img_size": 64}),
    "gmlp_ti16_224": (64, {"img_size": 64}),
    "deit_tiny_distilled_patch16_224": (64, {"img_size": 64}),
    "beit_base_patch16_224": (64, {"img_size": 64, "depth": 2}),
    "cait_xxs24_224": (64, {"img_size": 64, "depth": 2}),
    "pvt_v2_b0": (64, {}),
    "poolformer_s12": (64, {}),
    "efficientformer_l1": (224, {}),
    "mobilevit_xxs": (64, {}),
    "mobilevitv2_050": (64, {}),
    "ghostnet_050": (64, {"drop_rate": 0.0}),
    "dla34": (64, {}),
    "hrnet_w18_small": (64, {}),
    "nfnet_l0": (64, {}),
    "edgenext_xx_small": (64, {}),
    "maxvit_tiny_rw_224": (64, {"img_size": 64}),
    "coat_lite_tiny": (64, {"img_size": 64}),
    "levit_128s": (224, {}),
    "xcit_nano_12_p16_224": (64, {"img_size": 64}),
    "repvgg_a0": (64, {}),
    "res2net50_14w_8s": (64, {}),
    "sequencer2d_s": (56, {"img_size": 56}),
    "volo_d1_224": (64, {"img_size": 64}),
    "crossvit_9_240": (240, {}),
    "fastvit_t8": (64, {}),
    "tnt_s_patch16_224": (64, {"img_size": 64}),
    "davit_tiny": (56, {}),
    "test_mambaout": (64, {}),
}
"""Of timm: the size of images, and what its constructor is told."""

_BERT: dict[str, Any] = {**SIZES, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_BART: dict[str, Any] = {
    "vocab_size": TOKENS,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "dropout": 0.0,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "forced_eos_token_id": 2,
}
_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}

LANGUAGE_MODELS: dict[str, dict[str, Any]] = {
    "DistilBertForMaskedLM": {
        "vocab_size": TOKENS,
        "dim": 32,
        "n_layers": 2,
        "n_heads": 4,
        "hidden_dim": 64,
        "dropout": 0.0,
        "attention_dropout": 0.0,
    },
    "RobertaForMaskedLM": {**_BERT, **_IDS},
    "AlbertForMaskedLM": {**_BERT, "embedding_size": 16},
    "DebertaForMaskedLM": {**_BERT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "DebertaV2ForMaskedLM": {
        **_BERT,
        "relative_attention": True,
        "pos_att_type": ["c2p", "p2c"],
        "position_buckets": 8,
    },
    "ElectraForPreTraining": {**_BERT, "embedding_size": 16},
    "OPTForCausalLM": {
        "vocab_size": TOKENS,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "ffn_dim": 64,
        "word_embed_proj_dim": 32,
        "max_position_embeddings": 64,
        "dropout": 0.0,
        **_IDS,
    },
    "GPTNeoXForCausalLM": {**SIZES, **_IDS},
    "MistralForCausalLM": {**SIZES, **_IDS, "num_key_value_heads": 2, "sliding_window": 5},
    "PhiForCausalLM": {**SIZES, **_IDS},
    "GemmaForCausalLM": {**SIZES, **_IDS, "num_key_value_heads": 2, "head_dim": 8},
    "Gemma2ForCausalLM": {**SIZES, **_IDS, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 5},
    "MixtralForCausalLM": {**SIZES, **_IDS, "num_key_value_heads": 2, "num_local_experts": 4},
    "BloomForCausalLM": {"vocab_size": TOKENS, "hidden_size": 32, "n_layer": 2, "n_head": 4, **_IDS},
    "MambaForCausalLM": {
        "vocab_size": TOKENS,
        "hidden_size": 32,
        "state_size": 8,
        "num_hidden_layers": 2,
        **_IDS,
    },
    "RwkvForCausalLM": {
        "vocab_size": TOKENS,
        "hidden_size": 32,
        "attention_hidden_size": 32,
        "num_hidden_layers": 2,
        "intermediate_size": 64,
        **_IDS,
    },
    "BartForConditionalGeneration": _BART,
    "PegasusForConditionalGeneration": _BART,
    "MarianMTModel": _BART,
    "XLNetLMHeadModel": {
        "vocab_size": TOKENS,
        "d_model": 32,
        "n_layer": 2,
        "n_head": 4,
        "d_inner": 64,
        "dropout": 0.0,
        **_IDS,
    },
    "FNetForMaskedLM": {**_BERT},
    "LongformerForMaskedLM": {**_BERT, **_IDS, "attention_window": 4},
    "BigBirdForMaskedLM": {**_BERT, **_IDS, "attention_type": "original_full"},
}
"""Of transformers: what the configuration is told."""
ENCODER_DECODERS = ("Bart", "Pegasus", "Marian")


def _config(name: str) -> str:
    for end in (
        "ForMaskedLM",
        "ForCausalLM",
        "ForPreTraining",
        "ForConditionalGeneration",
        "MTModel",
        "LMHeadModel",
    ):
        name = name.removesuffix(end)
    return f"{name}Config"


def _of_transformers(
    name: str, config: str, inputs: Callable[[], dict[str, torch.Tensor]], **options: Any
) -> Any:
    def make() -> Case:
        import transformers

        return Case(getattr(transformers, name)(getattr(transformers, config)(**options)), inputs())

    return make


def _images(channels: int, size: int) -> Callable[[], dict[str, torch.Tensor]]:
    return lambda: {"pixel_values": torch.randn(2, channels, size, size)}


def _masked_images() -> dict[str, torch.Tensor]:
    return {**_images(3, 32)(), "noise": torch.rand(2, 16)}


def _pairs() -> dict[str, torch.Tensor]:
    ids = torch.randint(3, TOKENS, (2, 7))
    return {
        "input_ids": ids,
        "pixel_values": torch.randn(2, 3, 32, 32),
        "attention_mask": torch.ones_like(ids),
    }


def _sounds() -> dict[str, torch.Tensor]:
    return {"input_values": torch.randn(2, 1600)}


_VIT: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
    "hidden_dropout_prob": 0.0,
}
_CLIP_PART = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "projection_dim": 16,
}
_WAV: dict[str, Any] = {
    **SIZES,
    "conv_dim": (16, 16, 16),
    "conv_stride": (5, 2, 2),
    "conv_kernel": (10, 3, 3),
    "num_conv_pos_embeddings": 15,
    "num_conv_pos_embedding_groups": 4,
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "feat_proj_dropout": 0.0,
    "layerdrop": 0.0,
    "mask_time_prob": 0.0,
    "num_feat_extract_layers": 3,
    "apply_spec_augment": False,
    "final_dropout": 0.0,
}

OTHERS: dict[str, Callable[[], Case]] = {
    "ViTForImageClassification": _of_transformers(
        "ViTForImageClassification", "ViTConfig", _images(3, 32), **_VIT
    ),
    "DeiTForImageClassification": _of_transformers(
        "DeiTForImageClassification", "DeiTConfig", _images(3, 32), **_VIT
    ),
    "Dinov2Model": _of_transformers("Dinov2Model", "Dinov2Config", _images(3, 32), **_VIT),
    "ViTMAEModel": _of_transformers("ViTMAEModel", "ViTMAEConfig", _masked_images, **_VIT),
    "CLIPModel": _of_transformers(
        "CLIPModel",
        "CLIPConfig",
        _pairs,
        projection_dim=16,
        text_config={**_CLIP_PART, "vocab_size": TOKENS, **_IDS},
        vision_config={**_CLIP_PART, "image_size": 32, "patch_size": 8},
    ),
    "Wav2Vec2ForCTC": _of_transformers("Wav2Vec2ForCTC", "Wav2Vec2Config", _sounds, **_WAV),
    "HubertModel": _of_transformers("HubertModel", "HubertConfig", _sounds, **_WAV),
    "SegformerForSemanticSegmentation": _of_transformers(
        "SegformerForSemanticSegmentation",
        "SegformerConfig",
        _images(3, 64),
        hidden_sizes=[8, 16, 24, 32],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 3, 4],
        decoder_hidden_size=16,
        hidden_dropout_prob=0.0,
        drop_path_rate=0.0,
        classifier_dropout_prob=0.0,
    ),
    "DPTForDepthEstimation": _of_transformers(
        "DPTForDepthEstimation",
        "DPTConfig",
        _images(3, 32),
        **{**_VIT, "num_hidden_layers": 4},
        is_hybrid=False,
        backbone_out_indices=[0, 1, 2, 3],
        neck_hidden_sizes=[8, 8, 16, 16],
        fusion_hidden_size=8,
    ),
    "PatchTSTForPrediction": _of_transformers(
        "PatchTSTForPrediction",
        "PatchTSTConfig",
        lambda: {"past_values": torch.randn(2, 32, 3)},
        num_input_channels=3,
        context_length=32,
        prediction_length=5,
        patch_length=8,
        patch_stride=4,
        d_model=16,
        num_attention_heads=4,
        ffn_dim=32,
        num_hidden_layers=2,
        loss="mse",
        head_dropout=0.0,
        ff_dropout=0.0,
    ),
    "TimmLessDetr": lambda: _detr(),
}


class _DetrTransformer(torch.nn.Module):
    """DETR behind its backbone: features of images to boxes and classes."""

    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Conv2d(24, 32, 1)
        self.transformer = torch.nn.Transformer(32, 4, 2, 2, 64, 0.0, batch_first=True)
        self.queries = torch.nn.Parameter(torch.rand(7, 32))
        self.rows = torch.nn.Parameter(torch.rand(50, 16))
        self.columns = torch.nn.Parameter(torch.rand(50, 16))
        self.classes = torch.nn.Linear(32, 6)
        self.boxes = torch.nn.Linear(32, 4)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        hidden = self.project(features)
        height, width = hidden.shape[-2:]
        places = torch.cat(
            [
                self.columns[:width].unsqueeze(0).repeat(height, 1, 1),
                self.rows[:height].unsqueeze(1).repeat(1, width, 1),
            ],
            dim=-1,
        ).flatten(0, 1)
        hidden = hidden.flatten(2).permute(0, 2, 1) + places
        found = self.transformer(hidden, self.queries.unsqueeze(0).expand(len(features), -1, -1))
        return torch.cat([self.classes(found), self.boxes(found).sigmoid()], dim=-1)


def _detr() -> Case:
    return Case(_DetrTransformer(), {"features": torch.randn(2, 24, 5, 7)})


def _of_torchvision(make_model: Callable[[], torch.nn.Module], *shape: int) -> Callable[[], Case]:
    def make() -> Case:
        model = make_model()
        name = next(iter(inspect.signature(model.forward).parameters))
        return Case(model, {name: torch.randn(*shape)})

    return make


def _torchvision(path: str, **options: Any) -> Callable[[], torch.nn.Module]:
    def make() -> torch.nn.Module:
        import torchvision

        family, _, name = path.rpartition(".")
        models: Any = getattr(torchvision.models, family) if family else torchvision.models
        model: torch.nn.Module = getattr(models, name)(weights=None, **options)
        return model

    return make


def _pyramid() -> torch.nn.Module:
    """The parts of a detector before its boxes are chosen: backbone, pyramid of features, proposals."""
    from torchvision.models.detection import backbone_utils, rpn

    class Pyramid(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = backbone_utils.resnet_fpn_backbone(
                backbone_name="resnet18", weights=None, trainable_layers=5
            )
            self.head = rpn.RPNHead(256, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scores, boxes = self.head(list(self.backbone(x).values()))
            return torch.cat([one.flatten(1) for one in (*scores, *boxes)], dim=1)

    return Pyramid()


TORCHVISION_MODELS: dict[str, Callable[[], Case]] = {
    "fcn_resnet50": _of_torchvision(
        _torchvision("segmentation.fcn_resnet50", weights_backbone=None, num_classes=5), 2, 3, 48, 48
    ),
    "deeplabv3_mobilenet": _of_torchvision(
        _torchvision("segmentation.deeplabv3_mobilenet_v3_large", weights_backbone=None, num_classes=5),
        2,
        3,
        64,
        64,
    ),
    "lraspp_mobilenet": _of_torchvision(
        _torchvision("segmentation.lraspp_mobilenet_v3_large", weights_backbone=None, num_classes=5),
        2,
        3,
        64,
        64,
    ),
    "resnet18_pyramid": _of_torchvision(_pyramid, 2, 3, 64, 64),
    "r3d_18": _of_torchvision(_torchvision("video.r3d_18", num_classes=5), 1, 3, 4, 32, 32),
    "googlenet": _of_torchvision(
        _torchvision("googlenet", num_classes=5, aux_logits=False, init_weights=True), 2, 3, 64, 64
    ),
    "squeezenet1_1": _of_torchvision(_torchvision("squeezenet1_1", num_classes=5), 2, 3, 64, 64),
    "shufflenet_v2": _of_torchvision(_torchvision("shufflenet_v2_x0_5", num_classes=5), 2, 3, 64, 64),
    "mnasnet0_5": _of_torchvision(_torchvision("mnasnet0_5", num_classes=5), 2, 3, 64, 64),
    "alexnet": _of_torchvision(_torchvision("alexnet", num_classes=5), 2, 3, 64, 64),
    "swin_v2_t": _of_torchvision(_torchvision("swin_v2_t", num_classes=5), 1, 3, 64, 64),
}

ZOO: dict[str, Callable[[], Case]] = {
    **{name: image_model(name, size, **options) for name, (size, options) in IMAGE_MODELS.items()},
    **TORCHVISION_MODELS,
    **{
        name: language_model(name, _config(name), name.startswith(ENCODER_DECODERS), **options)
        for name, options in LANGUAGE_MODELS.items()
    },
    **OTHERS,
}
