"""Ops that compute each element of the result from the elements at the same place.

The kernel is made from one GLSL expression over the operands, ``x`` or ``a``, ``b`` and ``c``, with
``p.NAME`` for an argument. Three shader files serve all of them, ``elementwise/unary.comp``,
``binary.comp`` and ``ternary.comp``, in variants for the types of the operands.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.ops.core.gradient import Grad
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
from dl4all.ops.elementwise.kernels import RANKS, WORDS, Variants, launch, variants
from dl4all.scheduler import fallback

Number: TypeAlias = Any
"""Marks arguments that are numbers of the dtype in which the op computes."""

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
    # Rows that are long enough for workgroups of their own.
    example((5, 67), (67,)),
    # Rows of fours, one that starts anywhere, and short ones that share a workgroup.
    example((5, 68), (68,)),
    example((13, 12), (12,)),
    example((2, 3, 68), (3, 1)),
    example((13, 1), (7,)),
    example((), (5, 3)),
    example((2, 3, 7, 5), (3, 1, 1)),
    # No two axes can be treated as one, so there are more than the kernel has.
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
ADVICE = {
    "b": "convert with .to('int64') or .float()",
    "f": "convert with .to('int64'), or compare to get bools",
}
GLSL_TYPES = {"float": "float", "int": "int", "bool": "int"}  # of arguments; a Number's is the operands'


def each(expression: str, *more: str) -> dict[str, str]:
    """An expression that is the same for float32, int32 and the dtypes named."""
    return dict.fromkeys(("float32", "int32", *more), expression)


def elementwise(
    *,
    glsl: str | Mapping[str, str],
    promotion: Promotion = "common",
    result: Literal["common", "bool"] = "common",
    conditions: tuple[str, ...] = (),
    kinds: str = "biuf",
    ranks: tuple[int, ...] = RANKS,
    examples: Iterable[Example] = (),
    domain: Mapping[str, tuple[float, float]] | None = None,
    grad: Grad = None,
) -> Callable[[Callable[P, Any]], Elementwise[P]]:
    """Declare an elementwise op of up to three operands.

    Args:
        glsl: the result as a GLSL expression of the operands, ``x`` or ``a``, ``b`` and ``c`` in their
            order, e.g. ``"a + b"`` or ``"max(x, p.low)"``: for float32, or one for each dtype that devices
            compute in. Bools and uint8 are ints in it.
        promotion: ``"common"`` computes in the operands' common dtype, ``"float"`` turns integers
            into float32 first.
        result: ``"common"`` is the dtype computed in.
        conditions: operands that are bool and stand apart from the common dtype.
        kinds: of dtypes that it takes, by NumPy's letters: bool, int, unsigned and float.
        ranks: numbers of axes for which there is a kernel; with more, operands are copied first.
        examples: hard cases beside those that every elementwise op has.
        domain: for tests, the interval in which an operand's values make sense.
        grad: the gradient, see :class:`dl4all.ops.core.gradient.GradientRule`.
    """

    def declare(body: Callable[P, Any]) -> Elementwise[P]:
        expressions = {"float32": glsl} if isinstance(glsl, str) else glsl
        made = Elementwise(
            body, expressions, promotion, result, conditions, kinds, ranks, examples, domain or {}, grad
        )
        register(made)
        return made

    return declare


class Form(NamedTuple):
    """What the operands' dtypes decide."""

    computed: np.dtype[Any]
    result: np.dtype[Any]
    variants: Variants | None  # None where devices have no kernel


