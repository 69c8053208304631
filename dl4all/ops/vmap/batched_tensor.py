"""Batched tensors: the implementation of what functions see within ``vmap``.

A :class:`BatchedTensor` has the shape of one sample and the memory of all samples. Beside the strides of its
own axes it has a stride for each level, that is for each ``vmap`` that it is in. So a view of it is a view of
all samples and needs no rule. An op takes all samples at once by a rule of
:mod:`dl4all.ops.vmap.batching_rules`, or is called for each sample. Graphs hold batched tensors too, so that
gradients taken within ``vmap`` are each sample's own.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from dl4all.allocator.storage import Storage
from dl4all.errors import ArgumentError
from dl4all.ops.core import tape
from dl4all.ops.core.arguments.mixed_dtypes import MixedScalars, scalars_cast
from dl4all.ops.core.arguments.tensor_like import TensorLikeFound
from dl4all.ops.core.op import empty, fit_gradients, primitives
from dl4all.ops.core.tensor_base import Shape, TensorBase, from_host
from dl4all.ops.core.vmap_hook import NODE, BatchedTensorBase, Level
from dl4all.ops.elementwise.logic import where
from dl4all.ops.indexing.concatenation import stack
from dl4all.ops.memory.copy import fill_with, new_like
from dl4all.ops.memory.parts import index
from dl4all.ops.memory.views import reshape, unsqueeze
from dl4all.ops.reduce.sums import sum

Levels = tuple[Level, ...]
LevelStrides = tuple[tuple[Level, int], ...]
"""Levels with the stride from one sample to the next."""
Rule = Callable[[Any, list[Any], dict[str, Any], Levels], Any]
"""``rule(op, operands, arguments, levels)`` returns the result, either batched or with an axis in front for
each level."""

RULES: dict[str, Rule] = {}
"""The rules by which ops take all samples at once; "elementwise" stands for all elementwise ops."""


BATCH_OPS: dict[str, bool] = {}
"""Ops that take samples as their batch where only the first operand is batched.

