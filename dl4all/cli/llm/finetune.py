"""``dl4all finetune``: adapters of a language model that learn from examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dl4all.cli.llm.options import loaded

MOST_USED = 0.8
"""Part of the memory that is there, beyond which layers are computed again."""


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
@click.option("--four-bits", is_flag=True, help="Hold the frozen weights in 4 bits (QLoRA): --dtype q4_0.")
@click.option("--epochs", default=1, show_default=True, type=click.IntRange(min=1))
@click.option("--lr", default=2e-4, show_default=True, type=click.FloatRange(min=0, min_open=True))
@click.option("--batch", default=1, show_default=True, type=click.IntRange(min=1), help="Rows of a step.")
@click.option("--length", default=512, show_default=True, type=click.IntRange(min=2), help="Tokens of a row.")
@click.option(
    "--checkpointing/--no-checkpointing",
    default=None,
    help="Keep of each layer only its input, and compute it again for gradients: less memory, more time.  "
    "[default: where there is not enough memory otherwise]",
)
@click.option("--resume", is_flag=True, help="Go on with the run that was interrupted in OUTPUT.")
@click.option("--save-every", type=click.IntRange(min=1), help="Steps, after which a run can go on, too.")
@click.option("--device", default="auto", show_default=True)
@click.option("--dtype", help="Of the weights, in place of the files' own: float32, bfloat16, q8_0, q4_0.")
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
    checkpointing: bool | None,
    resume: bool,
    save_every: int | None,
    device: str,
    dtype: str | None,
    seed: int,
) -> None:
    """Let adapters of MODEL learn from the lines of DATA.

    Each line is a JSON object: {"messages": [...]}, of which the answers count, {"prompt": ..., "completion":
    ...}, or {"text": ...}. Adapters are written to OUTPUT in peft's format after each epoch, with what a run
    needs to go on in OUTPUT/run. The memory that steps take is printed before the first one.
    """
    import dl4all as dl
    from dl4all.io.checkpoint import checkpoints

    if "," in device:
        raise click.UsageError("adapters learn on one device; --device names several")
    if four_bits and dtype not in (None, "q4_0"):
        raise click.UsageError(f"--four-bits is --dtype q4_0, and --dtype is {dtype}: give one of them")
    run = Path(output) / "run"
    if not resume and checkpoints(run):
        raise click.UsageError(
            f"{run} has an earlier run: --resume goes on with it; or choose another --output"
        )
    dl.manual_seed(seed)
    network, tokenizer = loaded(model, device=device, dtype="q4_0" if four_bits else dtype)
    rows, labels = dl.llm.packed(dl.llm.read_examples(data, tokenizer), min(length, network.config.positions))
    if adapter is None:
        config = dl.llm.LoraConfig(rank, alpha, targets or "all-linear", dropout)
        dl.llm.get_lora_model(network, config)
    else:
        dl.llm.load_adapter(network, adapter)
    tuned = dl.llm.TunedDecoder(network)
    place = network.embed_tokens.weight.device
    click.echo(
        f"{sum(p.numel() for p in tuned.parameters()):,} numbers learn from {(labels != -100).sum():,} "
        f"tokens in {len(rows)} rows of {rows.shape[1]}, on {place}",
        err=True,
    )
    _choose_memory(network, rows.shape[1], min(batch, len(rows)), checkpointing)
    base = str(Path(model).resolve()) if Path(model).is_dir() else model

    def saved(_: Any, row: Any) -> None:
        dl.llm.save_adapter(network, output, base)
        click.echo(f"epoch {row['epoch']}: loss {row['loss']:.4f}, written to {output}", err=True)

    mixture = bool(network.config.experts)  # whose experts are chosen on the host
    steps = epochs * -(-len(rows) // batch)
    optimizer = dl.optim.AdamW(list(tuned.parameters()), lr=lr)
    trainer = dl.Trainer(
        tuned, tuned.loss, optimizer, device=place, compile=not mixture, stop_on_nan=mixture,
        scheduler=dl.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps), scheduler_interval="step",
        folder=run, keep=1, checkpoint_every=save_every, callbacks=[saved],
    )  # fmt: skip
    loader = dl.data.DataLoader(
        dl.data.TensorDataset(rows, labels), batch, shuffle=True, device=None, seed=seed
    )
    trainer.fit(loader, epochs, resume=resume)


def _choose_memory(network: Any, tokens: int, batch: int, checkpointing: bool | None) -> None:
    """Decide whether layers are computed again for gradients, and say what memory steps take."""
    import dl4all as dl

    device = network.embed_tokens.weight.device
    held = sum(tensor.nbytes for tensor in network.state_dict().values())
    there = dl.memory.available(device) + held
    network.gradient_checkpointing = bool(checkpointing)
    account = dl.llm.tuning_memory(network, tokens, batch)
    if checkpointing is None and account.total > there * MOST_USED:
        network.gradient_checkpointing = True
        account = dl.llm.tuning_memory(network, tokens, batch)
    again = ", layers computed again for gradients" if network.gradient_checkpointing else ""
    click.echo(f"memory of a step{again}: {account}; {there / 1e6:.0f} MB there", err=True)
    if account.total > there:
        click.echo(
            "this is more than there is: take a shorter --length, a smaller --batch, fewer bits with "
            "--dtype q4_0, or --checkpointing",
            err=True,
        )
