"""Models between dl4all and other libraries as ONNX files, each library in an environment of its own.

    python -m lab.onnx_routes [--route NAME ...] [--device cpu] [--json FILE]

    keras, scikit_learn    write files with inputs and results, which dl4all is to compute
    openvino, ncnn         compute what dl4all has exported

Environments are kept in the cache folder; the packages of Keras (with TensorFlow) take 1.6 GB. A line for
each model tells the largest difference over the largest result; the exit status is 1 where one is above 1e-5.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dl4all as dl
from lab.peers.environment import environment

HERE = Path(__file__).parent
SECONDS = 900
TOLERANCE = 1e-5


class Route(NamedTuple):
    """A library, the script of this folder that runs in its environment, and what that needs from PyPI."""

    script: str
    requirements: tuple[str, ...]
    writes: bool  # whether it writes models, or reads ours
    leaves_out: tuple[str, ...] = ()  # models that the library has no layers for


ROUTES = {
    "keras": Route("from_keras.py", ("tensorflow-cpu==2.21.0", "tf2onnx==1.17.0"), writes=True),
    "scikit_learn": Route("from_scikit_learn.py", ("scikit-learn==1.9.1", "skl2onnx==1.20.0"), writes=True),
    "openvino": Route("to_openvino.py", ("openvino==2026.4.1",), writes=False),
    # A lookup in a table of words becomes a Gather, which ncnn does not have.
    "ncnn": Route("to_ncnn.py", ("ncnn==1.0.20261020", "pnnx==20261020"), writes=False, leaves_out=("gpt",)),
}


def networks() -> dict[str, tuple[Any, Any]]:
    """The networks that other libraries compute, and an input of each."""
    dl.manual_seed(0)
    image = dl.randn(1, 3, 64, 64, device="cpu")
    return {
        "resnet18": (dl.models.resnet18(num_classes=10), image),
        "mobilenet_v2": (dl.models.mobilenet_v2(num_classes=10), image),
        "mlp": (dl.models.MLP(64, [32], 10), dl.randn(1, 64, device="cpu")),
        "gpt": (dl.models.GPT(20, 16, 2, 4, 16), dl.tensor([[1, 2, 3, 4, 5]], device="cpu")),
    }


def export_networks(folder: Path, left_out: tuple[str, ...]) -> None:
    """Write each network, its input and its results."""
    for name, (network, x) in networks().items():
        if name in left_out:
            continue
        network.to("cpu").eval()
        dl.onnx.export(network, x, folder / f"{name}.onnx", input_names=["x"])
        with dl.no_grad():
            np.savez(folder / f"{name}.npz", x=x.numpy(), y0=network(x).numpy())


def run_model(path: Path, device: str) -> list[Any]:
    """The results of a file that another library has written."""
    with np.load(path.with_suffix(".npz")) as arrays:
        result = dl.onnx.load(path, device=device)(arrays["x"])
    return [one.detach().numpy() for one in (result if isinstance(result, tuple) else (result,))]


def results_of(path: Path) -> list[Any]:
    """The results that another library has written beside a file of ours."""
    with np.load(path.with_suffix(".results.npz")) as arrays:
        return [arrays[name] for name in arrays]


def differences(folder: Path, computed: Callable[[Path], list[Any]]) -> dict[str, float]:
    """By model, the largest difference of its results from those of its writer, over the largest."""
    found = {}
    for given in sorted(path for path in folder.glob("*.npz") if not path.name.endswith(".results.npz")):
        path = given.with_suffix(".onnx")
        with np.load(given) as arrays:
            wanted = [arrays[name] for name in arrays if name != "x"]
        got = computed(path)
        if len(got) != len(wanted):
            raise SystemExit(f"{path.name} has {len(got)} results, and not {len(wanted)}")
        pairs = [(a.reshape(b.shape).astype(np.float64), b) for a, b in zip(got, wanted, strict=True)]
        found[path.stem] = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)
    if not found:
        raise SystemExit("no model was written")
    return found


def travel(name: str, device: str) -> dict[str, float]:
    """Take models over a route; returns their differences."""
    route = ROUTES[name]
    python = environment(f"onnx-{name}", (*route.requirements, "numpy"))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if not route.writes:
            export_networks(folder, route.leaves_out)
        subprocess.run([python, HERE / route.script, folder], check=True, timeout=SECONDS)
        computed = (lambda path: run_model(path, device)) if route.writes else results_of
        return differences(folder, computed)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--route", action="append", choices=list(ROUTES))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = {name: travel(name, options.device) for name in options.route or ROUTES}
    for name, models in found.items():
        for model, difference in models.items():
            print(f"{name:14} {model:20} {difference:.1e}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    if not all(one <= TOLERANCE for models in found.values() for one in models.values()):
        sys.exit("a model gives other results on the other side")


if __name__ == "__main__":
    main()