The value says whether samples are folded into the operand's first axis, or stand in front of it.
"""


class PerSampleFallback(ArgumentError):
    """A function does something that is possible for single samples only; ``vmap`` calls it for each then."""

    def __init__(self, what: str) -> None:
        super().__init__(f"[vmap] the function {what}; outside of vmap use its results, not its tensors")
        self.what = what


READS = "reads elements that differ from sample to sample"


class _SampleStorage:
    """The storage of a batched tensor: counts changes, and refuses to be taken for the memory of one sample.

    It has the attributes of :class:`Storage`.
    """

    __slots__ = ("all_samples",)

    def __init__(self, all_samples: Storage) -> None:
        self.all_samples = all_samples

    @property
    def version(self) -> int:
        return self.all_samples.version

    @version.setter
    def version(self, version: int) -> None:
        self.all_samples.version = version

    @property
    def named_cpu(self) -> bool:
        return self.all_samples.named_cpu

    @named_cpu.setter
    def named_cpu(self, named_cpu: bool) -> None:
        self.all_samples.named_cpu = named_cpu

    @property
    def history_version(self) -> int:
        return self.all_samples.history_version

    @history_version.setter
    def history_version(self, history_version: int) -> None:
        self.all_samples.history_version = history_version

    def _refuse(self, *_: Any) -> NoReturn:
        raise PerSampleFallback(READS)

    address = allocation = buffer = nbytes = pending = shown = span = property(_refuse, _refuse)
    settle = used_on = _refuse


class BatchedTensor(BatchedTensorBase):
    """A tensor with the shape of one sample that holds all samples."""

    __slots__ = ("levels",)
    levels: LevelStrides

    def __repr__(self) -> str:
        counts = " x ".join(str(level.count) for level, _ in self.levels)
        return f"<tensor of shape {self.shape} and dtype {self.dtype} in {counts} samples>"

    def strided_view(self, shape: Shape, strides: Shape, offset: int) -> Any:
        return _view(self, shape, strides, offset, self.levels)

    def on_host(self, *, each: bool = True) -> npt.NDArray[Any]:
        raise PerSampleFallback(READS)

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise ArgumentError(
            f"[vmap] a tensor of shape {self.shape} differs from sample to sample and has no single value: "
            "item(), tolist(), numpy(), bool() and branches on it are not possible within vmap; use dl.where "
            "instead of a branch, or call the function for each sample and dl.stack the results"
        )

    item = tolist = numpy = __array__ = __buffer__ = _refuse

    # The interface of BatchedTensorBase

    def call_op(self, op: Any, operands: list[Any], arguments: dict[str, Any]) -> Any:
        try:
            op.check_operands(operands)
        except TensorLikeFound as found:
            return found.operand.call_op(op, operands, arguments)
        rule = RULES.get(op.name, RULES["elementwise"] if op.elementwise else None)
        if rule is None:
            return _call_per_sample(op, operands, arguments)
        levels = levels_of(operands)
        try:
            shape, dtype = op.infer(*operands, **arguments)
        except MixedScalars:
            return op(*scalars_cast(operands), **arguments)
        except TensorLikeFound as found:
            return found.operand.call_op(op, operands, arguments)
        with tape.gradients(False):
            result = rule(op, operands, arguments, levels)
            if not isinstance(result, BatchedTensor):
                result = wrap(reshape(result, *level_shape(levels), *shape), levels)
            if result.dtype != dtype:
                result = primitives.cast(result, dtype.name)
        if tape.state.enabled and op.name in BATCH_OPS and not levels_of(operands[1:]):
            _add_batch_node(op, operands, arguments, result, levels)
        else:
            op.add_node(operands, arguments, result)
        return result

    def call_per_sample(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        return _call_per_sample(function, args, kwargs)

    def allocate_samples(self, shape: Shape, dtype: np.dtype[Any]) -> Any:
        levels = levels_of([self])
        shape = (*level_shape(levels), *shape)
        return wrap(empty(type(self).result_class, shape, dtype, self.device), levels)

    def all_samples(self) -> TensorBase:
        return unwrap(self, levels_of([self]))  # type: ignore[no-any-return]

    def samples_for(self, target: TensorBase) -> TensorBase:
        self.check_target("copy_", target)
        return unwrap(self, levels_of([target]), len(target.shape))  # type: ignore[no-any-return]

    def sum_over_samples(self) -> Any:
        return sum_over_levels(self, levels_of([self]), only_closed=False)

    def match_levels(self, tensors: Iterable[Any]) -> list[Any]:
        levels = levels_of([self])
        return [t if set(levels) <= set(levels_of([t])) else share(t, levels) for t in tensors]

    def match_inputs(self, inputs: Iterable[Any]) -> list[Any]:
        return [self.match_levels([i])[0] if tape.wants_gradient(i) else i for i in inputs]

    def check_target(self, name: str, target: TensorBase) -> None:
        if len(levels_of([target])) < len(levels_of([target, self])):
            raise ArgumentError(
                f"[{name}] a tensor of shape {target.shape} is the same in all samples of vmap and cannot be "
                "changed in place to what differs between them; make it by zeros_like or clone of a sample's"
            )


def level_strides(tensor: object) -> LevelStrides:
    """The levels of a tensor with their strides; none where it is no batched tensor."""
    return tensor.levels if isinstance(tensor, BatchedTensor) else ()


def levels_of(operands: Iterable[Any]) -> Levels:
    """The levels of all operands, outer ones first."""
    levels = {level for operand in operands for level, _ in level_strides(operand)}
    return tuple(sorted(levels, key=lambda level: level.number))


def level_shape(levels: Levels) -> Shape:
    """The sizes of the axes that stand for levels."""
    return tuple(level.count for level in levels)


_classes: dict[type[TensorBase], Any] = {}
"""Subclasses of :class:`BatchedTensor` that also have the methods of a tensor class."""


def _make(like: TensorBase, shape: Shape, strides: Shape, offset: int, levels: LevelStrides) -> Any:
    """A tensor on the memory of another one, in the given levels, without a history."""
    cls = type(like).result_class
    if not levels:
        return cls(storage_of(like), shape, like.dtype, like.device, strides, offset)
    storage: Any = like.storage  # all views share one, so that they see each other's changes
    if not isinstance(storage, _SampleStorage):
        storage = _SampleStorage(storage)
    if cls not in _classes:
        _classes[cls] = type("BatchedTensor", (BatchedTensor, cls), {"__slots__": ()})
    tensor = _classes[cls](storage, shape, like.dtype, like.device, strides, offset)
    tensor.levels = levels
    return tensor


def _view(like: TensorBase, shape: Shape, strides: Shape, offset: int, levels: LevelStrides) -> Any:
    """Like :func:`_make`, for a tensor that knows which one it is a view of."""
    view = _make(like, shape, strides, offset, levels)
    base = None if like.view_of is None or like.view_of[0]() is None else like.view_of[0]
    view.view_of = (weakref.ref(like) if base is None else base, like.storage.history_version)
    return view


def storage_of(tensor: TensorBase) -> Storage:
    """The storage that holds a tensor's elements, those of all samples."""
    storage: Any = tensor.storage
    return storage.all_samples if isinstance(storage, _SampleStorage) else storage