class Elementwise(Op[P]):
    """An op on elements at the same place, with broadcasting; numbers may stand for operands."""

    def __init__(
        self,
        body: Callable[P, Any],
        glsl: Mapping[str, str],
        promotion: Promotion,
        result: Literal["common", "bool"],
        conditions: tuple[str, ...],
        kinds: str,
        ranks: tuple[int, ...],
        examples: Iterable[Example],
        domain: Mapping[str, tuple[float, float]],
        grad: Grad,
    ) -> None:
        parameters = inspect.signature(body).parameters.values()
        operands = tuple(p.name for p in parameters if "Array" in str(p.annotation))
        common = (UNARY_EXAMPLES, BINARY_EXAMPLES, TERNARY_EXAMPLES)[len(operands) - 1]
        annotations = {p.name: str(p.annotation) for p in parameters if p.name not in operands}
        self.by_dtype = {}
        for dtype, expression in glsl.items():
            number = "float" if dtype == "float32" else "int"
            fields = {name: GLSL_TYPES.get(kind, number) for name, kind in annotations.items()}
            read = [WORDS["bool" if name in conditions else dtype] for name in operands]
            written = WORDS["bool" if result == "bool" else dtype]
            self.by_dtype[dtype] = variants(expression, read, written, fields, ranks)
        shaders = (v.code for by_rank in self.by_dtype.values() for v in by_rank.values())
        whole = tuple(name for name in self.by_dtype if not WORDS[name].several)
        kernel = Kernel(self._run, tuple(dict.fromkeys(shaders)), whole)
        super().__init__(
            self._in_one_dtype(body),
            self._infer,
            kernel,
            (*common, *examples),
            elementwise=True,
            grad=grad,
        )
        self.result = result
        self.domain = domain
        self.promotion = promotion
        self.conditions = tuple(name in conditions for name in operands)
        self.kinds = kinds
        self._numbers = tuple(name for name, kind in annotations.items() if kind == "Number")
        self._takes_numbers = len(operands) > 1
        self._complete = self._defaults.keys() == set(self.arguments)
        self._forms: dict[tuple[Any, ...], Form] = {}

    def _in_one_dtype(self, body: Callable[P, Any]) -> Callable[P, Any]:
        """The body, given arrays of the dtype to compute in."""

        @functools.wraps(body)
        def in_one_dtype(*values: Any, **given: Any) -> Any:
            dtype = self._promoted(values)
            arrays = (
                np.asarray(v, np.bool_ if condition else dtype)
                for v, condition in zip(values, self.conditions, strict=True)
            )
            return body(*arrays, **given)  # type: ignore[arg-type]

        return in_one_dtype

    def _promoted(self, values: Sequence[Any]) -> np.dtype[Any]:
        mixed = [v for v, condition in zip(values, self.conditions, strict=True) if not condition]
        return promote(self.name, mixed, self.promotion)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        if not kwargs and self._complete and len(args) == len(self.arrays):
            return list(args), self._defaults
        return super().bind(args, kwargs)

    def _form(self, operands: Sequence[Any]) -> Form:
        """Looked up by the operands' dtypes, and by the types of those that are numbers."""
        key = tuple(o.dtype if isinstance(o, TensorBase) else type(o) for o in operands)
        form = self._forms.get(key)
        if form is None:
            form = self._forms[key] = self._new_form(operands)
        return form

    def _new_form(self, operands: Sequence[Any]) -> Form:
        for name, operand, condition in zip(self.arrays, operands, self.conditions, strict=True):
            if condition and isinstance(operand, TensorBase) and operand.dtype != np.bool_:
                raise DTypeError(
                    f"[{self.name}] {name!r} must be bool, not {operand.dtype}; compare it, as in x != 0"
                )
        computed = self._promoted(operands)
        if computed.kind not in self.kinds:
            raise DTypeError(f"[{self.name}] {computed} is not supported; {ADVICE[computed.kind]}")
        result = np.dtype(np.bool_) if self.result == "bool" else computed
        return Form(computed, result, self.by_dtype.get(computed.name))

    def _infer(self, *operands: Any, **arguments: Any) -> Result:
        form = self._form(operands)
        for operand, condition in zip(operands, self.conditions, strict=True):
            if not condition and not isinstance(operand, TensorBase):
                check_fits(self.name, operand, form.computed)
        for name in self._numbers:
            if form.computed.kind != "f" and isinstance(arguments[name], float):
                raise ArgumentError(
                    f"[{self.name}] {name} must be an integer for {form.computed}, got {arguments[name]}; "
                    "convert the tensors with .float()"
                )
            check_fits(self.name, arguments[name], form.computed)
        return broadcast_shapes(self.name, operands), form.result

    def compute(self, operands: list[Any], arguments: dict[str, Any]) -> Any:
        first = self.check_operands(operands)
        shape, dtype = self._infer(*operands, **arguments)
        form = self._form(operands)
        device = first.device
        if device.is_host:
            return self.run_on_host(first, operands, arguments, shape, dtype)
        if form.variants is None:
            if self.widens_float16(operands, form.computed, self.by_dtype):
                return self.compute_in_float32(operands, arguments, dtype)
            fallback.warn_missing_kernel(self.name, device, form.computed.name)
            return self.run_on_host(first, operands, arguments, shape, dtype)
        out = empty(type(first).result_class, shape, dtype, device, self.name)
        if 0 not in shape:
            try:
                self._launch(form, form.variants, out, operands, arguments)
            except KERNEL_REFUSALS as error:
                fallback.warn_refused_kernel(self.name, device, error)
                return self.run_on_host(first, operands, arguments, shape, dtype)
        return out

    def _run(self, out: TensorBase, *operands: Any, **arguments: Any) -> None:
        """Fill `out`, contiguous and of the result's shape and dtype; bytes after its end become 0."""
        form = self._form(operands)
        assert form.variants is not None
        self._launch(form, form.variants, out, list(operands), arguments)

    def _launch(
        self,
        form: Form,
        variants: Variants,
        out: TensorBase,
        operands: list[Any],
        arguments: dict[str, Any],
    ) -> None:
        given = [
            operand if condition else _given(operand, form.computed, out)
            for operand, condition in zip(operands, self.conditions, strict=True)
        ]
        launch(variants, out, given, [arguments[name] for name in self.arguments])


def broadcast_shapes(name: str, operands: Iterable[Any]) -> Shape:
    """NumPy's broadcasting rule; numbers have the shape ().

    Raises:
        ShapeError: two sizes differ and neither is 1.
    """
    shapes = [o.shape for o in operands if isinstance(o, TensorBase)]
    first = shapes[0]
    if all(shape == first for shape in shapes):
        return first
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ShapeError(
            f"[{name}] shapes {' and '.join(map(str, shapes))} do not broadcast: counted from the "
            "last axis, sizes must be equal or 1"
        ) from None


def _given(operand: Any, dtype: np.dtype[Any], beside: TensorBase) -> Any:
    """An operand as kernels take it: of the dtype to compute in, or a number of 32 bits."""
    if isinstance(operand, TensorBase):
        return operand if operand.dtype == dtype else _converted(operand, dtype)
    if dtype == np.int64 and not -(2**31) <= operand < 2**31:
        return from_host(type(beside), np.array(operand, dtype), beside.device, copy=False)
    return operand


def _converted(tensor: TensorBase, dtype: np.dtype[Any]) -> TensorBase:
    """The elements in the dtype to compute in; gradients are the business of the op that asks."""
    converted: TensorBase = primitives.cast.compute([tensor], {"dtype": dtype.name})
    return converted
