"""The decorator ``@elementwise`` and its ops, which compute each element from the elements at the same index.

An op's kernels are compiled from one GLSL expression of its operands, ``x`` or ``a``, ``b`` and ``c``, and
its arguments, ``p.NAME``. The shader files ``elementwise/unary.comp``, ``binary.comp`` and ``ternary.comp``
serve all elementwise ops, in variants for the operands' dtypes and layouts.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.ops.core import tape
from dl4all.ops.core.arguments.call_forms import INPLACE
from dl4all.ops.core.arguments.mixed_dtypes import MixedScalars, scalars_of_another_dtype
from dl4all.ops.core.dtypes import FLOATS, HALVES, STORED_ADVICE, kind_of
from dl4all.ops.core.expressions.expression import Expression, parse
from dl4all.ops.core.gradient import Grad
from dl4all.ops.core.kernels.host_kernel import (
    REFUSED,
    ArrayLayout,
    HostLaunch,
    HostPlan,
    kernel_of,
    layout_of,
    layout_or_value,
)
from dl4all.ops.core.kernels.launch import NoKernel, kernel_dtype, stores_halves
from dl4all.ops.core.kernels.launch_plan import ElementwisePlan, PlannedCall, call_of
from dl4all.ops.core.limits import LARGE_ELEMENTS, check_host_memory, check_view
from dl4all.ops.core.op import (
    KERNEL_REFUSALS,
    Example,
    Kernel,
    Op,
    P,
    Result,
    empty,
    example,
    primitives,
    register,
)
from dl4all.ops.core.promotion import Promotion, check_fits
from dl4all.ops.core.promotion import promote as promote
from dl4all.ops.core.tensor_base import Shape, TensorBase, from_host
from dl4all.ops.elementwise.kernels import (
    ELEMENT_TYPES,
    STRIDED_RANKS,
    Variants,
    build_variants,
    launch_elementwise,
)
from dl4all.scheduler import fallback

Number: TypeAlias = Any
"""Annotates arguments that are numbers of the dtype in which the op computes."""

UNARY_EXAMPLES = (
    example((13, 7)),
    example((12, 11)),
    example((3, 68)),
    example((2, 3, 1, 5, 7)),
    example(()),
    example((1,)),
    example((0, 3)),
)
BINARY_EXAMPLES = (
    example((13, 7), (13, 7)),
    example((3, 44), (3, 44)),
    # Rows long enough for workgroups of their own.
    example((5, 67), (67,)),
    # Rows of vectors of four: long ones, and short ones that share a workgroup.
    example((5, 68), (68,)),
    example((13, 12), (12,)),
    example((2, 3, 68), (3, 1)),
    example((13, 1), (7,)),
    example((), (5, 3)),
    example((2, 3, 7, 5), (3, 1, 1)),
    # No two axes can be merged, so there are more than the kernel has.
    example((2, 1, 3, 1, 2, 1), (1, 3, 1, 2, 1, 5)),
    example((1,), (1, 1)),
    example((0, 3), (1, 3)),
)
TERNARY_EXAMPLES = (
    example((5, 7), (5, 7), (5, 7)),
    example((7, 20), (7, 20), (7, 20)),
    example((3, 68), (68,), (3, 1)),
    example((5, 1), (12,), (5, 12)),
    example((3, 1, 5), (7, 1), ()),
    example((1,), (3, 1), (1, 5)),
    example((2, 1, 3, 1, 2, 1), (1, 3, 1, 2, 1, 5), (2, 3, 3, 2, 2, 5)),
    example((0, 3), (1, 3), (3,)),
)
CONVERSION_ADVICE = {  # by kind of an unsupported dtype
    "b": "convert with .to('int64') or .float()",
    "u": "convert with .to('int64') or .float()",
    "f": "convert with .to('int64'), or compare to get bools",
    "s": STORED_ADVICE,
}
FLOAT = np.dtype(np.float32)
# GLSL types of arguments by annotation. A Number has the type of the operands.
GLSL_ARGUMENT_TYPES = {"float": "float", "int": "int", "bool": "int"}

SAME_EXPRESSION = {
    "float64": "float32",
    "float16": "float32",
    "bfloat16": "float32",
    "int16": "int32",
    "int8": "int32",
}
"""Compiled kernels of the host compute more dtypes than devices do, by the expressions of others."""


def same_for_dtypes(expression: str, *more_dtypes: str) -> dict[str, str]:
    """An expression that is the same for float32, int32 and the dtypes named."""
    return dict.fromkeys(("float32", "int32", *more_dtypes), expression)


def elementwise(
    *,
    glsl: str | Mapping[str, str],
    promotion: Promotion = "common",
    result: Literal["common", "bool"] = "common",
    conditions: tuple[str, ...] = (),
    kinds: str = "biuf",
    ranks: tuple[int, ...] = STRIDED_RANKS,
    transposes: bool = False,
    examples: Iterable[Example] = (),
    domain: Mapping[str, tuple[float, float]] | None = None,
    grad: Grad = None,
) -> Callable[[Callable[P, Any]], Elementwise[P]]:
    """Declare an elementwise op of up to three operands.

    Args:
        glsl: the result as a GLSL expression of the operands, ``x`` or ``a``, ``b`` and ``c`` in their
            order, e.g. ``"a + b"`` or ``"max(x, p.low)"``: for float32, or a mapping with one for each dtype
            in which devices compute. In expressions bools and uint8 are ints.
        promotion: ``"common"`` computes in the operands' common dtype, ``"float"`` converts integers
            to float32 first.
        result: the result's dtype; ``"common"`` is the dtype in which the op computes.
        conditions: operands that must be bool and do not count for the common dtype.
        kinds: the kinds of dtypes that the op takes, as NumPy's letters: bool, int, unsigned and float.
        ranks: numbers of axes of the kernels for strided operands, ascending. Operands with more axes are
            copied first.
        transposes: whether the op is a copy, which has a kernel of its own for transposed operands.
        examples: hard cases beside those that every elementwise op has.
        domain: the interval of each operand's values in tests.
        grad: the gradient, see :class:`dl4all.ops.core.gradient.GradientRule`.
    """

    def declare(body: Callable[P, Any]) -> Elementwise[P]:
        expressions = {"float32": glsl} if isinstance(glsl, str) else glsl
        op = Elementwise(
            body,
            expressions,
            promotion,
            result,
            conditions,
            kinds,
            ranks,
            transposes,
            examples,
            domain or {},
            grad,
        )
        register(op)
        return op

    return declare


class Resolution(NamedTuple):
    """Conclusions from the operands' dtypes."""

    compute_dtype: np.dtype[Any]
    result_dtype: np.dtype[Any]
    variants: Variants | None  # None where devices have no kernel
    mixed: bool  # whether tensors have several dtypes, of which those without axes may not count


