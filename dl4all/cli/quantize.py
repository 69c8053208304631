"""``dl4all quantize``: holds the weights of a trained network in fewer bits, and says what that costs."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import dl4all as dl
from dl4all.cli.train import write_weights
from dl4all.errors import ConfigError
from dl4all.quantization.quantize import WeightConfig
from dl4all.quantization.report import state_bytes

CONFIGS: dict[str, Callable[[int], WeightConfig]] = {
    "int8": lambda group_size: dl.quantization.Int8WeightOnlyConfig(),
    "int4": dl.quantization.Int4WeightOnlyConfig,
    "dynamic": lambda group_size: dl.quantization.Int8DynamicActivationInt8WeightConfig(),
}
"""The ways to hold weights, for a group size."""

GGUF_KINDS = ("f32", "f16", "bf16", "q8_0", "q4_0")
"""Types of the weights of a GGUF file."""

OBSERVERS = {
    "histogram": dl.quantization.HistogramObserver,
    "minmax": dl.quantization.MinMaxObserver,
    "percentile": dl.quantization.PercentileObserver,
    "entropy": dl.quantization.EntropyObserver,
}
TIMED = 9  # calls


@click.command()
@click.argument("config", metavar="CONFIG")
@click.argument("weights", metavar="WEIGHTS")
@click.option(
    "--to",
    "kind",
    type=click.Choice([*CONFIGS, "static", *GGUF_KINDS]),
    help="int8 or int4: weights alone. dynamic: inputs of linear layers become int8 when they come. static,"
    " the usual one: inputs become uint8 by steps of the training data. For a GGUF file: f32, f16, bf16, "
    "q8_0 or, as usual, q4_0.",
)
@click.option("--group-size", default=32, show_default=True, help="Weights of int4 that share a scale.")
@click.option("--observer", type=click.Choice(list(OBSERVERS)), default="histogram", show_default=True)
@click.option(
    "--batches",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="Of training data that static looks at.",
)
@click.option("--device", help="In the place of the file's.")
@click.option("--save", metavar="FILE.safetensors", help="Write the weights in fewer bits.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def quantize(
    config: str,
    weights: str,
    kind: str | None,
    group_size: int,
    observer: str,
    batches: int,
    device: str | None,
    save: str | None,
    as_json: bool,
) -> None:
    """Quantise the network of a file CONFIG with WEIGHTS that `dl4all train --save` has written.

    Where WEIGHTS ends in .gguf, CONFIG is a language model, a folder or a repository on Hugging Face's Hub,
    and is written there as one GGUF file.

    Example: dl4all quantize examples/configs/digits_mlp.toml digits.safetensors --to int4

    Example: dl4all quantize HuggingFaceTB/SmolLM2-135M-Instruct smol.gguf --to q8_0
    """
    if weights.endswith(".gguf"):
        write_gguf(config, weights, kind or "q4_0")
        return
    kind = kind or "static"
    if kind in GGUF_KINDS:
        raise click.BadParameter(f"{kind} is for a GGUF file", param_hint="--to")
    configuration = dl.training.read_config(config)
    run = dataclasses.replace(configuration.run, device=device or configuration.run.device, folder=None)
    prepared = dl.training.prepare(dataclasses.replace(configuration, run=run), progress=False)
    trainer, test = prepared.trainer, prepared.test
    if test is None:
        raise ConfigError(f"{config}: there is no test data to measure with; set test in [data]")
    model = trainer.model
    model.load_state_dict(dl.io.load_weights(weights))
    model.eval()
    if kind == "static":
        observed = dl.quantization.prepare(model, qconfig=dl.quantization.QConfig(OBSERVERS[observer]))
        with dl.no_grad():
            for inputs, _ in itertools.islice(prepared.train, batches):
                observed(inputs)
        small = dl.quantization.convert(observed)
    else:
        small = copy.deepcopy(model)
        dl.quantization.quantize_(small, CONFIGS[kind](group_size))
    inputs = next(iter(test))[0]
    layers = dl.quantization.layer_reports(model, small, inputs)
    measured = {}
    for name, network in (("float32", model), (kind, small)):
        own = dl.Trainer(network, trainer.loss, trainer.optimizer, trainer.metrics, trainer.device)
        measured[name] = {**own.evaluate(test), "bytes": state_bytes(network), "ms": _ms(network, inputs)}
    if save is not None:
        write_weights(save, small.state_dict())
    if as_json:
        print(json.dumps({"layers": [layer._asdict() for layer in layers], **measured}))
    else:
        _print(layers, measured, len(inputs))


def write_gguf(model: str, out: str, kind: str) -> None:
    """Write a language model as a GGUF file, and print its size."""
    if kind not in GGUF_KINDS:
        raise click.BadParameter(f"expected one of {', '.join(GGUF_KINDS)} for {out}", param_hint="--to")
    network, tokenizer = dl.llm.load(model, device="cpu")
    dl.llm.save_gguf(network, tokenizer, out, kind)
    print(f"{out}: {Path(out).stat().st_size / 1e6:.1f} MB of {kind}")


def _ms(network: dl.nn.Module, inputs: Any) -> float:
    """The median time of a compiled call."""
    compiled: Any = dl.compile(network)
    seconds = []
    with dl.no_grad():
        for _ in range(TIMED):
            begun = time.perf_counter()
            compiled(inputs)
            inputs.device.synchronize()
            seconds.append(time.perf_counter() - begun)
    return 1e3 * statistics.median(seconds[3:])


def _print(
    layers: list[dl.quantization.LayerReport], measured: dict[str, dict[str, float]], samples: int
) -> None:
    console = Console()
    table = Table("layer", "weight", "kB", "kB before", "dB")
    for layer in layers:
        sizes = [f"{size / 1e3:.1f}" for size in (layer.bytes_after, layer.bytes_before)]
        table.add_row(layer.name, layer.kind, *sizes, f"{layer.signal_to_noise:.1f}")
    console.print(table)
    whole = Table("", *measured)
    for name in next(iter(measured.values())):
        whole.add_row(_label(name, samples), *[_shown(name, row[name]) for row in measured.values()])
    console.print(whole)


def _label(name: str, samples: int) -> str:
    return {"bytes": "kB in all", "ms": f"ms for {samples} samples"}.get(name, name.replace("_", " "))


def _shown(name: str, value: float) -> str:
    """
    >>> _shown("accuracy", 0.987654), _shown("bytes", 12345), _shown("ms", 0.5)
    ('98.77%', '12.3', '0.500')
    """
    if "accuracy" in name:
        return f"{value:.2%}"
    return f"{value / 1e3:.1f}" if name == "bytes" else f"{value:.3f}" if name == "ms" else f"{value:.4g}"
