"""The computation of a kernel that stands for several elementwise nodes: loads, steps, stores, and layout.

All nodes of a kernel run over the same elements. Each element of every operand is loaded once, the nodes'
expressions follow each other in local variables, and only results that something else reads are stored.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import numpy as np

from dl4all.graph.ir.graph import Argument, Graph, Node, Operand, Shape, Value
from dl4all.ops.core.expressions.expression import (
    Binary,
    Conditional,
    Constant,
    Expression,
    FunctionCall,
    Name,
    Unary,
    children,
    parse,
    substitute,
)
from dl4all.ops.core.op import NUMBERS, REGISTRY
from dl4all.ops.core.promotion import promote
from dl4all.ops.core.strides import merge_axes, view_strides
from dl4all.ops.core.tensor_base import contiguous_strides
from dl4all.ops.elementwise.declare import Elementwise
from dl4all.ops.memory.conversion import conversion_expression

HALVES = ("float16", "bfloat16")
"""Dtypes that kernels load and store on devices that can, and compute with as float32: see StorageType."""

FLOATS = ("float32", *HALVES)

DTYPES = ("float32", "int32", "uint8", "bool", *HALVES)
"""Dtypes that kernels load, store and compute with; int64 has no variables in GLSL of every device."""

ITEM_BYTES = {"float32": 4, "int32": 4, "uint8": 1, "bool": 1, "float16": 2, "bfloat16": 2}
MAX_ELEMENTS = 2**31


class Load(NamedTuple):
    """An operand that is read from memory, with its strides along the axes of the kernel."""

    operand: Operand
    strides: Shape


class KernelStep(NamedTuple):
    """A local variable: an expression of variables before it, converted to a dtype."""

    name: str
    tree: Expression
    dtype: str
    rounds: bool  # as it would be in memory: a product that another step reads, and what HALVES do not hold


class Store(NamedTuple):
    """A result that is written to memory."""

    operand: Operand
    variable: str


class Number(NamedTuple):
    """A number among the push constants."""

    kind: Literal["float", "int"]
    value: int | float


class WalkLayout(NamedTuple):
    """The walk of a kernel through memory.

    ``sizes`` are those of the merged axes, the last of which is a row, and ``strides`` those of the loads.
    An invocation computes ``width`` neighbours along a row at a time.
    """

    sizes: Shape
    strides: tuple[Shape, ...]
    width: Literal[1, 4]


@dataclass(frozen=True)
class FusedKernel:
    """Several elementwise nodes as one kernel."""

    ops: tuple[str, ...]
    shape: Shape
    loads: tuple[Load, ...]
    steps: tuple[KernelStep, ...]
    stores: tuple[Store, ...]
    numbers: tuple[Number, ...]
    layout: WalkLayout

    @property
    def operands(self) -> tuple[Operand, ...]:
        """All tensors in the order of their bindings."""
        return (*(load.operand for load in self.loads), *(store.operand for store in self.stores))

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes that it reads and writes at least, each once."""
        read = sum(
            ITEM_BYTES[load.operand.dtype]
            * math.prod(size for size, step in zip(self.shape, load.strides, strict=True) if step)
            for load in self.loads
        )
        return read + sum(ITEM_BYTES[s.operand.dtype] * self.elements for s in self.stores)


def is_elementwise(node: Node) -> bool:
    """Whether a node is an op that a kernel can take in, whatever its operands are."""
    return (node.op == "cast" or isinstance(REGISTRY.get(node.op), Elementwise)) and node.result is not None


