"""The optimizers of ``optim_db``: parameters and states after some steps."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.common_optimizers import optim_db

from dl4all.pytorch.device.devices import NAME
from lab.torch_databases.comparison import compare
from lab.torch_databases.outcome import Outcome
from lab.torch_databases.samples import copied, on_device, tensors, widened

STEPS = 4
SHAPES = ((5, 3), (7,), (2, 3, 1), (1,))
MATRICES = ((5, 3), (2, 7))


def entries(dtype: torch.dtype) -> dict[str, Any]:
    """The optimizers by name."""
    return {str(info.name): info for info in optim_db}


def check(name: str, info: Any, dtype: torch.dtype, *, variants: bool = True) -> Outcome:
    """Take steps with each of an optimizer's samples, in each of its implementations."""
    outcome = Outcome(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in info.optim_inputs_func(device="cpu"):
            for implementation in _implementations(info):
                options = {**sample.kwargs, **implementation}
                if options.get("differentiable") and (options.get("foreach") or options.get("fused")):
                    continue
                _check_options(outcome, info, options, dtype)
    return outcome


def _implementations(info: Any) -> Iterator[dict[str, bool]]:
    yield {}
    if "foreach" in info.supported_impls:
        yield {"foreach": False}
        yield {"foreach": True}
    if "fused" in info.supported_impls and "cpu" in info.supports_fused_on:
        yield {"fused": True}


def _check_options(outcome: Outcome, info: Any, options: dict[str, Any], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    shapes = MATRICES if info.optim_cls.__name__ == "Muon" else SHAPES
    start = [torch.randn(shape, dtype=dtype) for shape in shapes]
    gradients = [[torch.randn(shape, dtype=dtype) for shape in shapes] for _ in range(STEPS)]
    sparse = bool(info.only_supports_sparse_grads)
    try:
        expected = _steps(info.optim_cls, options, copied(start), gradients, sparse)
    except Exception:  # noqa: BLE001 - options that the CPU does not take show nothing
        return
    with outcome.judging(f"{options}"):
        moved = on_device(start), on_device(gradients)
        got = _steps(info.optim_cls, options, *moved, sparse)
        outcome.samples += 1
        if any(one.device.type != NAME for one in got[: len(start)]):
            raise TypeError("parameters left the device")

        def precise() -> list[torch.Tensor]:
            return _steps(info.optim_cls, options, widened(start), widened(gradients), sparse)

        compare(expected, got, f"{len(start)} parameters, then states", precise)


def _steps(
    optimizer: Any,
    options: dict[str, Any],
    start: list[torch.Tensor],
    gradients: list[list[torch.Tensor]],
    sparse: bool,
) -> list[torch.Tensor]:
    """Parameters and states after the steps."""
    leaves = [torch.nn.Parameter(one) for one in start]
    differentiable = bool(options.get("differentiable"))
    parameters: list[torch.Tensor] = [one.clone() for one in leaves] if differentiable else list(leaves)
    made = optimizer(parameters, **{key: _moved(item, start[0]) for key, item in options.items()})
    for step in gradients:
        for one, gradient in zip(parameters, step, strict=True):
            one.grad = gradient.to_sparse() if sparse else gradient.clone()
        closure = functools.partial(_loss, parameters, step, sparse)
        made.step(None if differentiable else closure)
    if optimizer is torch.optim.LBFGS:
        return parameters  # its states are directions of the length of rounding errors, once it is there
    states = [made.state[one] for one in parameters if one in made.state]
    return [*parameters, *tensors(states)]


def _moved(option: Any, like: torch.Tensor) -> Any:
    return option.to(like.device) if isinstance(option, torch.Tensor) and option.dim() else option


def _loss(parameters: list[torch.Tensor], targets: list[torch.Tensor], sparse: bool) -> torch.Tensor:
    with torch.enable_grad():
        loss = torch.stack(
            [((one - target) ** 2).sum() for one, target in zip(parameters, targets, strict=True)]
        ).sum()
    if not sparse:
        for one, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            one.grad = gradient
    return loss