def unwrap(tensor: TensorBase, levels: Levels, ndim: int = 0) -> Any:
    """All samples as one tensor without a history.

    It has an axis in front for each level, then axes of size 1 until a sample has `ndim` axes.
    """
    steps, missing = dict(level_strides(tensor)), max(ndim - len(tensor.shape), 0)
    shape = (*level_shape(levels), *(1,) * missing, *tensor.shape)
    strides = (*(steps.get(level, 0) for level in levels), *(0,) * missing, *tensor.strides)
    return _make(tensor, shape, strides, tensor.offset, ())


def wrap(tensor: TensorBase, levels: Levels) -> Any:
    """The batched tensor whose samples lie along the first axes, one axis for each level; undoes `unwrap`."""
    k = len(levels)
    strides = tuple(zip(levels, tensor.strides, strict=False))
    return _make(tensor, tensor.shape[k:], tensor.strides[k:], tensor.offset, strides)


def is_shared(operand: TensorBase) -> bool:
    """Whether an operand is the same in all samples."""
    return not any(stride for _, stride in level_strides(operand))


# Into a level and out of it, with gradients


def enter_level(tensor: TensorBase, level: Level, dim: int, *, owned: bool = False) -> Any:
    """Make samples of the slices along an axis.

    Each sample sees its own slice only, so that a sample's gradient is zero in the other slices. With `owned`
    nobody else has the tensor, and the gradients of all samples are put together.
    """
    axis = dim % len(tensor.shape)
    shape = tensor.shape[:axis] + tensor.shape[axis + 1 :]
    strides = tensor.strides[:axis] + tensor.strides[axis + 1 :]
    levels = (*level_strides(tensor), (level, tensor.strides[axis]))
    result = _view(tensor, shape, strides, tensor.offset, levels)
    cls = type(tensor).result_class

    def backward(grads: Any, saved: Any, needs: Any) -> list[Any]:
        if owned or not level.open:
            return [leave_level(grads[0], level, axis)]
        eye = np.eye(level.count, dtype=np.bool_).reshape(level.count, -1, *(1,) * (len(shape) - axis))
        own_slice = enter_level(from_host(cls, eye, grads[0].device, copy=False), level, 0)
        return [where(own_slice, unsqueeze(grads[0], axis), 0.0)]

    tape.add_node(NODE, [tensor], [result], backward, match_levels=False)
    return result


def leave_level(tensor: TensorBase, level: Level, dim: int) -> Any:
    """Lay the samples of a level along a new axis."""
    axis = dim % (len(tensor.shape) + 1)
    levels = dict(level_strides(tensor))
    stride = levels.pop(level, 0)
    shape = (*tensor.shape[:axis], level.count, *tensor.shape[axis:])
    strides = (*tensor.strides[:axis], stride, *tensor.strides[axis:])
    result = _make(tensor, shape, strides, tensor.offset, tuple(levels.items()))

    def backward(grads: Any, saved: Any, needs: Any) -> list[Any]:
        return [enter_level(grads[0], level, axis, owned=True)]

    tape.add_node(NODE, [tensor], [result], backward, match_levels=False)
    return result


def share(tensor: TensorBase, levels: Levels) -> Any:
    """A tensor in more levels, the same in all of their samples."""
    strides = dict(level_strides(tensor))
    missing = tuple(level for level in levels if level not in strides)
    strides |= dict.fromkeys(missing, 0)
    in_order = tuple(sorted(strides.items(), key=lambda item: item[0].number))
    result = _make(tensor, tensor.shape, tensor.strides, tensor.offset, in_order)

    def backward(grads: Any, saved: Any, needs: Any) -> list[Any]:
        return [sum_over_levels(grads[0], missing)]

    tape.add_node(NODE, [tensor], [result], backward, match_levels=False)
    return result


def sum_over_levels(gradient: Any, levels: Iterable[Level], *, only_closed: bool = True) -> Any:
    """The sum over the samples of levels.

    With `only_closed` it leaves out open levels: within them each sample has a gradient of its own.
    """
    for level in levels:
        if not (only_closed and level.open):
            gradient = sum(leave_level(gradient, level, 0), 0)
    return gradient