class Elementwise(Op[P]):
    """An op on elements at the same index, with broadcasting; operands may be numbers."""

    def __init__(
        self,
        body: Callable[P, Any],
        glsl: Mapping[str, str],
        promotion: Promotion,
        result: Literal["common", "bool"],
        conditions: tuple[str, ...],
        kinds: str,
        ranks: tuple[int, ...],
        transposes: bool,
        examples: Iterable[Example],
        domain: Mapping[str, tuple[float, float]],
        grad: Grad,
    ) -> None:
        parameters = [p for p in inspect.signature(body).parameters.values() if p.name != INPLACE]
        operands = tuple(p.name for p in parameters if "Array" in str(p.annotation))
        common_examples = (UNARY_EXAMPLES, BINARY_EXAMPLES, TERNARY_EXAMPLES)[len(operands) - 1]
        annotations = {p.name: str(p.annotation) for p in parameters if p.name not in operands}
        self._glsl = dict(glsl)
        self.by_dtype: dict[str, Variants] = {}
        for dtype, expression in glsl.items():
            number_type = "float" if dtype == "float32" else "int"
            argument_types = {
                name: GLSL_ARGUMENT_TYPES.get(annotation, number_type)
                for name, annotation in annotations.items()
            }
            operand_types = [ELEMENT_TYPES["bool" if name in conditions else dtype] for name in operands]
            result_type = ELEMENT_TYPES["bool" if result == "bool" else dtype]
            self.by_dtype[dtype] = build_variants(
                expression, operand_types, result_type, argument_types, ranks, transposes=transposes
            )
        shaders = (shader for variants in self.by_dtype.values() for shader in variants.shaders)
        unpacked_dtypes = tuple(name for name in self.by_dtype if not ELEMENT_TYPES[name].packed)
        kernel = Kernel(self._run, tuple(dict.fromkeys(shaders)), unpacked_dtypes)
        super().__init__(
            self._in_one_dtype(body),
            self._infer,
            kernel,
            (*common_examples, *examples),
            elementwise=True,
            grad=grad,
            moves=transposes,
        )
        self.result = result
        self.domain = domain
        self.promotion = promotion
        self.conditions = tuple(name in conditions for name in operands)
        self.kinds = kinds
        self._numbers = tuple(name for name, annotation in annotations.items() if annotation == "Number")
        self._floats = tuple(name for name, annotation in annotations.items() if annotation == "float")
        self.integer_arguments = tuple(
            name for name, annotation in annotations.items() if annotation in ("int", "bool")
        )
        self._takes_numbers = len(operands) > 1
        self._complete = self._defaults.keys() == set(self.arguments)
        self._default_values = [self._defaults[name] for name in self.arguments] if self._complete else []
        self._resolutions: dict[tuple[Any, ...], Resolution] = {}

    def _in_one_dtype(self, body: Callable[P, Any]) -> Callable[P, Any]:
        """The body, which gets arrays of the dtype in which the op computes."""

        @functools.wraps(body)
        def in_one_dtype(*operands: Any, **arguments: Any) -> Any:
            dtype = self._promoted(operands)
            arrays = (
                np.asarray(operand, np.bool_ if condition else dtype)
                for operand, condition in zip(operands, self.conditions, strict=True)
            )
            return body(*arrays, **arguments)  # type: ignore[arg-type]

        return in_one_dtype

    def expression(self, dtype: str) -> Expression | None:
        """The op's expression where it computes in a dtype; None if devices have no kernel for that.

        Its names are ``x``, or ``a``, ``b`` and ``c``, for the operands, and ``p.NAME`` for the arguments.

        >>> from dl4all import ops
        >>> from dl4all.ops.core.expressions.expression import print_glsl
        >>> print_glsl(ops.relu.expression("float32"))
        'x < 0.0 ? 0.0 : x'
        """
        return parse(self._glsl[dtype]) if dtype in self._glsl else None

    def _promoted(self, operands: Sequence[Any]) -> np.dtype[Any]:
        """The dtype in which the op computes."""
        return promote(self.name, self._deciding(operands), self.promotion)

    def _deciding(self, operands: Sequence[Any]) -> list[Any]:
        """The operands whose dtypes count: all but conditions."""
        return [o for o, condition in zip(operands, self.conditions, strict=True) if not condition]

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        if not kwargs and self._complete and len(args) == len(self.arrays):
            return list(args), self._defaults
        return super().bind(args, kwargs)

    def _resolve(self, operands: Sequence[Any]) -> Resolution:
        """The resolution of the operands' dtypes and numbers' types, cached."""
        key = tuple(o.dtype if isinstance(o, TensorBase) else type(o) for o in operands)
        resolution = self._resolutions.get(key)
        if resolution is None:
            resolution = self._resolutions[key] = self._resolve_dtypes(operands)
        if resolution.mixed and scalars_of_another_dtype(self._deciding(operands)):
            raise MixedScalars(
                f"[{self.name}] tensors without axes are of another dtype; convert with .to(dtype)"
            )
        return resolution

    def _resolve_dtypes(self, operands: Sequence[Any]) -> Resolution:
        for name, operand, condition in zip(self.arrays, operands, self.conditions, strict=True):
            if condition and isinstance(operand, TensorBase) and operand.dtype != np.bool_:
                raise DTypeError(
                    f"[{self.name}] {name!r} must be bool, not {operand.dtype}; compare it, as in x != 0"
                )
        dtype = self._promoted(operands)
        if kind_of(dtype) not in self.kinds:
            raise DTypeError(f"[{self.name}] {dtype} is not supported; {CONVERSION_ADVICE[kind_of(dtype)]}")
        result_dtype = np.dtype(np.bool_) if self.result == "bool" else dtype
        deciding = self._deciding(operands)
        mixed = len({operand.dtype for operand in deciding if isinstance(operand, TensorBase)}) > 1
        return Resolution(dtype, result_dtype, self.by_dtype.get(kernel_dtype(dtype)), mixed)

    def _infer(self, *operands: Any, **arguments: Any) -> Result:
        dtype, result_dtype, _, _ = self._resolve(operands)
        for operand, condition in zip(operands, self.conditions, strict=True):
            if not condition and not isinstance(operand, TensorBase):
                check_fits(self.name, operand, dtype)
        for name in self._numbers:
            if kind_of(dtype) != "f" and isinstance(arguments[name], float):
                raise ArgumentError(
                    f"[{self.name}] {name} must be an integer for {dtype}, got {arguments[name]}; "
                    "convert the tensors with .float()"
                )
            check_fits(self.name, arguments[name], dtype)
        for name in self._floats:
            check_fits(self.name, arguments[name], FLOAT if kind_of(dtype) == "f" else dtype)
        return broadcast_shapes(self.name, operands), result_dtype

    def compute(self, operands: list[Any], arguments: dict[str, Any]) -> Any:
        call = self._call(operands, arguments)
        plan: Any = None
        if call is not None:
            key, first, storages, numbers = call
            device = first.device
            plan = device.plans.get(key)
            if plan is not None and plan is not REFUSED:
                memory = device.pool.reuse(plan.nbytes, self.name) if device.is_host else None
                if memory is None:
                    memory = device.allocate(plan.nbytes, self.name)
                if plan.launch(device, storages, memory, numbers):
                    return first.result_class(memory, plan.shape, plan.dtype, device, plan.strides)
        first = self.check_operands(operands)
        shape, dtype = self._infer(*operands, **arguments)
        resolution = self._resolve(operands)
        device = first.device
        if math.prod(shape) >= LARGE_ELEMENTS and device.is_host:
            check_host_memory(self.name, shape, dtype, device.info.memory)
        if device.is_host:
            if call is not None and plan is None and math.prod(shape) < LARGE_ELEMENTS:
                launch = self.prepare_on_host(operands, arguments, shape, dtype)
                plan = REFUSED if launch is None else HostPlan(launch, operands, shape, dtype, self.name)
                device.plans.keep(call.key, plan)
                if plan is not REFUSED:
                    return plan.run(first, call.storages, call.numbers)
            return self.run_on_host(first, operands, arguments, shape, dtype, compiled=plan is not REFUSED)
        if resolution.compute_dtype in HALVES and not (resolution.variants and stores_halves(device)):
            return self.compute_in_float32(operands, arguments, dtype)
        if resolution.variants is None and not self.moves:
            cause = fallback.no_dtype(device, resolution.compute_dtype.name)
            return self.run_on_host(first, operands, arguments, shape, dtype, cause)
        out = empty(type(first).result_class, shape, dtype, device, self.name)
        if 0 not in shape:
            try:
                if resolution.variants is None:
                    primitives.cast.kernel.run(out, *operands, dtype=dtype.name)  # a copy of any elements
                else:
                    self._launch(resolution, out, operands, arguments, call)
            except KERNEL_REFUSALS as error:
                cause = fallback.refused(device, error, resolution.compute_dtype.name)
                return self.run_on_host(first, operands, arguments, shape, dtype, cause)
        return out

    def launch_for(
        self, out: ArrayLayout, operands: Sequence[Any], arguments: dict[str, Any]
    ) -> HostLaunch | None:
        prepare = kernel_of("elementwise")
        if prepare is None or 0 in out.shape:
            return None
        given = [(name, arguments[name], name in self.integer_arguments) for name in self.arguments]
        try:
            expression, compute = self.kernel_expression(operands)
            return prepare(out, expression, compute, operands, self.conditions, given)
        except NoKernel:
            return None

    def kernel_expression(self, operands: Sequence[Any]) -> tuple[Expression, str]:
        """The expression of the CPU's compiled kernels, and the dtype in which they compute it.

        Args:
            operands: numbers, or what has a dtype.

        Raises:
            NoKernel: there is none for their dtypes.
        """
        compute = self._promoted(operands).name
        expression = self.expression(SAME_EXPRESSION.get(compute, compute))
        if expression is None:
            raise NoKernel(f"{self.name} of {compute}")
        return expression, compute

    def change_on_host(self, operands: list[Any], arguments: dict[str, Any]) -> bool:
        """Write the result into the first operand, a tensor of the CPU whose dtype it has, by a compiled
        kernel; False, before anything ran, without one. No other operand shares memory with it."""
        target = operands[0]
        call = self._call(operands, arguments, explicit=True)
        if call is None or call.first is not target or math.prod(target.shape) >= LARGE_ELEMENTS:
            return False
        if not target.storage.span.buffer.data.flags.writeable:
            return False  # for NumPy to refuse
        launch = self.launch_for(layout_of(target), list(map(layout_or_value, operands)), arguments)
        if launch is None:
            return False
        plan = HostPlan(launch, operands, target.shape, target.dtype, self.name, target.offset)
        if not plan.launch(target.device, call.storages, target.storage, call.numbers):
            return False
        target.device.plans.keep(("in place", call.key), plan)
        return True

    def _run(self, out: TensorBase, *operands: Any, **arguments: Any) -> None:
        """Fill `out`, contiguous and of the result's shape and dtype; bytes after its end become 0."""
        call = self._call(operands, arguments)
        if call is not None:
            plan: ElementwisePlan | None = out.device.plans.get(call.key)
            if plan is not None and plan.launch(out.device, call.storages, out.storage, call.numbers):
                return
        self._launch(self._resolve(operands), out, operands, arguments, call)

    def change_again(self, operands: list[Any], arguments: dict[str, Any]) -> bool:
        call = self._call(operands, arguments, explicit=True)
        if call is None or (tape.state.enabled and any(map(tape.wants_gradient, operands))):
            return False
        target = call.storages[0]
        plan: ElementwisePlan | None = call.first.device.plans.get(("in place", call.key))
        if plan is None or call.first is not operands[0] or target in call.storages[1:]:
            return False
        if call.first.device.is_host and not target.span.buffer.data.flags.writeable:
            return False  # for NumPy to refuse
        return plan.launch(call.first.device, call.storages, target, call.numbers)

    def keep_change(self, operands: list[Any], arguments: dict[str, Any]) -> None:
        call = self._call(operands, arguments, explicit=True)
        if call is not None:
            device = call.first.device
            plan = device.plans.get(call.key)
            if plan is not None:
                device.plans.keep(("in place", call.key), plan)

    def _call(
        self, operands: Sequence[Any], arguments: dict[str, Any], *, explicit: bool = False
    ) -> PlannedCall | None:
        """The call as plans are looked up by it; its numbers are the operands', then all arguments.

        With `explicit` the arguments always count, and otherwise where they are not the defaults.
        """
        if not self.arguments or (arguments is self._defaults and not explicit):
            call = call_of(self, operands)
            if call is not None and call.numbers:
                call.numbers.extend(self._default_values)
            return call
        values = [arguments[name] for name in self.arguments]
        call = call_of((self, *map(type, values)), operands)
        if call is not None:
            call.numbers.extend(values)
        return call

    def _launch(
        self,
        resolution: Resolution,
        out: TensorBase,
        operands: Sequence[Any],
        arguments: dict[str, Any],
        call: PlannedCall | None,
    ) -> None:
        dtype, _, variants, _ = resolution
        assert variants is not None
        converted = [
            operand if condition else _kernel_operand(operand, dtype, out)
            for operand, condition in zip(operands, self.conditions, strict=True)
        ]
        plan = launch_elementwise(variants, out, converted, [arguments[name] for name in self.arguments])
        if plan is None or call is None or any(c is not o for c, o in zip(converted, operands, strict=True)):
            return
        if not (call.numbers and ELEMENT_TYPES[kernel_dtype(dtype)].packed):  # does each fit? infer looks
            out.device.plans.keep(call.key, plan)


