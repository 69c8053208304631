"""``dl4all finetune``: adapters of a language model that learn from examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dl4all.cli.llm.options import loaded


@click.command()
@click.argument("model")
@click.argument("data", type=click.Path(exists=True, dir_okay=False))
@click.option("--output", default="adapter", show_default=True, type=click.Path(file_okay=False))
@click.option("--adapter", type=click.Path(exists=True, file_okay=False), help="Go on with these adapters.")
@click.option("--rank", default=8, show_default=True, type=click.IntRange(min=1))
@click.option("--alpha", default=16.0, show_default=True, help="Scale of the adapters, times the rank.")
@click.option(
    "--target", "targets", multiple=True, help="A layer by its name, repeated  [default: all linear]"
)
@click.option("--dropout", default=0.0, show_default=True, type=click.FloatRange(0, 1, max_open=True))
@click.option("--four-bits", is_flag=True, help="Hold the frozen weights in 4 bits (QLoRA).")
@click.option("--epochs", default=1, show_default=True, type=click.IntRange(min=1))
@click.option("--lr", default=2e-4, show_default=True, type=click.FloatRange(min=0, min_open=True))
@click.option("--batch", default=1, show_default=True, type=click.IntRange(min=1), help="Rows of a step.")
@click.option("--length", default=512, show_default=True, type=click.IntRange(min=2), help="Tokens of a row.")
@click.option("--device", default="auto", show_default=True)
@click.option("--dtype", help="Of the weights, in place of the files' own.")
@click.option("--seed", default=0, show_default=True)
def finetune(
    model: str,
    data: str,
    output: str,
    adapter: str | None,
    rank: int,
    alpha: float,
    targets: tuple[str, ...],
    dropout: float,
    four_bits: bool,
    epochs: int,
    lr: float,
    batch: int,
    length: int,
    device: str,
    dtype: str | None,
    seed: int,
) -> None:
    """Let adapters of MODEL learn from the lines of DATA.

    Each line is a JSON object: {"messages": [...]}, of which the answers count, {"prompt": ..., "completion":
    ...}, or {"text": ...}. Adapters are written in peft's format, after each epoch.
    """
    import dl4all as dl

    dl.manual_seed(seed)
    network, tokenizer = loaded(model, device=device, dtype=dtype)
    rows, labels = dl.llm.packed(dl.llm.read_examples(data, tokenizer), min(length, network.config.positions))
    if four_bits:
        dl.quantization.quantize_(network, dl.quantization.Int4WeightOnlyConfig(), _fits_groups)
    if adapter is None:
        config = dl.llm.LoraConfig(rank, alpha, targets or "all-linear", dropout)
        dl.llm.get_lora_model(network, config)
    else:
        dl.llm.load_adapter(network, adapter)
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    click.echo(
        f"{sum(p.numel() for p in trained):,} numbers learn from {(labels != -100).sum():,} tokens in "
        f"{len(rows)} rows of {rows.shape[1]}, on {network.embed_tokens.weight.device}",
        err=True,
    )

    def loss(scores: dl.Tensor, wanted: dl.Tensor) -> dl.Tensor:
        return dl.nn.functional.cross_entropy(scores.flatten(0, 1), wanted.flatten(), ignore_index=-100)

    base = str(Path(model).resolve()) if Path(model).is_dir() else model

    def saved(_: Any, row: Any) -> None:
        dl.llm.save_adapter(network, output, base)
        click.echo(f"epoch {row['epoch']}: loss {row['loss']:.4f}, written to {output}", err=True)

    mixture = bool(network.config.experts)  # whose experts are chosen on the host
    steps = epochs * -(-len(rows) // batch)
    optimizer = dl.optim.AdamW(trained, lr=lr)
    trainer = dl.Trainer(
        network, loss, optimizer, device=device, compile=not mixture, stop_on_nan=mixture,
        scheduler=dl.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps), scheduler_interval="step",
        callbacks=[saved],
    )  # fmt: skip
    loader = dl.data.DataLoader(dl.data.TensorDataset(rows, labels), batch, shuffle=True, device=None)
    trainer.fit(loader, epochs)


def _fits_groups(layer: Any, _: str) -> bool:
    """Whether a layer's weight can be held in groups of 32."""
    return bool(layer.in_features % 32 == 0)