def is_whole(graph: Graph, operand: Operand) -> bool:
    """Whether a tensor is all of its buffer, in order: readers need the rest of any other, too."""
    nbytes = graph.buffers[operand.value.buffer].nbytes
    return (
        operand.dtype in ITEM_BYTES
        and is_contiguous(operand)
        and -(-operand.elements * ITEM_BYTES[operand.dtype] // 4) * 4 >= nbytes
    )


def is_contiguous(operand: Operand) -> bool:
    """Whether the elements follow each other in memory."""
    return all(
        size == 1 or stride == dense
        for size, stride, dense in zip(
            operand.shape, operand.strides, contiguous_strides(operand.shape), strict=True
        )
    )


def combine(nodes: Sequence[Node], stored: Collection[Value]) -> FusedKernel | None:
    """The kernel that stands for elementwise nodes.

    Args:
        nodes: in an order in which they can run; each is an elementwise op.
        stored: those of their results that memory must hold afterwards.

    Returns:
        None where one kernel cannot compute them: other numbers of elements, dtypes without kernels, results
        that another node reads in another order, or results that replace elements still to be read.
    """
    first = nodes[0].result
    if first is None or not 0 < first.elements < MAX_ELEMENTS:
        return None
    builder = _Builder(first.shape)
    for node in nodes:
        if not builder.add(node):
            return None
    return builder.kernel(stored)


@dataclass
class _Builder:
    """A kernel in the making."""

    shape: Shape
    ops: list[str] = field(default_factory=list)
    loads: dict[tuple[Value, str, int, Shape], Load] = field(default_factory=dict)
    variables: dict[Value, tuple[str, Operand]] = field(default_factory=dict)
    steps: list[KernelStep] = field(default_factory=list)
    numbers: list[Number] = field(default_factory=list)
    read: set[str] = field(default_factory=set)  # variables

    def add(self, node: Node) -> bool:
        """Take a node in; False where that cannot be done."""
        result = node.result
        if result is None or result.elements != math.prod(self.shape) or not is_contiguous(result):
            return False
        if node.op == "cast":
            source = node.operands[0]
            if not isinstance(source, Operand) or not {source.dtype, result.dtype} <= {*DTYPES}:
                return False
            variable = self._variable(source, result.shape)
            if variable is None:
                return False
            tree = substitute(_conversion(source.dtype, result.dtype), {"x": Name(variable)})
        else:
            computed = self._expression(node, result)
            if computed is None:
                return False
            tree = computed
        self.ops.append(node.op)
        name = f"{node.op}_{len(self.ops)}"
        self.steps.append(KernelStep(name, tree, result.dtype, rounds=False))
        self.variables[result.value] = name, result
        return True

    def _expression(self, node: Node, result: Operand) -> Expression | None:
        """An op's expression, of variables."""
        op = REGISTRY[node.op]
        assert isinstance(op, Elementwise)
        if not all(isinstance(operand, (Operand, *NUMBERS)) for operand in node.operands):
            return None
        operands = [
            SimpleNamespace(dtype=np.dtype(o.dtype)) if isinstance(o, Operand) else o for o in node.operands
        ]
        counting = [o for o, condition in zip(operands, op.conditions, strict=True) if not condition]
        dtype = promote(op.name, counting, op.promotion).name
        tree = op.expression(compute_dtype(dtype))
        if tree is None or dtype not in DTYPES or result.dtype != ("bool" if op.result == "bool" else dtype):
            return None
        number_kind: Literal["float", "int"] = "float" if compute_dtype(dtype) == "float32" else "int"
        names: dict[str, Expression] = {}
        places = ("x",) if len(operands) == 1 else ("a", "b", "c")
        for place, operand, condition in zip(places, node.operands, op.conditions, strict=False):
            wanted = "bool" if condition else dtype
            source = self._source(operand, wanted, number_kind, result.shape)
            if source is None:
                return None
            names[place] = Name(source)
        for name, value in node.arguments:
            kind = "float" if str(op.signature.parameters[name].annotation) == "float" else number_kind
            if not isinstance(value, NUMBERS):
                return None
            # Left out where it is 1, as in a + 1.0 * b: the product is the same.
            names[f"p.{name}"] = Constant("1") if value == 1 else Name(self._number(kind, value))
        return _without_ones(substitute(tree, names), number_kind)

    def _source(
        self, operand: Argument, dtype: str, kind: Literal["float", "int"], shape: Shape
    ) -> str | None:
        """The variable, or the push constant, for an operand in the dtype in which an op computes."""
        if not isinstance(operand, Operand):
            return None if operand is None else self._number(kind, operand)
        if operand.dtype not in DTYPES:
            return None
        variable = self._variable(operand, shape)
        if variable is None or dtype in (operand.dtype, compute_dtype(operand.dtype)):
            return variable
        converted = f"{dtype}_{variable}"
        if all(step.name != converted for step in self.steps):
            tree = substitute(_conversion(operand.dtype, dtype), {"x": Name(variable)})
            self.steps.append(KernelStep(converted, tree, dtype, rounds=False))
        return converted

    def _number(self, kind: Literal["float", "int"], value: Any) -> str:
        self.numbers.append(Number(kind, float(value) if kind == "float" else int(value)))
        return f"p.k{len(self.numbers) - 1}"

    def _variable(self, operand: Operand, shape: Shape) -> str | None:
        """The variable that holds an operand's elements, where the operand broadcasts to a node's shape."""
        made = self.variables.get(operand.value)
        if made is not None:
            name, result = made
            same = is_contiguous(operand) and operand.offset == result.offset
            if not same or operand.elements != result.elements or operand.dtype != result.dtype:
                return None
            self.read.add(name)
            return name
        strides = _strides_along(operand, shape, self.shape)
        if strides is None or operand.dtype not in DTYPES:
            return None
        key = operand.value, operand.dtype, operand.offset, strides
        self.loads.setdefault(key, Load(operand, strides))
        return f"x{list(self.loads).index(key)}"

    def kernel(self, stored: Collection[Value]) -> FusedKernel | None:
        loads = tuple(self.loads.values())
        stores = tuple(
            Store(result, name) for value, (name, result) in self.variables.items() if value in stored
        )
        if not stores or not _may_write(loads, stores, self.shape):
            return None
        dtypes = {f"x{i}": load.operand.dtype for i, load in enumerate(loads)}
        dtypes |= {step.name: step.dtype for step in self.steps}
        steps = tuple(
            step._replace(
                rounds=not selects(step.tree, {name for name, dtype in dtypes.items() if dtype == step.dtype})
                if step.dtype in HALVES
                else step.name in self.read and _ends_in_product(step.tree)
            )
            for step in self.steps
        )
        layout = _layout(self.shape, loads, stores)
        # Of bytes, invocations write whole words.
        if layout is None or (layout.width == 1 and any(ITEM_BYTES[s.operand.dtype] < 2 for s in stores)):
            return None
        return FusedKernel(tuple(self.ops), self.shape, loads, steps, stores, tuple(self.numbers), layout)


def _strides_along(operand: Operand, shape: Shape, wanted: Shape) -> Shape | None:
    """An operand's strides, broadcast to one shape, along the axes of another; None if there are none."""
    missing = len(shape) - len(operand.shape)
    strides = (0,) * missing + tuple(
        0 if size == 1 else stride for size, stride in zip(operand.shape, operand.strides, strict=True)
    )
    if min(strides, default=0) < 0:
        return None
    along = strides if shape == wanted else view_strides(shape, strides, wanted)
    if along is None:
        return None
    return tuple(0 if size == 1 else stride for size, stride in zip(wanted, along, strict=True))


def _may_write(loads: Sequence[Load], stores: Sequence[Store], shape: Shape) -> bool:
    """Whether each invocation reads of the buffers that the kernel writes only what it writes itself."""
    buffers = [store.operand.value.buffer for store in stores]
    return len(set(buffers)) == len(buffers) and all(
        covers(load, store, shape)
        for store in stores
        for load in loads
        if load.operand.value.buffer == store.operand.value.buffer
    )


def covers(load: Load, store: Store, shape: Shape) -> bool:
    """Whether each element that is read lies where the same invocation's result would, in one buffer."""
    dense = tuple(
        0 if size == 1 else stride for size, stride in zip(shape, contiguous_strides(shape), strict=True)
    )
    return (
        load.strides == dense
        and load.operand.offset == store.operand.offset
        and ITEM_BYTES[load.operand.dtype] == ITEM_BYTES[store.operand.dtype]
    )


def _layout(shape: Shape, loads: Sequence[Load], stores: Sequence[Store]) -> WalkLayout | None:
    """Merged axes, and whether invocations compute vectors of four."""
    sizes, (_, *strides) = merge_axes(shape, [contiguous_strides(shape), *(load.strides for load in loads)])
    if not sizes:  # a single element
        return WalkLayout((1,), tuple((0,) for _ in loads), 1)
    four = sizes[-1] % 4 == 0 and not any(store.operand.offset % 4 for store in stores)
    four = four and all(
        steps[-1] == 0
        or (steps[-1] == 1 and not any(number % 4 for number in (load.operand.offset, *steps[:-1])))
        for load, steps in zip(loads, strides, strict=True)
    )
    return WalkLayout(sizes, tuple(strides), 4 if four else 1)


# Expressions


def compute_dtype(dtype: str) -> str:
    """The dtype as which kernels compute with one of DTYPES.

    >>> compute_dtype("bfloat16"), compute_dtype("uint8")
    ('float32', 'uint8')
    """
    return "float32" if dtype in HALVES else dtype


def _conversion(source: str, target: str) -> Expression:
    """The expression of x with a constructor where GLSL does not convert by itself."""
    source, target = compute_dtype(source), compute_dtype(target)
    tree = conversion_expression(source, target)
    if (source == "float32") != (target == "float32") and tree == parse("x"):
        return FunctionCall("float" if target == "float32" else "int", (tree,))
    return tree


def _without_ones(tree: Expression, kind: Literal["float", "int"]) -> Expression:
    """The expression without products with the number 1 that stands for an argument."""
    one = Constant("1")
    if isinstance(tree, Binary) and tree.operator == "*" and one in (tree.left, tree.right):
        return _without_ones(tree.right if tree.left == one else tree.left, kind)
    if tree == one:
        return Constant("1.0") if kind == "float" else one
    if isinstance(tree, Unary):
        return Unary(tree.operator, _without_ones(tree.operand, kind))
    if isinstance(tree, Binary):
        return Binary(tree.operator, _without_ones(tree.left, kind), _without_ones(tree.right, kind))
    if isinstance(tree, Conditional):
        parts = [_without_ones(child, kind) for child in children(tree)]
        return Conditional(*parts)
    if isinstance(tree, FunctionCall):
        return FunctionCall(tree.function, tuple(_without_ones(a, kind) for a in tree.arguments))
    return tree


def _ends_in_product(tree: Expression) -> bool:
    """Whether the last thing that an expression does may be a product, which a device can join with a sum."""
    if isinstance(tree, Binary):
        return tree.operator == "*"
    if isinstance(tree, Conditional):
        return _ends_in_product(tree.accepted) or _ends_in_product(tree.rejected)
    return isinstance(tree, Unary) and _ends_in_product(tree.operand)


def selects(tree: Expression, variables: Collection[str]) -> bool:
    """Whether the value of an expression is that of a variable, with either sign, 0 or 1."""
    if isinstance(tree, Conditional):
        return selects(tree.accepted, variables) and selects(tree.rejected, variables)
    if isinstance(tree, Unary):
        return tree.operator == "-" and selects(tree.operand, variables)
    if isinstance(tree, FunctionCall):
        return tree.function in ("abs", "max", "min") and all(selects(a, variables) for a in tree.arguments)
    if isinstance(tree, Constant):
        return tree.value in (0, 1)
    return isinstance(tree, Name) and tree.name in variables


def is_bool(tree: Expression) -> bool:
    """Whether the type of an expression is GLSL's bool."""
    if isinstance(tree, Conditional):
        return is_bool(tree.accepted)
    if isinstance(tree, Unary):
        return tree.operator == "!"
    if isinstance(tree, Binary):
        return tree.operator in ("&&", "||", "==", "!=", "<", ">", "<=", ">=")
    if isinstance(tree, FunctionCall):
        return tree.function in ("is_nan", "is_inf", "is_finite", "less")
    return isinstance(tree, Constant) and isinstance(tree.value, bool)
