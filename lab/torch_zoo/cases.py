"""What ``torch_models.py`` compares: models, their sizes and how they are called, and how scripts train."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

TOKENS = 97  # of vocabularies, a prime
STEPS = 5
"""Of training, in scripts."""

Script = Callable[[str], list[torch.Tensor]]


def train(
    model: nn.Module, loss_of_batch: Callable[[], torch.Tensor], optimizer: torch.optim.Optimizer
) -> list[torch.Tensor]:
    """The losses of a few steps, then the parameters."""
    found = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of_batch()
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return found + [p.detach() for p in model.parameters()]


class Case(NamedTuple):
    """A model, and the keyword arguments of a call of it."""

    model: torch.nn.Module
    inputs: dict[str, torch.Tensor]


def define_torchvision_ops() -> torch.library.Library:
    """Declare the ops of torchvision's compiled part, which timm's transforms import and no model here calls.

    Its wheel for CUDA does not load beside a PyTorch for the CPU.
    """
    library = torch.library.Library("torchvision", "FRAGMENT")
    forward = ("deform_conv2d", "ps_roi_align", "ps_roi_pool", "roi_align", "roi_pool")
    for name in ("nms", "qnms", "qroi_align", *forward, *(f"_{name}_backward" for name in forward)):
        library.define(f"{name}(Tensor x) -> Tensor")
    return library


def image_model(name: str, size: int, **options: Any) -> Callable[[], Case]:
    def make() -> Case:
        import timm

        model = timm.create_model(name, num_classes=10, **options)
        return Case(model, {"x": torch.randn(2, 3, size, size)})

    return make


def language_model(name: str, config: str, decoder: bool = False, **options: Any) -> Callable[[], Case]:
    def make() -> Case:
        import transformers

        model = getattr(transformers, name)(getattr(transformers, config)(**options))
        ids = torch.randint(3, TOKENS, (2, 11))
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if decoder:
            inputs["decoder_input_ids"] = torch.randint(3, TOKENS, (2, 7))
        return Case(model, inputs)

    return make


def _whisper() -> Case:
    from transformers import WhisperConfig, WhisperModel

    config = WhisperConfig(
        vocab_size=TOKENS, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=50,
        num_mel_bins=16, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    return Case(WhisperModel(config).encoder, {"input_features": torch.randn(2, 16, 100)})


SIZES: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "vocab_size": TOKENS,
}  # fmt: skip

CASES: dict[str, Callable[[], Case]] = {
    "resnet50": image_model("resnet50", 64),
    "mobilenetv3": image_model("mobilenetv3_small_100", 64),
    "efficientnet_b0": image_model("efficientnet_b0", 64),
    "vit_tiny": image_model("vit_tiny_patch16_224", 64, img_size=64),
    "convnext_tiny": image_model("convnext_tiny", 64),
    "swin_tiny": image_model("swin_tiny_patch4_window7_224", 56, img_size=56, window_size=7),
    "gpt2": language_model(
        "GPT2LMHeadModel", "GPT2Config", n_embd=32, n_layer=2, n_head=4, vocab_size=TOKENS, n_positions=64,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    ),
    "bert": language_model(
        "BertForMaskedLM", "BertConfig", **SIZES, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    ),
    "llama": language_model("LlamaForCausalLM", "LlamaConfig", **SIZES, num_key_value_heads=2),
    "qwen2": language_model("Qwen2ForCausalLM", "Qwen2Config", **SIZES, num_key_value_heads=2),
    "t5": language_model(
        "T5ForConditionalGeneration", "T5Config", True, d_model=32, d_kv=8, d_ff=64, num_layers=2,
        num_heads=4, vocab_size=TOKENS, dropout_rate=0.0, decoder_start_token_id=0,
    ),
    "whisper_encoder": _whisper,
}  # fmt: skip
