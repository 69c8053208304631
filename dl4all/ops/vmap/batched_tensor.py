"""Tensors of one sample that stand for those of all samples: what functions see within ``vmap``.

A :class:`Batched` has the shape of one sample. Its memory is that of all of them, and beside the strides of
its own axes it has one for each ``vmap`` that it is in. So a view of it is a view of all samples, without a
rule; an op takes all samples at once by a rule of :mod:`dl4all.ops.vmap.batching_rules`, or one after the
other. Graphs are made of such tensors too, so that gradients within ``vmap`` are each sample's own.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.allocator.storage import Storage
from dl4all.errors import ArgumentError
from dl4all.ops.core import tape
from dl4all.ops.core.op import REGISTRY, empty, primitives
from dl4all.ops.core.tensor_base import Shape, TensorBase, from_host
from dl4all.ops.elementwise.logic import where
from dl4all.ops.indexing.concatenation import stack
from dl4all.ops.memory.copy import fill_with, new_like
from dl4all.ops.memory.views import index, reshape, unsqueeze
from dl4all.runtime.profiler import recorder

_numbers = itertools.count()


class Level:
    """A ``vmap``. While tensors of it are alive, be it in a graph, calls of ops are watched."""

    __slots__ = ("count", "number", "open")

    def __init__(self, count: int) -> None:
        self.count = count  # of samples
        self.number = next(_numbers)  # those within have higher ones
        self.open = True  # its function has not returned
        recorder.watching.add(self.number)

    def __del__(self) -> None:
        recorder.watching.discard(self.number)


Levels = tuple[Level, ...]
Steps = tuple[tuple[Level, int], ...]
"""Levels with the strides from sample to sample."""
Rule = Callable[[Any, list[Any], dict[str, Any], Levels], Any]
"""``rule(op, operands, arguments, levels)``: the result, with an axis in front for each level or batched."""

RULES: dict[str, Rule] = {}
"""How an op, found by its name, takes all samples at once; "elementwise" is for all of that kind."""


BATCHES: dict[str, bool] = {}
"""Ops that take samples as a batch where only the first operand differs, and whether in its first axis."""


class OneByOne(ArgumentError):
    """What a function does can be done for one sample only; ``vmap`` calls it for each, then."""

    def __init__(self, what: str) -> None:
        super().__init__(f"[vmap] the function {what}; outside of vmap use its results, not its tensors")
        self.what = what


READS = "reads elements that differ from sample to sample"


class _Memory:
    """The storage of all samples. It counts changes, but nobody takes it for that of one sample."""

    __slots__ = ("storage",)

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    @property
    def version(self) -> int:
        return self.storage.version

    @version.setter
    def version(self, version: int) -> None:
        self.storage.version = version

    @property
    def history_version(self) -> int:
        return self.storage.history_version

    @history_version.setter
    def history_version(self, history_version: int) -> None:
        self.storage.history_version = history_version

    def __getattr__(self, name: str) -> Any:
        raise OneByOne(READS)


class Batched(TensorBase):
    """A tensor of one sample, in all samples."""

    __slots__ = ("levels",)
    levels: Steps

    def __repr__(self) -> str:
        counts = " x ".join(str(level.count) for level, _ in self.levels)
        return f"<tensor of shape {self.shape} and dtype {self.dtype} in {counts} samples>"

    def as_strided(self, shape: Shape, strides: Shape, offset: int) -> Any:
        return _view(self, shape, strides, offset, self.levels)

    def on_host(self) -> npt.NDArray[Any]:
        raise OneByOne(READS)

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise ArgumentError(
            f"[vmap] a tensor of shape {self.shape} differs from sample to sample and has no single value: "
            "item(), tolist(), numpy(), bool() and branches on it are not possible within vmap; use dl.where "
            "instead of a branch, or call the function for each sample and dl.stack the results"
        )

    item = tolist = numpy = __array__ = __buffer__ = _refuse

    # What ops and other functions ask of a tensor that has levels

    def call(self, op: Any, operands: list[Any], arguments: dict[str, Any]) -> Any:
        """An op of operands among which this one is."""
        op.check_operands(operands)
        rule = RULES.get(op.name, RULES["elementwise"] if op.elementwise else None)
        if rule is None:
            return one_by_one(op, operands, arguments)
        levels = levels_of(operands)
        shape, dtype = op.infer(*operands, **arguments)
        with tape.gradients(False):
            result = rule(op, operands, arguments, levels)
            if not result.levels:
                result = wrapped(reshape(result, *sizes(levels), *shape), levels)
            if result.dtype != dtype:
                result = primitives.cast(result, dtype.name)
        if tape.state.enabled and dtype.kind == "f" and any(map(tape.wants_gradient, operands)):
            if op.name in BATCHES and not any(o.levels for o in operands[1:] if o is not None):
                _record_batch(op, operands, arguments, result, levels)
            else:
                op.add_node(operands, arguments, result)
        return result

    def one_by_one(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A function that reads this tensor on the host."""
        return one_by_one(function, args, kwargs)

    def new(self, shape: Shape, dtype: np.dtype[Any]) -> Any:
        """Memory for a tensor of that shape in all samples."""
        levels = levels_of([self])
        return wrapped(empty(type(self).result_class, (*sizes(levels), *shape), dtype, self.device), levels)

    def beside(self, tensors: Iterable[Any]) -> list[Any]:
        """Tensors in at least the levels of this one."""
        levels = levels_of([self])
        return [
            shared(t, levels) if any(level not in dict(t.levels) for level in levels) else t for t in tensors
        ]

    def every(self) -> Any:
        """All samples as one tensor."""
        return whole(self, levels_of([self]))

    def check_changes(self, name: str, target: TensorBase) -> None:
        """
        Raises:
            ArgumentError: the target is the same in samples that differ in this tensor.
        """
        if len(levels_of([target])) < len(levels_of([target, self])):
            raise ArgumentError(
                f"[{name}] a tensor of shape {target.shape} is the same in all samples of vmap and cannot be "
                "changed in place to what differs between them; make it by zeros_like or clone of a sample's"
            )

    def together(self, target: Any, source: Any) -> tuple[Any, Any]:
        """What is written and what is read, in all samples.

        Raises:
            ArgumentError: the samples differ in what is read, and share what is written.
        """
        if source.levels:
            source.check_changes("copy_", target)
            source = whole(source, levels_of([target]), len(target.shape))
        return target.every(), source

    def lifted(self, inputs: Iterable[Any]) -> list[Any]:
        """What a node has as inputs whose output this is: what all samples share gets its gradient's sum."""
        return [self.beside([i])[0] if tape.wants_gradient(i) else i for i in inputs]


