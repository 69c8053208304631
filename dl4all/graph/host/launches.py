"""Calls of the host as launches of compiled kernels: one for a call, or for a chain of elementwise ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dl4all.graph.host.calls import ArrayAt, PreparedCall, is_contiguous
from dl4all.ops.core.arguments.tensor_argument import TensorArgument
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.expressions.expression import Expression, parse
from dl4all.ops.core.kernels.host_kernel import FOLLOWED, VARYING, ArrayLayout, HostLaunch, kernel_of
from dl4all.ops.core.kernels.host_work import TENSOR, ArrayView, BodyCall
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.ops.core.op import REGISTRY
from dl4all.ops.core.tensor_base import Shape
from dl4all.ops.elementwise.declare import Elementwise
from dl4all.scheduler.push_constants import VaryingFloat, VaryingInt

MOST_CALLS, MOST_TENSORS = 24, 16
"""Of a chain in one kernel, so that it is compiled within a moment."""

UFUNCS: dict[Callable[..., Any], Expression] = {
    np.add: parse("a + b"),
    np.subtract: parse("a - b"),
    np.multiply: parse("a * b"),
}
COPY = parse("x")


class TooMany(NoKernel):
    """Calls or tensors for one kernel."""


@dataclass(frozen=True)
class KernelCall:
    """The function of a call that a compiled kernel does: its arrays are the launch's, in their order."""

    launch: HostLaunch

    def __call__(self, *arrays: Any) -> None:
        raise AssertionError("it is run with addresses")


def launched(call: PreparedCall) -> PreparedCall:
    """The call as a launch of the kernel that its op or its work has; as it is without one."""
    try:
        launch = _launch_of(call)
    except NoKernel:
        return call
    if launch is None:
        return call
    return replace(call, function=KernelCall(launch), numbers=_numbers_of(call))


def _numbers_of(call: PreparedCall) -> tuple[Any, ...]:
    """The numbers of the launch of a call, which may be others each time."""
    body = call.function
    if call.kernel is not None or not isinstance(body, BodyCall):
        return call.numbers
    return tuple(body.arguments[name] for name in VARYING[body.name]) if body.name in VARYING else ()


def _varies_otherwise(body: BodyCall) -> bool:
    """Whether a number varies that launches hold as a constant."""
    given = VARYING.get(body.name, ())
    constants = [*body.operands, *(value for name, value in body.arguments.items() if name not in given)]
    return any(isinstance(value, (VaryingInt, VaryingFloat)) for value in constants)


def _launch_of(call: PreparedCall, **more: Any) -> HostLaunch | None:
    """
    Raises:
        NoKernel: an op's kernel does not take `more`, or a work's not the arrays.
    """
    layouts = [layout_of(array.view) for array in call.arrays]
    if call.kernel is not None:
        reads = [one for one, write in zip(layouts, call.writes, strict=True) if not write]
        return call.kernel.launch(reads, layouts[len(reads) :])
    body, target = call.function, call.arrays[-1].view
    if (
        not isinstance(body, BodyCall)
        or _varies_otherwise(body)
        or not is_contiguous(target)
        or body.name not in REGISTRY
    ):
        return None
    given = iter(layouts[:-1])
    operands = [next(given) if operand is TENSOR else operand for operand in body.operands]
    if any(isinstance(value, TensorArgument) for value in body.arguments.values()):
        return None  # its elements are known to the body, and lie in no memory
    arguments = {**body.arguments, **{name: next(given) for name in body.deferred}}
    return REGISTRY[body.name].launch_for(layouts[-1], operands, {**arguments, **more})


