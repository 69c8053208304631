"""PyTorch's database of optimizers against ``dl4all.optim``: parameters and states after some steps.

    python tools/peer_databases/optimizers.py --device vulkan:0

Each sample takes steps with given gradients, in each implementation that PyTorch has of it; L-BFGS minimizes
a loss. What differs is compared with PyTorch's own steps in float64 too.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from torch.testing._internal.common_optimizers import optim_db

sys.path.insert(0, str(Path(__file__).absolute().parents[2]))

import dl4all as dl
from dl4all.errors import Dl4allError

STEPS = 20
SHAPES = ((5, 3), (7,), (2, 3, 1), (), (1,))
MATRICES = ((5, 3), (2, 7))
RELATIVE, ABSOLUTE = 1.3e-5, 1e-5
SLACK = 4.0
"""How many times as far from float64's result as PyTorch's own float32 a result may be."""


@dataclasses.dataclass
class Sample:
    """What became of one set of options: equal, refused or wrong."""

    optimizer: str
    options: dict[str, Any]
    status: str = "equal"
    why: str = ""


def samples(device: str, pattern: str = "") -> Iterator[Sample]:
    """Each sample of the database, judged."""
    for info in optim_db:
        if pattern not in str(info.name):
            continue
        for given in info.optim_inputs_func(device="cuda"):
            for implementation in _implementations(info):
                if given.kwargs.get("capturable") and implementation.get("fused"):
                    continue
                yield judged(info, {**given.kwargs, **implementation}, device)


def _implementations(info: Any) -> Iterator[dict[str, bool]]:
    yield {}
    for name in ("foreach", "fused"):
        if name in info.supported_impls:
            yield {name: True}


def judged(info: Any, options: dict[str, Any], device: str) -> Sample:
    """Compare the steps of one set of options."""
    name = info.optim_cls.__name__
    sample = Sample(name, options)
    rng = np.random.default_rng(21)
    shapes = MATRICES if name == "Muon" else SHAPES
    start = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    steps = [[rng.standard_normal(shape).astype(np.float32) for shape in shapes] for _ in range(STEPS)]
    # PyTorch captures on its own accelerators only, and does not take tensors as rates everywhere.
    plain = {
        key: value.item() if isinstance(value, torch.Tensor) else value
        for key, value in options.items()
        if key not in ("capturable", "foreach", "fused")
    }
    sparse = bool(info.only_supports_sparse_grads)

    def reference(dtype: torch.dtype) -> list[np.ndarray[Any, Any]]:
        return _steps(
            info.optim_cls, plain, start, steps, lambda x: torch.tensor(x, dtype=dtype), sparse=sparse
        )

    expected = reference(torch.float32)
    ours = {key: dl.tensor(v.item()) if isinstance(v, torch.Tensor) else v for key, v in options.items()}
    try:
        found = _steps(getattr(dl.optim, name), ours, start, steps, lambda x: dl.tensor(x, device=device))
        precise = reference(torch.float64)
        for number, (one, other, exact) in enumerate(zip(expected, found, precise, strict=True)):
            _compare(one, other, exact, f"tensor {number}")
    except Dl4allError as error:
        sample.status, sample.why = "refused", str(error)
    except AssertionError as error:
        sample.status, sample.why = "wrong", str(error)
    except Exception as error:  # noqa: BLE001 - whatever it raises is a wrong answer
        sample.status, sample.why = "wrong", f"{type(error).__name__}: {error}"
    return sample


def _compare(expected: Any, found: Any, precise: Any, what: str) -> None:
    assert expected.shape == found.shape, f"{what}: expected {expected.shape}, got {found.shape}"
    error = np.abs(found.astype(np.float64) - expected)
    if not np.all(error <= ABSOLUTE + RELATIVE * np.abs(expected)):
        own, other = np.abs(expected - precise).max(), np.abs(found - precise).max()
        assert other <= SLACK * own, (
            f"{what}: off by {error.max():.3g}; {other:.3g} from float64, PyTorch {own:.3g}"
        )


def _steps(
    optimizer: Any,
    options: dict[str, Any],
    start: list[Any],
    gradients: list[list[Any]],
    tensor: Callable[[Any], Any],
    *,
    sparse: bool = False,
) -> list[Any]:
    """Parameters and states after the steps."""
    parameters = [tensor(one).requires_grad_() for one in start]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = optimizer(parameters, **options)
        for step in gradients:
            values = [tensor(one) for one in step]
            if optimizer.__name__ == "LBFGS":
                targets = [tensor(one) for one in gradients[0]]
                made.step(functools.partial(_loss, parameters, targets, made))
                break
            for p, value in zip(parameters, values, strict=True):
                p.grad = value.to_sparse() if sparse else value
            made.step()
    results = [p.detach() for p in parameters]
    if optimizer.__name__ != "LBFGS":  # its states have the length of rounding errors, once it is there
        for _, state in sorted(made.state_dict()["state"].items()):
            results += [state[name] for name in sorted(state) if state[name] is not None]
    return [np.asarray(one.cpu().numpy() if hasattr(one, "cpu") else one) for one in results]


def _loss(parameters: list[Any], targets: list[Any], optimizer: Any) -> Any:
    """A loss that is no quadratic function."""
    optimizer.zero_grad()
    apart = [p - target for p, target in zip(parameters, targets, strict=True)]
    loss = sum(((one**2).sum() + (one**4).sum() for one in apart), 0)
    loss.backward()
    return loss


@click.command(help=(__doc__ or "").replace("\n\n    python", "\n\n\b\n    python"))
@click.option("--device", default="cpu", help="The device of dl4all.")
@click.option("--only", "pattern", default="", help="Optimizers with this in their names.")
def main(device: str, pattern: str) -> None:
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for sample in samples(device, pattern):
        counts[sample.optimizer][sample.status] += 1
        if sample.status != "equal":
            print(f"{sample.status}: {sample.optimizer} {sample.options}: {sample.why}")
    for name, found in counts.items():
        print(f"{name:12}", ", ".join(f"{count} {status}" for status, count in found.items()))
    total = sum(counts.values(), collections.Counter())
    print(f"{'all':12}", ", ".join(f"{count} {status}" for status, count in total.items()))
    sys.exit(bool(total["wrong"]))


if __name__ == "__main__":
    main()
