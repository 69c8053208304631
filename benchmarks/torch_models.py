"""Models and scripts of PyTorch on ``dlall`` beside PyTorch's CPU: equal results, and what falls back.

Each model is made from its configuration, with random weights and nothing to download, at a small size that
keeps its structure. It infers once and takes one step of training on both; scripts take five. The table shows
the largest difference of outputs, gradients and parameters, relative to the largest element, and the ops that
fell back.

    pip install timm transformers torchvision keras     # beside PyTorch
    python benchmarks/torch_models.py [--model gpt2] [--device vulkan:0] [--write]
"""

from __future__ import annotations

import copy
import os
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import click
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from lab.torch_zoo.cases import CASES, Case, define_torchvision_ops
from lab.torch_zoo.image_scripts import IMAGE_SCRIPTS
from lab.torch_zoo.keras_networks import KERAS_SCRIPTS
from lab.torch_zoo.method_scripts import METHOD_SCRIPTS
from lab.torch_zoo.networks import ZOO
from lab.torch_zoo.sequence_scripts import SEQUENCE_SCRIPTS

LEARNING_RATE = 0.01
GENERATING = ("gpt2", "llama", "qwen2", "t5")
MODELS = CASES | ZOO
SCRIPTS = IMAGE_SCRIPTS | SEQUENCE_SCRIPTS | METHOD_SCRIPTS | KERAS_SCRIPTS
LEAST_OF_SCRIPTS = 1e-3
"""Smaller parameters' differences are relative to this."""
ILL_CONDITIONED = 1e-5
"""Gradients that differ by more are compared in double precision too."""

COLUMNS = (
    "model",
    "inference",
    "gradient",
    "parameters",
    "in double",
    "CPU",
    "same tokens",
    "fallbacks",
    "of",
)
SCRIPT_COLUMNS = ("script", "difference", "fallbacks", "of")
PAGE = Path(__file__).parent.parent / "docs" / "torch-models.md"
HEAD = """# PyTorch models on dlall

What `python benchmarks/torch_models.py --write` found on {place}, with PyTorch {torch}: each model with
random weights, at a small size, inferring once and taking a step of SGD; each script training for five steps.
Figures are the largest difference from PyTorch's CPU, relative to the largest element; *fallbacks* are calls
that ran on the CPU for want of a kernel.

Gradients of some networks are ill-conditioned at this size: where batch normalization sees a handful of
elements, or a rectifier an element that is almost 0, rounding decides. Where gradients differ by more than
1e-5, *in double* has the difference of both devices' gradients computed in double precision (on devices that
do so), and *CPU* how far PyTorch's own gradients in single precision are from those.
"""


def first_tensor(output: Any) -> torch.Tensor:
    """The logits, hidden states or whatever else comes first among what a model returns."""
    if isinstance(output, (list, tuple)):
        output = output[0]
    if isinstance(output, torch.Tensor):
        return output
    values = [output.get(name) for name in ("logits", "last_hidden_state")] + list(output.values())
    return next(value for value in values if isinstance(value, torch.Tensor))


def difference(expected: torch.Tensor, computed: torch.Tensor, least: float = 1e-30) -> float:
    """The largest difference, relative to the largest element, or to `least` if that is more."""
    scale = expected.detach().abs().max().clamp(min=least)
    return float((computed.detach().cpu() - expected.detach()).abs().max() / scale)


class Results(NamedTuple):
    """What a model computes: inference, then gradients and parameters of a step of training."""

    inference: torch.Tensor
    gradients: list[torch.Tensor | None]
    parameters: list[torch.Tensor]


RANDOM_LAYERS = ("DropPath", "DropBlock2d", "StochasticDepth")


def results(case: Case, weights: list[torch.Tensor]) -> Results:
    """Infer, and take a step of SGD; `weights` of outputs make them a loss: the first call chooses them."""
    model, inputs = case
    with torch.no_grad():
        inference = first_tensor(model.eval()(**inputs)).cpu()
    model.train()
    for module in model.modules():  # random numbers of two devices differ
        if isinstance(module, torch.nn.modules.dropout._DropoutNd) or type(module).__name__ in RANDOM_LAYERS:
            module.eval()
    output = first_tensor(model(**inputs))
    if not weights:
        weights.append(torch.randn_like(output))
    loss: Any = (output * weights[0].to(output)).mean()
    loss.backward()
    gradients = [p.grad for p in model.parameters()]
    torch.optim.SGD(model.parameters(), LEARNING_RATE, momentum=0.9).step()
    return Results(
        inference,
        [None if one is None else one.cpu() for one in gradients],
        [p.detach().cpu() for p in model.parameters()],
    )