def levels_of(operands: Iterable[Any]) -> Levels:
    """Those of all operands, outer ones first."""
    found = {level for o in operands if isinstance(o, TensorBase) for level, _ in o.levels}
    return tuple(sorted(found, key=lambda level: level.number))


def sizes(levels: Levels) -> Shape:
    """The axes that stand for levels."""
    return tuple(level.count for level in levels)


_classes: dict[type[TensorBase], Any] = {}
"""Of batched tensors with the methods of a class."""


def _made(like: TensorBase, shape: Shape, strides: Shape, offset: int, levels: Steps) -> Any:
    """Another view of a tensor's memory, in other levels, without a history."""
    cls = type(like).result_class
    if not levels:
        return cls(memory(like), shape, like.dtype, like.device, strides, offset)
    known: Any = like.storage  # the same one for all views, so that they know each other
    kept = known if isinstance(known, _Memory) else _Memory(known)
    if cls not in _classes:
        _classes[cls] = type("BatchedTensor", (Batched, cls), {"__slots__": ()})
    made = _classes[cls](kept, shape, like.dtype, like.device, strides, offset)
    made.levels = levels
    return made


def _view(like: TensorBase, shape: Shape, strides: Shape, offset: int, levels: Steps) -> Any:
    """:func:`_made`, which knows what it is a view of."""
    made = _made(like, shape, strides, offset, levels)
    whole = None if like.view_of is None or like.view_of[0]() is None else like.view_of[0]
    made.view_of = (weakref.ref(like) if whole is None else whole, like.storage.history_version)
    return made


