"""``vmap``: functions of one sample as functions of many."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from dl4all.errors import ArgumentError
from dl4all.ops.core import strides, tape
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.core.vmap_hook import Level
from dl4all.ops.elementwise.arithmetic import clone
from dl4all.ops.indexing.concatenation import stack
from dl4all.ops.memory.views import expand, select, unsqueeze
from dl4all.ops.vmap import batched_tensor, batching_rules

logger = logging.getLogger("dl4all")
batched_tensor.RULES.update(batching_rules.RULES)
batched_tensor.BATCH_OPS.update(batching_rules.BATCH_OPS)

Function = Callable[..., Any]


def vmap(function: Function, in_dims: Any = 0, out_dims: Any = 0) -> Function:
    """A function of one sample as a function of many, which are stacked along an axis.

    The function is called once. The tensors that it sees have the shape of one sample, and ops on them take
    all samples at once: elementwise ops, products, reductions, views, joining, softmax, convolution, pooling,
    normalisation, and what is made of those, as losses are. Other ops run for each sample by itself, and so
    does what reads elements on the host, as sorting and indexing by tensors do.

    Random numbers are each sample's own. Where they are drawn for a tensor that all samples share, as
    ``dl.randn(3)`` makes one, and where something else reads elements, as ``dl.allclose`` does, the function
    is called anew, for each sample; a warning says so.

    Gradients taken within the function are each sample's own, also those of tensors that all samples share.
    Outside, gradients flow through the results, and what all samples share gets the sum.

    Args:
        function: takes tensors, returns a tensor or a tuple of them; without effects beside that.
        in_dims: the axis of the samples in each operand, None for one that all share; an int is for all. An
            operand may be a list, tuple or dict of tensors.
        out_dims: the axis along which results are stacked; a tuple has one for each.

    Raises:
        ArgumentError: no operand has samples, their numbers differ, or the function reads a number from what
            differs from sample to sample, as a branch on it does.

    Example:
        >>> import dl4all as dl
        >>> rows = dl.tensor([[1.0, 2.0], [3.0, 4.0]], device="cpu")
        >>> dl.vmap(dl.dot)(rows, rows).tolist()
        [5.0, 25.0]

        The gradient of each sample's loss, by one pass backward:

        >>> weight, x, y = dl.tensor([1.0, -1.0], device="cpu"), rows, dl.tensor([0.0, 1.0], device="cpu")
        >>> def loss(weight, x, y):
        ...     return (dl.dot(weight, x) - y) ** 2
        >>> def slope(weight, x, y):
        ...     return dl.autograd.vjp(lambda w: loss(w, x, y), weight)[1]
        >>> dl.vmap(slope, in_dims=(None, 0, 0))(weight, x, y).tolist()
        [[-2.0, -4.0], [-12.0, -16.0]]
    """
    told = False

    def mapped(*operands: Any) -> Any:
        nonlocal told
        dims = tuple(in_dims) if isinstance(in_dims, tuple | list) else (in_dims,) * len(operands)
        if len(dims) != len(operands):
            raise ArgumentError(f"[vmap] in_dims has {len(dims)} entries for {len(operands)} operands")
        given: list[tuple[Any, int]] = []
        _each(
            "in_dims", operands, dims, lambda o, d: given.append((o, strides.axis("vmap", d, len(o.shape))))
        )
        counts = sorted({o.shape[d] for o, d in given})
        if len(counts) != 1 or 0 in counts:
            raise ArgumentError(f"[vmap] expected operands with one number of samples, got {counts}")
        memory = {batched_tensor.storage_of(o): batched_tensor.storage_of(o).version for o, _ in given}
        try:
            return _at_once(function, operands, dims, out_dims, counts[0], set(memory))
        except batched_tensor.PerSampleFallback as reason:
            if any(storage.version != version for storage, version in memory.items()):
                raise ArgumentError(
                    f"[vmap] the function {reason.what}, after it has changed an operand in place, and so "
                    "cannot be called anew for each of them; change a .clone() of the operand"
                ) from reason
            if not told:
                told = True
                logger.warning("[vmap] the function %s; it is called for each of them", reason.what)
        return _in_turn(function, operands, dims, out_dims, counts[0])

    return mapped


def _at_once(function: Function, operands: Any, dims: Any, out_dims: Any, count: int, taken: set[Any]) -> Any:
    """The function called once; what it returns shares no memory with that which is `taken`."""
    level, before = Level(count), tape.state.in_vmap

    def leave(result: Any, dim: int) -> Any:
        shape = result.shape
        k = strides.axis("vmap", dim, len(shape) + 1)
        if level not in dict(batched_tensor.level_strides(result)):
            return clone(expand(unsqueeze(result, k), *shape[:k], count, *shape[k:]))
        made = batched_tensor.leave_level(result, level, k)
        if batched_tensor.storage_of(made) in taken or not made.is_contiguous():
            made = clone(made)
        taken.add(batched_tensor.storage_of(made))
        return made

    try:
        tape.state.in_vmap = True
        samples = _each("in_dims", operands, dims, lambda o, d: batched_tensor.enter_level(o, level, d))
        result = function(*samples)
        return _each("out_dims", result, out_dims, leave)
    finally:
        level.open, tape.state.in_vmap = False, before


def _in_turn(function: Function, operands: Any, dims: Any, out_dims: Any, count: int) -> Any:
    results = []
    for i in range(count):
        sample = _each("in_dims", operands, dims, lambda o, d: select(o, d, i))  # noqa: B023
        results.append(function(*sample))
    return _joined(results, out_dims)


def _each(name: str, values: Any, dims: Any, apply: Callable[[Any, int], Any]) -> Any:
    """What is made of each tensor and its axis; where that is None all stays as it is.

    Raises:
        ArgumentError: there is no tensor, or not an axis for each.
    """
    if dims is None:
        return values
    if isinstance(values, dict):
        return {
            k: _each(name, v, dims[k] if isinstance(dims, dict) else dims, apply) for k, v in values.items()
        }
    if isinstance(values, (tuple, list)):
        axes = dims if isinstance(dims, (tuple, list)) else (dims,) * len(values)
        if len(axes) != len(values):
            raise ArgumentError(f"[vmap] {name} has {len(axes)} entries for {len(values)} tensors")
        made = [_each(name, v, d, apply) for v, d in zip(values, axes, strict=True)]
        return made if isinstance(values, list) else tuple(made)
    if not isinstance(values, TensorBase):
        raise ArgumentError(
            f"[vmap] expected a tensor where {name} is {dims}, got {type(values).__name__}; "
            "operands of other kinds have None in in_dims, and results are tensors"
        )
    return apply(values, dims)


def _joined(results: list[Any], dims: Any) -> Any:
    """The results of all samples side by side."""
    first = results[0]
    if isinstance(first, dict):
        return {
            k: _joined([r[k] for r in results], dims[k] if isinstance(dims, dict) else dims) for k in first
        }
    if isinstance(first, (tuple, list)):
        axes = dims if isinstance(dims, (tuple, list)) else (dims,) * len(first)
        made = [_joined(list(parts), d) for parts, d in zip(zip(*results, strict=True), axes, strict=True)]
        return made if isinstance(first, list) else tuple(made)
    return stack(results, dims)
