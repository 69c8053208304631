"""PyTorch's database of optimizers against ``dl4all.optim``: parameters and states after some steps.

Each sample takes steps with given gradients, in each implementation that PyTorch has of it; L-BFGS minimizes
a loss. What differs is compared with PyTorch's own steps in float64 too.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.testing._internal.common_optimizers import optim_db

import dl4all as dl
from lab.peer_databases.functions import at_path
from lab.peer_databases.outcome import Outcome
from lab.torch_databases.comparison import Wrong

STEPS = 20
SHAPES = ((5, 3), (7,), (2, 3, 1), (), (1,))
MATRICES = ((5, 3), (2, 7))
RELATIVE, ABSOLUTE = 1.3e-5, 1e-5
SLACK = 4.0
"""How many times as far from float64's result as PyTorch's own float32 a result may be."""


def entries(dtype: torch.dtype) -> dict[str, Any]:
    """The optimizers by name."""
    return {str(info.name): info for info in optim_db}


def check(name: str, info: Any, dtype: torch.dtype, *, variants: bool = True) -> Outcome:
    """Take steps with each of an optimizer's samples, in each of its implementations."""
    outcome = Outcome(name)
    for given in info.optim_inputs_func(device="cuda"):
        for implementation in _implementations(info):
            if not (given.kwargs.get("capturable") and implementation.get("fused")):
                options = {**given.kwargs, **implementation}
                with outcome.judging(f"{options}"):
                    _check_options(info, options)
    return outcome


def _implementations(info: Any) -> Iterator[dict[str, bool]]:
    yield {}
    for name in ("foreach", "fused"):
        if name in info.supported_impls:
            yield {name: True}


def _check_options(info: Any, options: dict[str, Any]) -> None:
    """Compare the steps of one set of options."""
    name = info.optim_cls.__name__
    rng = np.random.default_rng(21)
    sparse = bool(info.only_supports_sparse_grads)
    shapes = MATRICES if name == "Muon" else [shape for shape in SHAPES if shape or not sparse]
    start = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    steps = [[rng.standard_normal(shape).astype(np.float32) for shape in shapes] for _ in range(STEPS)]
    # PyTorch captures on its own accelerators only, and does not take tensors as rates everywhere.
    plain = {
        key: value.item() if isinstance(value, torch.Tensor) else value
        for key, value in options.items()
        if key not in ("capturable", "foreach", "fused")
    }

    def reference(dtype: torch.dtype) -> list[np.ndarray[Any, Any]]:
        return _steps(
            info.optim_cls, plain, start, steps, lambda x: torch.tensor(x, dtype=dtype), sparse=sparse
        )

    expected = reference(torch.float32)
    ours = {key: dl.tensor(v.item()) if isinstance(v, torch.Tensor) else v for key, v in options.items()}
    found = _steps(at_path(f"optim.{name}"), ours, start, steps, dl.tensor, sparse=sparse)
    precise = reference(torch.float64)
    for number, (one, other, exact) in enumerate(zip(expected, found, precise, strict=True)):
        _compare(one, other, exact, f"tensor {number}")


def _compare(expected: Any, found: Any, precise: Any, what: str) -> None:
    if expected.shape != found.shape:
        raise Wrong(f"{what}: expected {expected.shape}, got {found.shape}")
    error = np.abs(found.astype(np.float64) - expected)
    if not np.all(error <= ABSOLUTE + RELATIVE * np.abs(expected)):
        own, other = np.abs(expected - precise).max(), np.abs(found - precise).max()
        if not other <= SLACK * own:
            raise Wrong(f"{what}: off by {error.max():.3g}; {other:.3g} from float64, PyTorch {own:.3g}")


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