def memory(tensor: TensorBase) -> Storage:
    """The memory that a tensor's elements lie in, in all samples."""
    storage: Any = tensor.storage
    return storage.storage if isinstance(storage, _Memory) else storage


def whole(tensor: TensorBase, levels: Levels, ndim: int = 0) -> Any:
    """All samples without a history: an axis in front for each level, then as many of size 1 as make a sample
    have `ndim`."""
    steps, missing = dict(tensor.levels), max(ndim - len(tensor.shape), 0)
    shape = (*sizes(levels), *(1,) * missing, *tensor.shape)
    strides = (*(steps.get(level, 0) for level in levels), *(0,) * missing, *tensor.strides)
    return _made(tensor, shape, strides, tensor.offset, ())


def wrapped(tensor: TensorBase, levels: Levels) -> Any:
    """What :func:`whole` undoes."""
    k = len(levels)
    steps = tuple(zip(levels, tensor.strides, strict=False))
    return _made(tensor, tensor.shape[k:], tensor.strides[k:], tensor.offset, steps)


def is_shared(operand: TensorBase) -> bool:
    """Whether it is the same in all samples."""
    return not any(step for _, step in operand.levels)


# In and out, with gradients


def enter(tensor: TensorBase, level: Level, dim: int, *, own: bool = False) -> Any:
    """A tensor's places along an axis as samples.

    Each sample sees its place only, so that a sample's gradient is zero at the others' places. With `own` the
    tensor is nobody else's, and the gradients of all samples are put together.
    """
    k = dim % len(tensor.shape)
    shape, strides = tensor.shape[:k] + tensor.shape[k + 1 :], tensor.strides[:k] + tensor.strides[k + 1 :]
    made = _view(tensor, shape, strides, tensor.offset, (*tensor.levels, (level, tensor.strides[k])))
    cls = type(tensor).result_class

    def backward(grads: Any, saved: Any, needs: Any) -> list[Any]:
        if own or not level.open:
            return [leave(grads[0], level, k)]
        eye = np.eye(level.count, dtype=np.bool_).reshape(level.count, -1, *(1,) * (len(shape) - k))
        mine = enter(from_host(cls, eye, grads[0].device, copy=False), level, 0)
        return [where(mine, unsqueeze(grads[0], k), 0.0)]

    tape.add_node("vmap", [tensor], [made], backward, sampled=False)
    return made


def leave(tensor: TensorBase, level: Level, dim: int) -> Any:
    """The samples of a level along an axis."""
    k = dim % (len(tensor.shape) + 1)
    steps = dict(tensor.levels)
    step = steps.pop(level, 0)
    shape = (*tensor.shape[:k], level.count, *tensor.shape[k:])
    strides = (*tensor.strides[:k], step, *tensor.strides[k:])
    made = _made(tensor, shape, strides, tensor.offset, tuple(steps.items()))

    def backward(grads: Any, saved: Any, needs: Any) -> list[Any]:
        return [enter(grads[0], level, k, own=True)]

    tape.add_node("vmap", [tensor], [made], backward, sampled=False)
    return made


def shared(tensor: TensorBase, levels: Levels) -> Any:
    """A tensor in more levels, the same in all of their samples."""
    steps = dict(tensor.levels)
    missing = tuple(level for level in levels if level not in steps)
    every = sorted((*steps.items(), *((level, 0) for level in missing)), key=lambda item: item[0].number)
    made = _made(tensor, tensor.shape, tensor.strides, tensor.offset, tuple(every))

    def backward(grads: Any, saved: Any, needs: Any) -> list[Any]:
        return [settled(grads[0], missing)]

    tape.add_node("vmap", [tensor], [made], backward, sampled=False)
    return made


def settled(gradient: Any, levels: Iterable[Level], *, ended: bool = True) -> Any:
    """The sum over the samples of levels, with `ended` only of these: within others each has its own."""
    for level in levels:
        if not (ended and level.open):
            gradient = REGISTRY["sum"](leave(gradient, level, 0), 0)
    return gradient


