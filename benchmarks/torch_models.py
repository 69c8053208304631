"""Models of timm and transformers on ``dlall`` beside PyTorch's CPU: equal results, and what falls back.

Each model is made from its configuration, with random weights and nothing to download, at the least size that
keeps its structure. It infers once and takes one step of training on both; the table shows the largest
difference of outputs, gradients and parameters, relative to the largest element, and the ops that fell back.

    pip install timm transformers torchvision     # beside PyTorch
    python benchmarks/torch_models.py [--model gpt2] [--device vulkan:0]
"""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import click
import torch
from rich.console import Console
from rich.table import Table

LEARNING_RATE = 0.01
TOKENS = 97  # of vocabularies, a prime


class Case(NamedTuple):
    """A model, and the keyword arguments of a call of it."""

    model: torch.nn.Module
    inputs: dict[str, torch.Tensor]


def _define_torchvision_ops() -> torch.library.Library:
    """Declare the ops of torchvision's compiled part, which timm's transforms import and no model here calls.

    Its wheel for CUDA does not load beside a PyTorch for the CPU.
    """
    library = torch.library.Library("torchvision", "FRAGMENT")
    forward = ("deform_conv2d", "ps_roi_align", "ps_roi_pool", "roi_align", "roi_pool")
    for name in ("nms", "qnms", "qroi_align", *forward, *(f"_{name}_backward" for name in forward)):
        library.define(f"{name}(Tensor x) -> Tensor")
    return library


def _image_model(name: str, size: int, **options: Any) -> Callable[[], Case]:
    def make() -> Case:
        import timm

        model = timm.create_model(name, num_classes=10, **options)
        return Case(model, {"x": torch.randn(2, 3, size, size)})

    return make


def _language_model(name: str, config: str, **options: Any) -> Callable[[], Case]:
    def make() -> Case:
        import transformers

        model = getattr(transformers, name)(getattr(transformers, config)(**options))
        ids = torch.randint(3, TOKENS, (2, 11))
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if name.startswith("T5"):
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


_SIZES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "vocab_size": TOKENS,
}  # fmt: skip

CASES: dict[str, Callable[[], Case]] = {
    "resnet50": _image_model("resnet50", 64),
    "mobilenetv3": _image_model("mobilenetv3_small_100", 64),
    "efficientnet_b0": _image_model("efficientnet_b0", 64),
    "vit_tiny": _image_model("vit_tiny_patch16_224", 64, img_size=64),
    "convnext_tiny": _image_model("convnext_tiny", 64),
    "swin_tiny": _image_model("swin_tiny_patch4_window7_224", 56, img_size=56, window_size=7),
    "gpt2": _language_model(
        "GPT2LMHeadModel", "GPT2Config", n_embd=32, n_layer=2, n_head=4, vocab_size=TOKENS, n_positions=64,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    ),
    "bert": _language_model(
        "BertForMaskedLM", "BertConfig", **_SIZES, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    ),
    "llama": _language_model("LlamaForCausalLM", "LlamaConfig", **_SIZES, num_key_value_heads=2),
    "qwen2": _language_model("Qwen2ForCausalLM", "Qwen2Config", **_SIZES, num_key_value_heads=2),
    "t5": _language_model(
        "T5ForConditionalGeneration", "T5Config", d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
        vocab_size=TOKENS, dropout_rate=0.0, decoder_start_token_id=0,
    ),
    "whisper_encoder": _whisper,
}  # fmt: skip
GENERATING = ("gpt2", "llama", "qwen2", "t5")


def first_tensor(output: Any) -> torch.Tensor:
    """The logits or hidden states among what a model returns."""
    if isinstance(output, torch.Tensor):
        return output
    value = output.get("logits", output.get("last_hidden_state"))
    assert isinstance(value, torch.Tensor)
    return value


def difference(expected: torch.Tensor, computed: torch.Tensor, least: float = 1e-30) -> float:
    """The largest difference, relative to the largest element, or to `least` if that is more."""
    scale = expected.detach().abs().max().clamp(min=least)
    return float((computed.detach().cpu() - expected.detach()).abs().max() / scale)


def differences(case: Case, device: str) -> dict[str, float]:
    """How far inference, gradients and parameters after a step of SGD are from the CPU's."""
    here = case.model
    there = copy.deepcopy(here).to(device)
    moved = {name: value.to(device) for name, value in case.inputs.items()}
    found = {}
    with torch.no_grad():
        found["inference"] = difference(
            first_tensor(here.eval()(**case.inputs)), first_tensor(there.eval()(**moved))
        )
    here.train(), there.train()
    for model in (here, there):  # random numbers of the two devices differ
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout) or type(module).__name__ == "DropPath":
                module.eval()
    weights = None
    for model, inputs in ((here, case.inputs), (there, moved)):
        output = first_tensor(model(**inputs))
        weights = torch.randn_like(output) if weights is None else weights
        (output * weights.to(output.device)).mean().backward()
        torch.optim.SGD(model.parameters(), LEARNING_RATE, momentum=0.9).step()
    pairs = list(zip(here.parameters(), there.parameters(), strict=True))
    scale = max(float(p.grad.abs().max()) for p, _ in pairs if p.grad is not None)
    found["gradient"] = max(
        float((q.grad.cpu() - p.grad).abs().max()) / scale
        for p, q in pairs
        if p.grad is not None and q.grad is not None
    )
    # Biases that were 0 are all gradient now, and some gradients (of keys) are 0 but for rounding.
    found["parameters"] = max(difference(p, q, LEARNING_RATE * scale) for p, q in pairs)
    return found


def generated(case: Case, device: str) -> bool:
    """Whether greedy generation gives the same tokens as on the CPU."""
    model: Any = case.model.eval()
    there: Any = copy.deepcopy(model).to(device)
    ids = case.inputs["input_ids"]
    options = {"max_new_tokens": 9, "do_sample": False, "pad_token_id": 0}
    here = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
    other = there.generate(ids.to(device), attention_mask=torch.ones_like(ids).to(device), **options)
    return bool(torch.equal(here, other.cpu()))


def rows(names: tuple[str, ...], device: str) -> Iterator[tuple[str, ...]]:
    """The table, model by model."""
    import dl4all.torch

    for name in names:
        dl4all.torch.fallbacks.clear()
        torch.manual_seed(0)
        case = CASES[name]()
        found = differences(case, device)
        tokens = str(generated(case, device)) if name in GENERATING else ""
        fallen = {op: count.calls for op, count in dl4all.torch.fallbacks.items()}
        listed = ", ".join(f"{op.removeprefix('aten::')} {calls}" for op, calls in fallen.items())
        numbers = (f"{found[key]:.1e}" for key in ("inference", "gradient", "parameters"))
        yield name, *numbers, tokens, str(sum(fallen.values())), listed


@click.command()
@click.option("--model", "names", multiple=True, type=click.Choice(list(CASES)), help="all by default")
@click.option(
    "--device", default=None, help="what dlall:0 means, such as vulkan:0; by default what auto takes"
)
def main(names: tuple[str, ...], device: str | None) -> None:
    """Compare models on dlall with the CPU's."""
    if device is not None:
        os.environ["DL4ALL_DEVICE"] = device
    os.environ.setdefault("DL4ALL_TORCH_FALLBACK", "silent")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    library = _define_torchvision_ops()
    table = Table("model", "inference", "gradient", "parameters", "same tokens", "fallbacks", "of")
    for row in rows(names or tuple(CASES), "dlall"):
        table.add_row(*row)
    del library
    Console().print(table)


if __name__ == "__main__":
    main()
