"""``vmap``: turns a function of one sample into a function of a batch."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from dl4all.errors import ArgumentError
from dl4all.ops.core import strides, tape
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.core.vmap_hook import Batching, Level
from dl4all.ops.elementwise.arithmetic import clone
from dl4all.ops.indexing.concatenation import stack
from dl4all.ops.memory.parts import select
from dl4all.ops.memory.views import expand, unsqueeze
from dl4all.ops.vmap import batched_tensor, batching_rules

logger = logging.getLogger("dl4all")
batched_tensor.RULES.update(batching_rules.RULES)
batched_tensor.BATCH_OPS.update(batching_rules.BATCH_OPS)

Function = Callable[..., Any]


def vmap(function: Function, in_dims: Any = 0, out_dims: Any = 0) -> Function:
    """Turn a function of one sample into a function of many samples, which are stacked along an axis.

    The function is called once. The tensors that it sees have the shape of one sample, and ops on them take
    all samples at once: elementwise ops, products, reductions, views, concatenation, softmax, convolution,
    pooling, normalization, and functions made of these, such as losses. Other ops run for each sample, and so
    do functions that read elements on the host, such as sorting and indexing by tensors.

    Random numbers differ between samples. If the function draws them for a tensor that all samples share, as
    ``dl.randn(3)`` does, or reads elements in another way, as ``dl.allclose`` does, it is called again for
    each sample; a warning says so.

    Gradients taken within the function are each sample's own, also for tensors that all samples share.
    Outside, gradients flow through the results, and a tensor that all samples share gets their sum.

    Args:
        function: takes tensors and returns a tensor or a tuple of tensors; has no other effects.
        in_dims: the axis of the samples in each operand, None for a shared operand; an int is for all
            operands. An operand may be a list, tuple or dict of tensors.
        out_dims: the axis along which results are stacked; a tuple has one for each result.

    Raises:
        ArgumentError: no operand has samples, their numbers differ, or the function reads a number from a
            tensor that differs from sample to sample, as a branch on it does.

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
    warned = False

    def batch_function(*operands: Any) -> Any:
        nonlocal warned
        dims = tuple(in_dims) if isinstance(in_dims, tuple | list) else (in_dims,) * len(operands)
        if len(dims) != len(operands):
            raise ArgumentError(f"[vmap] in_dims has {len(dims)} entries for {len(operands)} operands")
        mapped: list[tuple[Any, int]] = []
        _map_tensors(
            "in_dims", operands, dims, lambda o, d: mapped.append((o, strides.axis("vmap", d, len(o.shape))))
        )
        counts = sorted({o.shape[d] for o, d in mapped})
        if len(counts) != 1 or 0 in counts:
            raise ArgumentError(f"[vmap] expected operands with one number of samples, got {counts}")
        storages = [batched_tensor.storage_of(o) for o, _ in mapped]
        versions = {storage: storage.version for storage in storages}
        try:
            return _call_once(function, operands, dims, out_dims, counts[0], set(versions))
        except batched_tensor.PerSampleFallback as reason:
            if any(storage.version != version for storage, version in versions.items()):
                raise ArgumentError(
                    f"[vmap] the function {reason.what}, after it has changed an operand in place, and so "
                    "cannot be called anew for each of them; change a .clone() of the operand"
                ) from reason
            if not warned:
                warned = True
                logger.warning("[vmap] the function %s; it is called for each of them", reason.what)
        return _call_per_sample(function, operands, dims, out_dims, counts[0])

    return batch_function


def _call_once(
    function: Function, operands: Any, dims: Any, out_dims: Any, count: int, used_storages: set[Any]
) -> Any:
    """Call the function for all samples; its results share no memory with the used storages."""
    level, previous = Level(count), tape.state.in_vmap

    def enter(operand: Any, dim: int) -> Any:
        return batched_tensor.enter_level(operand, level, dim)

    def leave(result: Any, dim: int) -> Any:
        shape = result.shape
        k = strides.axis("vmap", dim, len(shape) + 1)
        if level not in dict(batched_tensor.level_strides(result)):
            return clone(expand(unsqueeze(result, k), *shape[:k], count, *shape[k:]))
        samples = batched_tensor.leave_level(result, level, k)
        if batched_tensor.storage_of(samples) in used_storages or not samples.is_contiguous():
            samples = clone(samples)
        used_storages.add(batched_tensor.storage_of(samples))
        return samples

    with Batching() as batching:
        try:
            batching.begin()
            tape.state.in_vmap = True
            result = function(*_map_tensors("in_dims", operands, dims, enter))
            return _map_tensors("out_dims", result, out_dims, leave)
        finally:
            level.open, tape.state.in_vmap = False, previous


def _call_per_sample(function: Function, operands: Any, dims: Any, out_dims: Any, count: int) -> Any:
    """Call the function for each sample and stack its results."""
    results = []
    for i in range(count):
        sample = _map_tensors("in_dims", operands, dims, lambda o, d: select(o, d, i))  # noqa: B023
        results.append(function(*sample))
    return _stack_results(results, out_dims)


def _map_tensors(name: str, values: Any, dims: Any, apply: Callable[[Any, int], Any]) -> Any:
    """The values with a function applied to each tensor and its axis; values without an axis stay.

    Raises:
        ArgumentError: a value with an axis is no tensor, or the number of axes is wrong.
    """
    if dims is None:
        return values
    if isinstance(values, dict):
        return {
            k: _map_tensors(name, v, dims[k] if isinstance(dims, dict) else dims, apply)
            for k, v in values.items()
        }
    if isinstance(values, (tuple, list)):
        axes = dims if isinstance(dims, (tuple, list)) else (dims,) * len(values)
        if len(axes) != len(values):
            raise ArgumentError(f"[vmap] {name} has {len(axes)} entries for {len(values)} tensors")
        mapped = [_map_tensors(name, v, d, apply) for v, d in zip(values, axes, strict=True)]
        return mapped if isinstance(values, list) else tuple(mapped)
    if not isinstance(values, TensorBase):
        raise ArgumentError(
            f"[vmap] expected a tensor where {name} is {dims}, got {type(values).__name__}; "
            "operands of other kinds have None in in_dims, and results are tensors"
        )
    return apply(values, dims)


def _stack_results(results: list[Any], dims: Any) -> Any:
    """Stack the results of all samples, which may be dicts, lists or tuples of tensors."""
    first = results[0]
    if isinstance(first, dict):
        return {
            k: _stack_results([r[k] for r in results], dims[k] if isinstance(dims, dict) else dims)
            for k in first
        }
    if isinstance(first, (tuple, list)):
        axes = dims if isinstance(dims, (tuple, list)) else (dims,) * len(first)
        stacked = [
            _stack_results(list(parts), d) for parts, d in zip(zip(*results, strict=True), axes, strict=True)
        ]
        return stacked if isinstance(first, list) else tuple(stacked)
    return stack(results, dims)