def layout_of(view: ArrayView) -> ArrayLayout:
    """The layout of an array.

    Raises:
        NoKernel: its elements do not lie in steps of their size.
    """
    size = view.dtype.itemsize
    if any(stride % size for stride in view.strides) or view.offset % size:
        raise NoKernel("elements that are not aligned")
    return ArrayLayout(view.shape, view.dtype, tuple(stride // size for stride in view.strides))


def is_launched(call: PreparedCall) -> bool:
    """Whether a kernel does a call as it is."""
    return isinstance(launched(call).function, KernelCall)


def takes_following(call: PreparedCall) -> bool:
    """Whether the kernel of a call, if there is one, may have elementwise calls of its result follow."""
    has_compiler = kernel_of("elementwise") is not None
    return has_compiler and isinstance(call.function, BodyCall) and call.function.name in FOLLOWED


# Chains


@dataclass(frozen=True)
class _Term:
    """An elementwise call as an expression."""

    expression: Expression
    compute: str
    names: tuple[tuple[str, Any, str], ...]  # an array or a number, and the dtype as which it is seen
    integers: frozenset[str]  # names of arguments that are integers whatever the dtype


class _CallChain(NamedTuple):
    """Elementwise calls as a program."""

    program: Any
    reads: tuple[ArrayAt, ...]
    writes: tuple[ArrayAt, ...]
    numbers: tuple[Any, ...]

    @property
    def layouts(self) -> tuple[list[ArrayLayout], list[ArrayLayout]]:
        """Of what is read, and of what is written.

        Raises:
            NoKernel: elements are not aligned.
        """
        return [layout_of(a.view) for a in self.reads], [layout_of(a.view) for a in self.writes]


def chained(calls: Sequence[PreparedCall], shape: Shape, inner: set[int]) -> PreparedCall:
    """Elementwise calls as one launch.

    Args:
        calls: each writes one array of the shape, element by element from elements at the same place.
        shape: of all.
        inner: buffers that nothing else uses.

    Raises:
        TooMany: parts of them may do.
        NoKernel: there is no code for one of them.
    """
    chain = _chain(calls, inner)
    from dl4all.host_kernels.elementwise.elementwise import prepare_program

    launch = prepare_program(chain.program, shape, *chain.layouts, chain.numbers)
    return _call_of(calls, launch, chain.reads, chain.writes, chain.numbers)


def followed(head: PreparedCall, calls: Sequence[PreparedCall], inner: set[int]) -> PreparedCall:
    """A call and the elementwise calls of its result as one launch.

    Args:
        head: a call of an op whose kernel takes what follows it.
        calls: as of :func:`chained`, of the result's shape.
        inner: buffers that nothing else uses.

    Raises:
        NoKernel: there is no code for it.
    """
    *operands, sums = head.arrays
    if not calls:
        raise NoKernel("nothing follows")
    chain = _chain(calls, inner, sums)
    result = chain.writes[-1]
    if sums.buffer not in inner and result != sums:
        raise NoKernel("sums that are used by others")
    if any(array.buffer == result.buffer for array in (*operands, *chain.reads[1:])):
        raise NoKernel("a result in the place of an operand: sums are added up there")
    from dl4all.host_kernels.conv.epilogue import Following

    reads, writes = chain.layouts
    following = Following(chain.program, [*reads, *writes], chain.numbers)
    launch = _launch_of(replace(head, arrays=(*operands, result)), following=following)
    if launch is None:
        raise NoKernel("it follows nothing")
    return _call_of([head, *calls], launch, (*operands, *chain.reads[1:]), chain.writes, chain.numbers)


def _call_of(
    calls: Sequence[PreparedCall],
    launch: HostLaunch,
    reads: Sequence[ArrayAt],
    writes: Sequence[ArrayAt],
    numbers: tuple[Any, ...],
) -> PreparedCall:
    flags = (*(False for _ in reads), *(True for _ in writes))
    name = "_".join(call.name for call in calls)
    return PreparedCall(name, KernelCall(launch), (*reads, *writes), flags, numbers)


def _chain(calls: Sequence[PreparedCall], inner: set[int], *first: ArrayAt) -> _CallChain:
    """The calls as a program, which reads these arrays first, and writes them last.

    Raises:
        TooMany, NoKernel: as :func:`chained`.
    """
    if kernel_of("elementwise") is None:
        raise NoKernel("no compiler")
    from dl4all.host_kernels.elementwise.elementwise import Assignment, ElementwiseProgram, number_type

    if len(calls) > MOST_CALLS:
        raise TooMany("calls")
    terms = [_term(call) for call in calls]
    made: dict[ArrayAt, int] = {}  # which call wrote an array last
    reads = {array: i for i, array in enumerate(first)}
    for position, (call, term) in enumerate(zip(calls, terms, strict=True)):
        for _, value, _ in term.names:
            if isinstance(value, ArrayAt) and value not in made:
                reads.setdefault(value, len(reads))
        made[call.arrays[-1]] = position
    writes = sorted((array for array in made if array.buffer not in inner), key=first.__contains__)
    if len(reads) + len(writes) > MOST_TENSORS:
        raise TooMany("tensors")
    numbers, types = list[Any](), list[str]()
    for term in terms:
        for name, value, dtype in term.names:
            if not isinstance(value, ArrayAt):
                numbers.append(value)
                types.append("i32" if name in term.integers else number_type(dtype))
    assignments, seen, number = list[Any](), dict[ArrayAt, int](), len(reads)
    for position, (call, term) in enumerate(zip(calls, terms, strict=True)):
        operands = []
        for name, value, dtype in term.names:
            if not isinstance(value, ArrayAt):
                source, number = number, number + 1
            else:
                source = len(reads) + len(numbers) + seen[value] if value in seen else reads[value]
            operands.append((name, source, dtype))
        target = call.arrays[-1]
        seen[target] = position
        assignments.append(Assignment(term.expression, term.compute, tuple(operands), target.view.dtype.name))
    program = ElementwiseProgram(
        tuple(array.view.dtype.name for array in reads),
        tuple(types),
        tuple(assignments),
        tuple(made[array] for array in writes),
    )
    return _CallChain(program, tuple(reads), tuple(writes), tuple(numbers))


def _term(call: PreparedCall) -> _Term:
    """
    Raises:
        NoKernel: a call is not known as an expression.
    """
    *operands, target = call.arrays
    body = call.function
    dtype = target.view.dtype
    if isinstance(body, BodyCall):
        op = REGISTRY[body.name]
        assert isinstance(op, Elementwise)
        given = iter(operands)
        values = [next(given) if operand is TENSOR else operand for operand in body.operands]
        seen = [value.view if isinstance(value, ArrayAt) else value for value in values]
        expression, compute = op.kernel_expression(seen)
        names = ("x",) if len(values) == 1 else ("a", "b", "c")
        named = [
            (name, value, "bool" if condition else compute)
            for name, value, condition in zip(names, values, op.conditions, strict=False)
        ]
        named += [(f"p.{name}", value, compute) for name, value in body.arguments.items()]
        return _Term(expression, compute, tuple(named), frozenset(f"p.{n}" for n in op.integer_arguments))
    if call.name == "copy_" and len(operands) == 1:
        source = operands[0].view.dtype
        if source != dtype and (kind_of(dtype) != "f" or "float64" in (source.name, dtype.name)):
            raise NoKernel("a conversion that NumPy decides on")
        return _Term(COPY, dtype.name, (("x", operands[0], dtype.name),), frozenset())
    if body in UFUNCS and len(operands) == 2 and {o.view.dtype for o in operands} == {dtype}:
        named_pair = tuple((name, one, dtype.name) for name, one in zip("ab", operands, strict=True))
        return _Term(UFUNCS[body], dtype.name, named_pair, frozenset())
    raise NoKernel(f"{call.name} has no expression")
