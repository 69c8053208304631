"""Jacobians, Hessians and products with them, of functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dl4all.autograd.backward_pass import grad
from dl4all.autograd.grad_mode import enable_grad
from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core.tensor_base import TensorBase, from_host
from dl4all.ops.indexing.concatenation import stack
from dl4all.ops.memory.parts import index
from dl4all.ops.memory.views import reshape

Function = Callable[..., Any]


def vjp(function: Function, inputs: Any, v: Any = None, create_graph: bool = False) -> tuple[Any, Any]:
    """The product of a vector with a function's Jacobian, by one pass backward.

    Args:
        function: takes the inputs, returns a tensor.
        inputs: a tensor, or several.
        v: of the result's shape; optional if the result has one element.
        create_graph: let the returned tensors be differentiated too.

    Returns:
        The function's result, and a tensor of each input's shape (not in a tuple if `inputs` is a tensor).

    Raises:
        ShapeError, GradientError

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([1.0, 2.0], device="cpu")
        >>> y, product = dl.autograd.vjp(lambda x: x * x, x, dl.tensor([1.0, 10.0], device="cpu"))
        >>> product.tolist()
        [2.0, 40.0]
    """
    leaves, result = _run("vjp", function, inputs, create_graph)
    products = grad(result, leaves, _weights("vjp", result, v), create_graph=create_graph, allow_unused=True)
    return _result(result, create_graph), _as_inputs(inputs, _fill_unused(products, leaves))


def jvp(function: Function, inputs: Any, v: Any, create_graph: bool = False) -> tuple[Any, Any]:
    """The product of a function's Jacobian with a vector: how the result changes along it.

    It takes two backward passes: the vector-Jacobian product with ``u`` is linear in ``u``, and its
    derivative along ``v`` is the Jacobian-vector product with ``v`` (J. Townsend, "A new trick for
    calculating Jacobian vector products", 2017).

    Args:
        function: takes the inputs, returns a tensor.
        inputs: a tensor, or several.
        v: a direction, of the shape of each input.
        create_graph: let the returned tensors be differentiated too.

    Returns:
        The function's result, and a tensor of its shape.

    Raises:
        ShapeError, GradientError

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([1.0, 2.0], device="cpu")
        >>> y, change = dl.autograd.jvp(lambda x: x * x, x, dl.tensor([1.0, 10.0], device="cpu"))
        >>> change.tolist()
        [2.0, 40.0]
    """
    leaves, result = _run("jvp", function, inputs, create_graph)
    directions = _directions("jvp", leaves, v)
    with enable_grad():
        left = _ones_like(result).requires_grad_()
        products = grad(result, leaves, left, create_graph=True, allow_unused=True)
        pairs = [(p, d) for p, d in zip(products, directions, strict=True) if p is not None]
        (change,) = grad(
            [p for p, _ in pairs], left, [d for _, d in pairs], create_graph=create_graph, allow_unused=True
        )
    return _result(result, create_graph), _fill_unused((change,), (result,))[0]


def hvp(function: Function, inputs: Any, v: Any) -> tuple[Any, Any]:
    """The product of a scalar function's Hessian with a vector, without the Hessian.

    Args:
        function: takes the inputs, returns a tensor with one element.
        inputs: a tensor, or several.
        v: of the shape of each input.

    Returns:
        The function's result, and a tensor of each input's shape.

    Raises:
        ShapeError, GradientError

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([1.0, 2.0], device="cpu")
        >>> dl.autograd.hvp(lambda x: (x * x * x).sum(), x, dl.tensor([1.0, 1.0], device="cpu"))[1].tolist()
        [6.0, 12.0]
    """
    leaves, result = _run("hvp", function, inputs, True)
    slopes = _fill_unused(grad(result, leaves, create_graph=True, allow_unused=True), leaves)
    directions = _directions("hvp", leaves, v)
    pairs = [(s, d) for s, d in zip(slopes, directions, strict=True) if s.requires_grad]
    if not pairs:  # a linear function
        return _result(result, False), _as_inputs(inputs, [_ones_like(leaf) * 0 for leaf in leaves])
    products = grad([s for s, _ in pairs], leaves, [d for _, d in pairs], allow_unused=True)
    return _result(result, False), _as_inputs(inputs, _fill_unused(products, leaves))


def jacobian(function: Function, inputs: Any, create_graph: bool = False) -> Any:
    """All derivatives of a function: one pass backward for each element of its result.

    Args:
        function: takes the inputs, returns a tensor.
        inputs: a tensor, or several.
        create_graph: let the derivatives be differentiated too.

    Returns:
        For each input a tensor of the result's shape followed by the input's.

    Raises:
        GradientError

    Example:
        >>> import dl4all as dl
        >>> dl.autograd.jacobian(lambda x: x * x, dl.tensor([1.0, 2.0], device="cpu")).tolist()
        [[2.0, 0.0], [0.0, 4.0]]
    """
    leaves, result = _run("jacobian", function, inputs, create_graph)
    with enable_grad():
        flat = reshape(result, -1)
        rows = [
            _fill_unused(
                grad(index(flat, i), leaves, retain_graph=True, create_graph=create_graph, allow_unused=True),
                leaves,
            )
            for i in range(flat.numel())
        ]
        columns = list(zip(*rows, strict=True)) if rows else [() for _ in leaves]
        jacobians = [
            reshape(stack(column), *result.shape, *leaf.shape)
            if column
            else from_host(
                type(leaf).result_class,
                np.zeros((*result.shape, *leaf.shape), leaf.dtype),
                leaf.device,
                copy=False,
            )
            for column, leaf in zip(columns, leaves, strict=True)
        ]
    return _as_inputs(inputs, jacobians)


def hessian(function: Function, inputs: Any) -> Any:
    """All second derivatives of a scalar function of one tensor.

    Returns:
        A tensor of the input's shape twice over.

    Raises:
        ArgumentError: `inputs` is not one tensor.
        GradientError: the result has more than one element.

    Example:
        >>> import dl4all as dl
        >>> dl.autograd.hessian(lambda x: (x * x * x).sum(), dl.tensor([1.0, 2.0], device="cpu")).tolist()
        [[6.0, 0.0], [0.0, 12.0]]
    """
    if not isinstance(inputs, TensorBase):
        raise ArgumentError(f"[hessian] expected one tensor, got {type(inputs).__name__}")

    def slope(x: Any) -> Any:
        result = function(x)
        return _fill_unused(grad(result, (x,), create_graph=True, allow_unused=True), (x,))[0]

    return jacobian(slope, inputs)


def _run(name: str, function: Function, inputs: Any, create_graph: bool) -> tuple[list[Any], Any]:
    """Leaves in place of the inputs, and the function's result for them.

    With `create_graph` inputs with a history are used themselves.
    """
    tensors = list(inputs) if isinstance(inputs, tuple | list) else [inputs]
    wrong = [type(tensor).__name__ for tensor in tensors if not isinstance(tensor, TensorBase)]
    if wrong or not tensors:
        raise ArgumentError(f"[{name}] expected tensors, got {', '.join(wrong) or 'none'}")
    with enable_grad():
        leaves = [
            tensor if create_graph and tensor.requires_grad else tensor.detach().requires_grad_()
            for tensor in tensors
        ]
        result = function(*leaves)
    if not isinstance(result, TensorBase):
        raise ArgumentError(f"[{name}] the function must return a tensor, got {type(result).__name__}")
    return leaves, result


def _weights(name: str, result: Any, v: Any) -> Any:
    """The vector, checked; None stands for 1."""
    if v is None:
        if result.numel() != 1:
            raise ShapeError(f"[{name}] the result has shape {result.shape}; v of that shape is needed")
        return None
    if v.shape != result.shape:
        raise ShapeError(f"[{name}] the result has shape {result.shape}, v has {v.shape}")
    return v


def _directions(name: str, leaves: Sequence[Any], v: Any) -> list[Any]:
    """The vectors, one for each input, checked."""
    directions = list(v) if isinstance(v, tuple | list) else [v]
    expected, got = [leaf.shape for leaf in leaves], [direction.shape for direction in directions]
    if expected != got:
        raise ShapeError(f"[{name}] expected directions of shapes {expected}, got {got}")
    return directions


def _fill_unused(gradients: Sequence[Any], leaves: Sequence[Any]) -> list[Any]:
    """Zeros in place of None, which means that nothing depends on the leaf."""
    return [_ones_like(leaf) * 0 if g is None else g for g, leaf in zip(gradients, leaves, strict=True)]


def _ones_like(tensor: TensorBase) -> Any:
    ones = np.ones(tensor.shape, tensor.dtype)
    return from_host(type(tensor).result_class, ones, tensor.device, copy=False)


def _as_inputs(inputs: Any, tensors: Sequence[Any]) -> Any:
    """A tuple if the inputs came as several, else the only tensor."""
    return tuple(tensors) if isinstance(inputs, tuple | list) else tensors[0]


def _result(result: Any, create_graph: bool) -> Any:
    return result if create_graph else result.detach()