def _add_batch_node(
    op: Any, operands: list[Any], arguments: dict[str, Any], result: Any, levels: Levels
) -> None:
    """Add the call of an op that takes samples as its batch to the graph.

    Once the levels are closed, its gradients are computed for the whole batch. The gradient of a weight that
    all samples share is the sum then, where the gradient of each sample would take the memory of a weight.
    """
    edges = tape.edges_of(operands)
    if edges is None:
        return
    plan = op.gradient_rule.plan(tuple(edge is not None for edge in edges))
    saved = {name: operands[position] for name, position in plan.parameters if position is not None}
    others = [None if o is None else o.shape for o in operands[1:]]
    first, shape = op.arrays[0], operands[0].shape
    front, folds = level_shape(levels), BATCH_OPS[op.name]
    batch_shape = (math.prod(front) * shape[0], *shape[1:]) if folds else (*front, *shape)
    names = tuple(saved)

    def gradients(g: Any, tensors: Iterable[Any], shape: Shape) -> list[Any]:
        """The gradients of all operands, of which the first one has this shape."""
        given = {**arguments, "needs": plan.needs, "shapes": (shape, *others)}
        given |= zip(names, tensors, strict=True)
        found = plan(g, [given[name] for name, _ in plan.parameters])
        return fit_gradients(found, [edges[0] and edges[0]._replace(shape=shape), *edges[1:]])

    def as_batch(tensor: Any) -> Any:
        for level in reversed(levels):
            tensor = leave_level(tensor, level, 0)
        k = len(levels) + 1
        return reshape(tensor, math.prod(tensor.shape[:k]), *tensor.shape[k:]) if folds else tensor

    def backward(grads: Any, saved: Any, needs: Any) -> list[Any]:
        if any(level.open for level in levels):
            input_grad, *other_grads = gradients(grads[0], saved, shape)
            return [input_grad, *(None if g is None else sum_over_levels(g, levels) for g in other_grads)]
        plain = [as_batch(t) if name == first else t for name, t in zip(names, saved, strict=True)]
        input_grad, *other_grads = gradients(as_batch(grads[0]), plain, batch_shape)
        if input_grad is not None:
            input_grad = reshape(input_grad, *front, *shape)
            for level in levels:
                input_grad = enter_level(input_grad, level, 0, owned=True)
        return [input_grad, *other_grads]

    tape.add_node(op.name, operands, (result,), backward, tuple(saved.values()), match_levels=False)


# Sample by sample


def _call_per_sample(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call a function for each sample of the innermost level, and stack the results."""
    tensors: list[Any] = []
    _map_tensors(tensors.append, (args, kwargs))
    level = levels_of(tensors)[-1]
    samples = {id(t): _samples_of(t, level) for t in tensors if level_strides(t) or tape.wants_gradient(t)}
    results = []
    for i in range(level.count):
        sample_args, sample_kwargs = _map_tensors(
            lambda t: samples[id(t)][i] if id(t) in samples else t,  # noqa: B023
            (args, kwargs),
        )
        results.append(function(*sample_args, **sample_kwargs))
    return _stack_results(results, level)


def _map_tensors(function: Callable[[Any], Any], value: Any) -> Any:
    """The value with the function applied to each tensor in it; goes into dicts, lists and tuples."""
    if isinstance(value, TensorBase):
        return function(value)
    if isinstance(value, dict):
        return {name: _map_tensors(function, item) for name, item in value.items()}
    if isinstance(value, (tuple, list)):
        items = [_map_tensors(function, item) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return value


def _stack_results(results: Sequence[Any], level: Level) -> Any:
    """Batched tensors of the results of all samples, which may be tuples or lists of tensors."""
    first = results[0]
    if isinstance(first, TensorBase):
        return enter_level(stack(results), level, 0, owned=True)
    if isinstance(first, (tuple, list)):
        parts = [_stack_results(part, level) for part in zip(*results, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    return first


def _samples_of(tensor: TensorBase, level: Level) -> list[Any]:
    """Views of the single samples of a level."""
    if level not in dict(level_strides(tensor)):
        tensor = share(tensor, (level,))
    samples = leave_level(tensor, level, 0)
    with tape.gradients(False):
        parts = [tape.alias(index(samples, i)) for i in range(level.count)]

    def backward(grads: Any, saved: Any, needs: Any) -> list[Any]:
        present = next(g for g in grads if g is not None)
        return [stack([_zeros_like(present) if g is None else g for g in grads])]

    tape.add_node("unbind", [samples], parts, backward, match_levels=False)
    return parts


def _zeros_like(tensor: TensorBase) -> Any:
    zeros = new_like(tensor, tensor.shape)
    fill_with(zeros, 0)
    return zeros