def _record_batch(
    op: Any, operands: list[Any], arguments: dict[str, Any], result: Any, levels: Levels
) -> None:
    """What the op records. Once the levels have ended, what all samples share gets the sum of its gradients
    at once, not each of them first: those of a weight would take its memory for each sample."""
    takes = op.gradient_rule.parameters(tuple(map(tape.wants_gradient, operands)))
    kept = {name: o for name, o in zip(op.arrays, operands, strict=True) if name in takes}
    given = {name: value for name, value in arguments.items() if name in takes}
    kinds = [None if o is None else (o.shape, o.dtype) for o in operands]
    shape, front, first = operands[0].shape, sizes(levels), op.arrays[0]
    whole = (math.prod(front) * shape[0], *shape[1:]) if BATCHES[op.name] else (*front, *shape)

    def gradient(kinds: list[Any]) -> Any:
        shapes = tuple(None if kind is None else kind[0] for kind in kinds)
        return op.make_backward(tuple(kept), {**given, "shapes": shapes}, kinds)

    of_each, of_all = gradient(kinds), gradient([(whole, operands[0].dtype), *kinds[1:]])
    names, merged = tuple(kept), BATCHES[op.name]

    def batch(tensor: Any) -> Any:
        for level in reversed(levels):
            tensor = leave(tensor, level, 0)
        k = len(levels) + 1
        return reshape(tensor, math.prod(tensor.shape[:k]), *tensor.shape[k:]) if merged else tensor

    def backward(grads: Any, saved: Any, needs: Any) -> list[Any]:
        if any(level.open for level in levels):
            found = of_each(grads, saved, needs)
            return [found[0], *(None if g is None else settled(g, levels) for g in found[1:])]
        plain = tuple(batch(t) if name == first else t for name, t in zip(names, saved, strict=True))
        found = of_all([batch(grads[0])], plain, needs)
        if found[0] is not None:
            found[0] = reshape(found[0], *front, *shape)
            for level in levels:
                found[0] = enter(found[0], level, 0, own=True)
        return found  # type: ignore[no-any-return]

    tape.add_node(op.name, operands, (result,), backward, tuple(kept.values()), sampled=False)


# One by one


def one_by_one(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """A function called once for each sample of the innermost level, and its results put together."""
    found: list[Any] = []
    _each(found.append, (args, kwargs))
    level = levels_of(found)[-1]
    apart = {id(t): _apart(t, level) for t in found if t.levels or tape.wants_gradient(t)}
    results = []
    for i in range(level.count):
        given, named = _each(lambda t: apart[id(t)][i] if id(t) in apart else t, (args, kwargs))  # noqa: B023
        results.append(function(*given, **named))
    return _joined(results, level)


def _each(apply: Callable[[Any], Any], value: Any) -> Any:
    """What is made of each tensor in operands of all kinds."""
    if isinstance(value, TensorBase):
        return apply(value)
    if isinstance(value, dict):
        return {name: _each(apply, v) for name, v in value.items()}
    if isinstance(value, (tuple, list)):
        made = [_each(apply, v) for v in value]
        return made if isinstance(value, list) else tuple(made)
    return value


def _joined(results: Sequence[Any], level: Level) -> Any:
    first = results[0]
    if isinstance(first, TensorBase):
        return enter(stack(results), level, 0, own=True)
    if isinstance(first, (tuple, list)):
        parts = [_joined(part, level) for part in zip(*results, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    return first


def _apart(tensor: TensorBase, level: Level) -> list[Any]:
    """Each sample of a level by itself, views of them all."""
    if level not in dict(tensor.levels):
        tensor = shared(tensor, (level,))
    every = leave(tensor, level, 0)
    with tape.gradients(False):
        parts = [tape.alias(index(every, i)) for i in range(level.count)]

    def backward(grads: Any, saved: Any, needs: Any) -> list[Any]:
        some = next(g for g in grads if g is not None)
        return [stack([_zeros(some) if g is None else g for g in grads])]

    tape.add_node("unbind", [every], parts, backward, sampled=False)
    return parts


def _zeros(like: TensorBase) -> Any:
    made = new_like(like, like.shape)
    fill_with(made, 0)
    return made