def broadcast_shapes(name: str, operands: Iterable[Any]) -> Shape:
    """NumPy's broadcasting rule; numbers have the shape ().

    Raises:
        ShapeError: two sizes differ and neither is 1.
        ArgumentError: the result would have more elements than can be counted.
    """
    shapes = [o.shape for o in operands if isinstance(o, TensorBase)]
    first = shapes[0]
    if all(shape == first for shape in shapes):
        return first
    longest: Shape = max(shapes, key=lambda shape: len(shape))
    result = list(longest)
    for shape in shapes:
        for axis, size in enumerate(shape, len(result) - len(shape)):
            if result[axis] == 1:
                result[axis] = size
            elif size not in (1, result[axis]):
                raise ShapeError(
                    f"[{name}] shapes {' and '.join(map(str, shapes))} do not broadcast: counted from the "
                    "last axis, sizes must be equal or 1"
                )
    return check_view(name, tuple(result))


def _kernel_operand(operand: Any, dtype: np.dtype[Any], out: TensorBase) -> Any:
    """An operand as kernels take it: a tensor of `dtype`, or a number of 32 bits."""
    if isinstance(operand, TensorBase):
        if operand.dtype == dtype or (dtype in FLOATS and operand.dtype in FLOATS):
            return operand
        return _cast_without_gradient(operand, dtype)
    if dtype == np.int64 and not -(2**31) <= operand < 2**31:
        return from_host(type(out), np.array(operand, dtype), out.device, copy=False)
    return operand


def _cast_without_gradient(tensor: TensorBase, dtype: np.dtype[Any]) -> TensorBase:
    """The elements as another dtype; the calling op's gradient covers the cast."""
    converted: TensorBase = primitives.cast.compute([tensor], {"dtype": dtype.name})
    return converted
