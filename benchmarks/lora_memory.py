"""The memory that tuning adapters takes, for models of 1, 3 and 8 billion weights in 4 bits.

python benchmarks/lora_memory.py [--device cpu] [--rank 16] [--tokens 512] [--batch 1] [--layers 2]

A model of the true sizes but of few layers, with random weights, makes steps: the account beside the peak.
From the account of one layer follows that of all.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import click
import numpy as np

import dl4all as dl
from dl4all.llm.memory_account import COPIES
from dl4all.llm.weights import HeldType, load_weights_into
from dl4all.nn import init

MODELS: dict[str, dict[str, Any]] = {  # Llama 3.2 1 B and 3 B, Llama 3.1 8 B
    "1 B": {
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
        "num_key_value_heads": 8, "tie_word_embeddings": True,
    },
    "3 B": {
        "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 28, "num_attention_heads": 24,
        "num_key_value_heads": 8, "tie_word_embeddings": True,
    },
    "8 B": {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "tie_word_embeddings": False,
    },
}  # fmt: skip


def random_model(sizes: dict[str, Any], layers: int, rank: int, device: str) -> dl.llm.Decoder:
    """A model of few layers in 4 bits, with adapters on all linear ones."""
    document = {"model_type": "llama", "vocab_size": 128_256, **sizes, "num_hidden_layers": layers}
    with init.skipping():
        model = dl.llm.Decoder(dl.llm.decoder_config(document))
    draw = np.random.default_rng(0)

    def weights() -> Iterator[tuple[str, str, Any]]:
        for name, parameter in model.named_parameters():
            yield name, name, draw.standard_normal(parameter.shape, np.float32) * 0.02

    load_weights_into(model, weights(), lambda _: dl.device(device), HeldType(np.dtype("float32"), "Q4_0"))
    dl.llm.get_lora_model(model, dl.llm.LoraConfig(rank, 32, "all-linear"))
    model.gradient_checkpointing = True
    return model


def peak_of_steps(model: dl.llm.Decoder, tokens: int, batch: int, device: str) -> int:
    """The most bytes that tensors take in two steps."""
    tuned = dl.llm.TunedDecoder(model).train()
    optimizer = dl.optim.AdamW(list(tuned.parameters()), lr=1e-4)
    draw = np.random.default_rng(1)
    x, y = (dl.tensor(draw.integers(0, 128_256, (batch, tokens)), device=device) for _ in range(2))
    dl.memory.reset_peak(device)
    for _ in range(2):
        tuned.loss(tuned(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return dl.memory.stats(device).peak


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--device", default="cpu", show_default=True)
@click.option("--rank", default=16, show_default=True)
@click.option("--tokens", default=512, show_default=True)
@click.option("--batch", default=1, show_default=True)
@click.option("--layers", default=2, show_default=True)
@click.option("--model", "names", multiple=True, type=click.Choice(list(MODELS)), default=list(MODELS))
def main(device: str, rank: int, tokens: int, batch: int, layers: int, names: tuple[str, ...]) -> None:
    """Print the accounts."""
    for name in names:
        before = dl.memory.stats(device).allocated
        model = random_model(MODELS[name], layers, rank, device)
        few = dl.llm.tuning_memory(model, tokens, batch)
        peak = peak_of_steps(model, tokens, batch, device) - before
        print(f"{name}, {layers} layers: account {few.total / 1e6:.0f} MB, peak {peak / 1e6:.0f}", end="")
        print(f" ({few.total / peak:.3f})")
        layer = model.layers[0].state_dict()
        learning = sum(t.nbytes for key, t in layer.items() if "lora" in key)
        frozen = sum(t.nbytes for t in layer.values()) - learning
        whole = MODELS[name]["num_hidden_layers"]
        account = dl.llm.TuningMemory(
            few.weights + (whole - layers) * frozen,
            whole * COPIES * learning,
            few.kept // layers * whole,
            few.working,
        )
        print(f"{name}, {whole} layers: {account}", flush=True)
        del model, layer
        gc.collect()


if __name__ == "__main__":
    main()