def moved(case: Case, target: str | torch.dtype) -> Case:
    """A copy on another device, or in another precision."""
    inputs = {
        name: value if isinstance(target, torch.dtype) and not value.is_floating_point() else value.to(target)
        for name, value in case.inputs.items()
    }
    return Case(copy.deepcopy(case.model).to(target), inputs)


def differences(case: Case, device: str) -> dict[str, float]:
    """How far inference, gradients and parameters after a step of SGD are from the CPU's, by columns."""
    weights: list[torch.Tensor] = []
    there, exact = moved(case, device), moved(case, torch.float64)
    expected, computed = results(case, weights), results(there, weights)
    scale = max(float(one.abs().max()) for one in expected.gradients if one is not None)

    def apart(some: Results, others: Results) -> float:
        pairs = zip(some.gradients, others.gradients, strict=True)
        return max(float((q - p).abs().max()) for p, q in pairs if p is not None and q is not None) / scale

    # Biases that were 0 are all gradient now, and some are 0 but for rounding (of keys, by softmax).
    pairs = zip(expected.parameters, computed.parameters, strict=True)
    found = {
        "inference": difference(expected.inference, computed.inference),
        "gradient": apart(expected, computed),
        "parameters": max(difference(p, q, LEARNING_RATE * scale) for p, q in pairs),
    }
    if found["gradient"] > ILL_CONDITIONED:
        exact_there = moved(exact, device)
        truth = results(exact, weights)
        found["CPU"] = apart(expected, truth)
        if os.environ.get("DL4ALL_DEVICE") == "cpu":
            found["in double"] = apart(truth, results(exact_there, weights))
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


def _fallen() -> tuple[str, str]:
    """How many ops fell back since the count began, and which."""
    import dl4all.torch

    fallen = {op.removeprefix("aten::"): count.calls for op, count in dl4all.torch.fallbacks.items()}
    return str(sum(fallen.values())), ", ".join(f"{op} {calls}" for op, calls in fallen.items())


def model_row(name: str, device: str) -> tuple[str, ...]:
    """What becomes of a model."""
    import dl4all.torch

    dl4all.torch.fallbacks.clear()
    torch.manual_seed(0)
    case = MODELS[name]()
    found = differences(case, device)
    tokens = str(generated(case, device)) if name in GENERATING else ""
    numbers = (f"{found[key]:.1e}" if key in found else "" for key in COLUMNS[1:6])
    return (name, *numbers, tokens, *_fallen())


def script_row(name: str, device: str) -> tuple[str, ...]:
    """What becomes of a script: how far losses and parameters are from the CPU's."""
    import dl4all.torch

    computed = []
    for where in ("cpu", device):
        dl4all.torch.fallbacks.clear()
        torch.manual_seed(0)
        computed.append(SCRIPTS[name](where))
    most = max(difference(x, y, LEAST_OF_SCRIPTS) for x, y in zip(*computed, strict=True))
    return (name, f"{most:.1e}", *_fallen())


def markdown(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table under a heading."""
    lines = [columns, ("---",) * len(columns), *rows]
    return "\n".join([f"## {title}", "", *("| " + " | ".join(line) + " |" for line in lines), ""])


@click.command()
@click.option(
    "--model", "names", multiple=True, type=click.Choice([*MODELS, *SCRIPTS]), help="all by default"
)
@click.option(
    "--device", default=None, help="what dlall:0 means, such as vulkan:0; by default what auto takes"
)
@click.option("--write", is_flag=True, help="write docs/torch-models.md")
def main(names: tuple[str, ...], device: str | None, write: bool) -> None:
    """Compare models and scripts on dlall with the CPU's."""
    if device is not None:
        os.environ["DL4ALL_DEVICE"] = device
    os.environ.setdefault("DL4ALL_TORCH_FALLBACK", "silent")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    library = define_torchvision_ops()
    from dl4all.pytorch.device import devices

    place = f"dl4all's `{devices.names()[0]}`"
    parts = []
    for title, columns, among, row in (
        ("Models", COLUMNS, MODELS, model_row),
        ("Scripts", SCRIPT_COLUMNS, SCRIPTS, script_row),
    ):
        found = []
        for name in among:
            if not names or name in names:
                found.append(row(name, "dlall:0"))
                print(*found[-1], flush=True)
        parts.append(markdown(title, columns, found))
    del library
    text = HEAD.format(place=place, torch=torch.__version__) + "\n" + "\n".join(parts)
    if write:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
