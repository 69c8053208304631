"""Compares gradients with finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.autograd.backward_pass import grad
from dl4all.errors import GradientError
from dl4all.ops.core import tape
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.tensor_base import TensorBase, from_host


def gradcheck(
    function: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
) -> bool:
    """Compare the gradients of a function with central differences.

    Args:
        function: takes the inputs and returns a tensor or a tuple of them.
        inputs: a tensor or several; those that require gradients must be float64 tensors on the CPU.
        eps: the step of the differences.
        atol, rtol: absolute and relative tolerance of each entry of the Jacobian.

    Returns:
        True.

    Raises:
        GradientError: a gradient is off; the message says which and by how much.

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([1.0, 2.0], dtype="float64", device="cpu").requires_grad_()
        >>> dl.autograd.gradcheck(lambda x: x * x / (x + 1), x)
        True
    """
    operands = [inputs] if isinstance(inputs, TensorBase) else list(inputs)
    checked = [i for i, operand in enumerate(operands) if tape.wants_gradient(operand)]
    if not checked:
        raise GradientError("[gradcheck] no input requires gradients")
    for i in checked:
        if operands[i].dtype != np.float64 or not operands[i].device.is_host:
            raise GradientError(
                f"[gradcheck] input {i} must be float64 on the CPU, where differences are exact enough; "
                f"it is {operands[i].dtype} on {operands[i].device}"
            )
    outputs = _outputs(function, operands)
    for number, output in enumerate(outputs):
        if kind_of(output.dtype) != "f":
            continue
        exact = _analytic(output, [operands[i] for i in checked])
        for i, jacobian in zip(checked, exact, strict=True):
            differences = _numeric(function, operands, i, number, output.numel(), eps)
            off = np.abs(jacobian - differences) - (atol + rtol * np.abs(differences))
            if not (off <= 0).all():
                worst = np.unravel_index(np.nanargmax(np.where(np.isnan(off), np.inf, off)), off.shape)
                raise GradientError(
                    f"[gradcheck] the derivative of output {number}, element {worst[1]}, with respect to "
                    f"input {i}, element {worst[0]}, is {jacobian[worst]:.6g}; "
                    f"differences say {differences[worst]:.6g}"
                )
    return True


def gradgradcheck(function: Callable[..., Any], inputs: Any, **tolerances: float) -> bool:
    """Compare second derivatives with differences of the gradient, weighted by random numbers.

    A gradient without a history counts as constant, and must be.

    Raises:
        GradientError: a second derivative is off; the message says which and by how much.

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([0.5, 1.5], dtype=dl.float64, device="cpu", requires_grad=True)
        >>> dl.autograd.gradgradcheck(dl.sin, (x,))
        True
    """
    operands = [inputs] if isinstance(inputs, TensorBase) else list(inputs)
    checked = [i for i, operand in enumerate(operands) if tape.wants_gradient(operand)]
    rng = np.random.default_rng(0)
    weights = [
        from_host(type(o).result_class, rng.standard_normal(o.shape), o.device, copy=False)
        for o in _outputs(function, operands)
    ]

    def first_derivatives(*values: Any) -> tuple[Any, ...]:
        gradients = grad(
            _outputs(function, values),
            [values[i] for i in checked],
            weights,
            create_graph=True,
            allow_unused=True,
        )
        return tuple(g for g in gradients if g is not None)

    return gradcheck(first_derivatives, operands, **tolerances)


def _outputs(function: Callable[..., Any], operands: Sequence[Any]) -> list[Any]:
    result = function(*operands)
    return list(result) if isinstance(result, tuple) else [result]


def _analytic(output: Any, inputs: Sequence[Any]) -> list[npt.NDArray[np.float64]]:
    """Jacobians by backward passes, of shape (input elements, output elements)."""
    jacobians = [np.zeros((i.numel(), output.numel())) for i in inputs]
    if not tape.wants_gradient(output):
        return jacobians
    for position in range(output.numel()):
        one_hot = np.zeros(output.shape)
        one_hot.reshape(-1)[position] = 1
        seed = from_host(type(output).result_class, one_hot, output.device, copy=False)
        gradients = grad(output, inputs, seed, retain_graph=True, allow_unused=True)
        for jacobian, gradient in zip(jacobians, gradients, strict=True):
            if gradient is not None:
                jacobian[:, position] = gradient.on_host().reshape(-1)
    return jacobians


def _numeric(
    function: Callable[..., Any], operands: Sequence[Any], which: int, number: int, width: int, eps: float
) -> npt.NDArray[np.float64]:
    """The Jacobian of output `number` by input `which`, by differences; `width` is the output's numel."""
    operand = operands[which]
    start = np.array(operand.on_host())

    def output_at(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        moved = from_host(type(operand).result_class, values, operand.device, copy=True)
        moved.requires_grad_()
        inputs = [moved if i == which else other for i, other in enumerate(operands)]
        result: npt.NDArray[np.float64] = _outputs(function, inputs)[number].on_host().reshape(-1)
        return np.array(result)

    rows = []
    for position in range(start.size):
        up, down = start.copy(), start.copy()
        up.reshape(-1)[position] += eps
        down.reshape(-1)[position] -= eps
        rows.append((output_at(up) - output_at(down)) / (2 * eps))
    return np.array(rows).reshape(start.size, width)
