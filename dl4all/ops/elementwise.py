"""Ops that compute each element of the result from the elements at the same place.

The kernel is made from one GLSL expression over the operands, ``x`` or ``a``, ``b`` and ``c``, with
``p.NAME`` for an argument. Three shader files serve all of them, ``elementwise/unary.comp``,
``binary.comp`` and ``ternary.comp``, in variants for the types of the operands.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.ops import launch as launching
from dl4all.ops.base import Shape, TensorBase, contiguous_strides, from_host
from dl4all.ops.gradient import Grad
from dl4all.ops.launch import MOST_GROUPS, shader, spread
from dl4all.ops.op import REGISTRY, Example, Kernel, Op, P, Result, empty, example, register
from dl4all.ops.promotion import Promotion, check_fits
from dl4all.ops.promotion import promote as promote
from dl4all.ops.turning import TURN, turning
from dl4all.runtime.spirv import Shader
from dl4all.scheduler.device import Launch

RANKS = (0, 4)  # axes of the kernels' index arithmetic after merging; 0 is contiguous
TURNED = 2  # likewise: four neighbours along two axes, which lie in another order in the result
COPY_RANKS = (0, TURNED, 4, 8)  # of clone, which is what puts tensors of more axes in order for the others
FOURS = 1  # in place of a number of axes: as many as RANKS has, and four neighbours to an invocation
WORKGROUP = 128
ENOUGH = 8192  # workgroups, to keep any device busy
ROW = 64  # from this length on, workgroups are spread over rows, which saves dividing for each element
KINDS = {FOURS, TURNED}
DIVIDED, SPREAD, FLAT = range(3)  # how invocations walk over the elements, as in elementwise/elements.glsl
FLOAT32_OVERFLOW = 2.0**128 - 2.0**103  # from here on, numbers round to infinity

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
FILES = ("elementwise/unary.comp", "elementwise/binary.comp", "elementwise/ternary.comp")


class Word(NamedTuple):
    """How a dtype's elements lie in memory: in words of a GLSL type, to be packed with ``code``."""

    glsl: str
    code: str
    several: bool = False  # four to a word, in expressions an int each


WORDS = {
    "float32": Word("float", "f"),
    "int32": Word("int", "i"),
    "uint8": Word("uint", "i", several=True),
    "bool": Word("uint", "i", several=True),
}

ADVICE = {
    "b": "convert with .to('int64') or .float()",
    "f": "convert with .to('int64'), or compare to get bools",
}
GLSL_TYPES = {"float": "float", "int": "int", "bool": "int"}  # of arguments; a Number's is the operands'

# The functions of each file in include/math; a kernel takes in those files that its expression needs.
LIBRARY = {
    "EXPONENTIAL": ("expf", "exp2f", "expm1f", "sinhf", "coshf", "tanhf", "sigmoidf"),
    "LOGARITHM": ("logf", "log2f", "log10f", "log1pf"),
    "TRIGONOMETRY": ("sinf", "cosf", "tanf", "asinf", "acosf", "atanf", "atan2f"),
    "ERROR_FUNCTION": ("erff", "erfcf"),
    "POWER": ("powf",),
    "REMAINDER": ("fmodf", "remainderf", "floor_dividef"),
}


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
        grad: the gradient, see :class:`dl4all.ops.gradient.Gradient`.
    """

    def declare(body: Callable[P, Any]) -> Elementwise[P]:
        expressions = {"float32": glsl} if isinstance(glsl, str) else glsl
        made = Elementwise(
            body, expressions, promotion, result, conditions, kinds, ranks, examples, domain or {}, grad
        )
        register(made)
        return made

    return declare


class Variant(NamedTuple):
    """One kernel, and how its push constants are packed."""

    code: Shader
    rank: int
    push: struct.Struct
    floats: tuple[int, ...]  # which of the push constants are float32
    elements: int  # that an invocation writes: 1 or 4


Variants: TypeAlias = dict[int, Variant]


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
        self._scalars = len(operands) > 1
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

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        if not kwargs and self._complete and len(args) == len(self.arrays):
            return list(args), self._defaults
        return super()._bind(args, kwargs)

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

    def _compute(self, operands: list[Any], arguments: dict[str, Any]) -> Any:
        first = self._check(operands)
        shape, dtype = self._infer(*operands, **arguments)
        form = self._form(operands)
        if first.device.is_host or form.variants is None:
            return self._on_host(first, operands, arguments, shape, dtype, form.computed)
        out = empty(type(first).result_class, shape, dtype, first.device, self.name)
        if 0 not in shape:
            self._launch(form, form.variants, out, operands, arguments)
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
            _converted(operand, form.computed)
            if isinstance(operand, TensorBase) and operand.dtype != form.computed and not condition
            else operand
            for operand, condition in zip(operands, self.conditions, strict=True)
        ]
        launch(variants, out, given, [arguments[name] for name in self.arguments])


def launch(
    variants: Variants, out: TensorBase, operands: Sequence[Any], arguments: Sequence[Any] = ()
) -> None:
    """Run the kernel that suits the operands' strides; where an operand is a number, no memory is read.

    `out` is contiguous, and operands are of the dtypes that the variants are for.
    """
    shape, strides = out.shape, out.strides
    flat, numbers, tensors = True, 0, []
    for place, operand in enumerate(operands):
        if isinstance(operand, TensorBase):
            expanded = operand if operand.shape == shape else _expand(operand, shape)
            flat = flat and expanded.strides == strides
            tensors.append(expanded)
        else:
            numbers |= 1 << place
    axes: Sequence[int] = ()
    variant: Variant | None = None
    if not flat:
        if TURNED in variants and _turned(out, tensors[0]):
            return
        variant, tensors, axes = _strided(variants, out, tensors, numbers, len(operands))
    count = out.numel()
    walk = DIVIDED
    if variant is None:
        by_four = count % 4 == 0 and not any(tensor.offset % 4 for tensor in tensors)
        variant = variants[FOURS if by_four else 0]
        axes, walk = (0,) * (variant.rank * (1 + len(operands))), FLAT
    offsets, storages, values, left = [], [], [], iter(tensors)
    for place, operand in enumerate(operands):
        tensor = tensors[0] if numbers >> place & 1 else next(left)  # something must be bound
        offsets.append(tensor.offset)
        storages.append(tensor.storage)
        values.append(operand if numbers >> place & 1 else 0)
    push = _packed(variant, (count, *offsets, *(values if len(values) > 1 else ()), *axes, *arguments))
    constants: tuple[int, ...] = (numbers,) if numbers else ()
    groups = spread(-(-count // variant.elements), WORKGROUP)
    if variant.rank:
        length, used = axes[variant.rank - 1], sum(size != 1 for size in axes[: variant.rank])
        four, alike = variant is variants[FOURS], 0
        if walk != FLAT and (four or (length >= ROW and length % variant.elements == 0)):
            walk, groups = SPREAD, _over_rows(length // variant.elements, count // length, several=four)
            alike = _alike(axes, numbers, len(operands))
        constants = (numbers, max(used, 1), walk, *((alike,) if four else ()))
    out.device.launch(Launch(variant.code, groups, push, constants), *storages, out.storage)


def _over_rows(length: int, rows: int, *, several: bool) -> tuple[int, int, int]:
    """Workgroups that stride over the rows in y, and over a row in x: few, as each finds the row's place.

    With `several`, short rows share a workgroup.
    """
    together = WORKGROUP >> min((length - 1).bit_length(), 7) if several else 1
    y = min(-(-rows // together), MOST_GROUPS, launching.MAX_GROUPS)
    x, _, _ = spread(length, WORKGROUP)
    return min(x, max(1, ENOUGH // y)), y, 1


def _strided(
    variants: Variants, out: TensorBase, tensors: list[TensorBase], numbers: int, count: int
) -> tuple[Variant | None, list[TensorBase], Sequence[int]]:
    """The variant for operands that are not all contiguous, with sizes and strides as it takes them.

    None if they are contiguous after all, once axes have become one or copies were made.
    """
    shape, strides = merge_axes(out.shape, [t.strides for t in tensors])
    if len(shape) > max(variants):
        tensors = [_copy(t) for t in tensors]
        shape, strides = merge_axes(out.shape, [t.strides for t in tensors])
    if all(s == contiguous_strides(shape) for s in strides):
        return None, tensors, ()
    four = len(shape) <= max(RANKS) and _by_four(tensors, shape, strides)
    rank = max(RANKS) if four else min(r for r in variants.keys() - KINDS if r >= len(shape))
    missing = rank - len(shape)  # axes of size 1 in front fill the kernel's fixed number of them
    axes = [*(1,) * missing, *shape]
    left = iter(strides)
    for place in range(count):
        axes += (0,) * rank if numbers >> place & 1 else (*(0,) * missing, *next(left))
    return variants[FOURS if four else rank], tensors, axes


def _turned(out: TensorBase, tensor: TensorBase) -> bool:
    """Copy the elements four by four, if they lie so."""
    shape, strides = merge_axes(out.shape, [tensor.strides, out.strides])
    launch = turning(shape, strides[0], strides[1], (tensor.offset, out.offset))
    if launch:
        out.device.launch(launch, tensor.storage, out.storage)
    return launch is not None


def _by_four(tensors: Sequence[TensorBase], shape: Shape, strides: Sequence[Shape]) -> bool:
    """Whether fours of elements are neighbours in each operand, at multiples of four, or all the same."""
    return shape[-1] % 4 == 0 and all(
        s[-1] == 0 or (s[-1] == 1 and not any(number % 4 for number in (t.offset, *s[:-1])))
        for t, s in zip(tensors, strides, strict=True)
    )


def _alike(axes: Sequence[int], numbers: int, operands: int) -> int:
    """The operands that have one element for each row, as bits."""
    rank = len(axes) // (1 + operands)
    last = axes[2 * rank - 1 :: rank]
    return sum(1 << place for place, stride in enumerate(last) if stride == 0) & ~numbers


def variants(
    expression: str,
    operands: Sequence[Word],
    result: Word,
    arguments: Mapping[str, str],
    ranks: Iterable[int],
) -> Variants:
    """The kernels of an expression, by rank or FOURS.

    Args:
        expression: in GLSL, of x, or of a, b and c.
        operands, result: how their elements lie in memory.
        arguments: GLSL types by name.
        ranks: numbers of axes; 0 is for contiguous operands.
    """
    names = ("x",) if len(operands) == 1 else ("a", "b", "c")[: len(operands)]
    defines: dict[str, Any] = {
        f"OP({','.join(names)})": f"({expression})",
        "PARAMS": "".join(f"{kind} {name};" for name, kind in arguments.items()),
    }
    for letter, word in (*zip("ABC", operands, strict=False), ("Y", result)):
        if word.glsl != "float":
            defines[f"{letter}_WORD"] = word.glsl
        if word.several:
            defines[f"{letter}_BYTES"] = 1
    used = set(re.findall(r"\w+", expression))
    defines |= {section: 1 for section, functions in LIBRARY.items() if used & set(functions)}
    numbers = "".join(word.code for word in operands) if len(operands) > 1 else ""
    rest = "".join("f" if kind == "float" else "i" for kind in arguments.values())

    def variant(rank: int, elements: int, **more: int) -> Variant:
        code = "I" * (1 + len(operands)) + numbers + "I" * (rank + rank * len(operands)) + rest
        return Variant(
            shader(FILES[len(operands) - 1], RANK=rank, **more, **defines),
            rank,
            struct.Struct(f"<{code}"),
            tuple(place for place, letter in enumerate(code) if letter == "f"),
            elements,
        )

    made = {rank: variant(rank, 4 if result.several else 1) for rank in ranks if rank != TURNED}
    made[FOURS] = variant(max(RANKS), 4, FOURS=1)
    if TURNED in ranks and not result.several:
        made[TURNED] = Variant(TURN, 0, struct.Struct(""), (), 16)
    return made


def _packed(variant: Variant, values: Sequence[Any]) -> bytes:
    try:
        return variant.push.pack(*values)
    except (struct.error, OverflowError):  # struct refuses what float32 rounds to infinity, and 2.0 as an int
        exact = list(values)
        for place, value in enumerate(values):
            if place not in variant.floats:
                exact[place] = int(value)
            elif abs(value) >= FLOAT32_OVERFLOW:
                exact[place] = math.copysign(math.inf, value)
        return variant.push.pack(*exact)


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


def _converted(tensor: TensorBase, dtype: np.dtype[Any]) -> TensorBase:
    """The elements in the dtype to compute in; gradients are the business of the op that asks."""
    converted: TensorBase = REGISTRY["cast"]._compute([tensor], {"dtype": dtype.name})
    return converted


def _copy(tensor: TensorBase) -> TensorBase:
    """The elements in row-major order; by way of the host where not even clone has enough axes."""
    axes, _ = merge_axes(tensor.shape, [tensor.strides])
    copied: TensorBase = (
        REGISTRY["clone"](tensor)
        if len(axes) <= max(COPY_RANKS)
        else from_host(type(tensor).result_class, tensor.on_host(), tensor.device, copy=True)
    )
    return copied


def _expand(tensor: TensorBase, shape: Shape) -> TensorBase:
    """A view of `shape` in which the axes that broadcast have stride 0."""
    if tensor.shape == shape:
        return tensor
    missing = len(shape) - len(tensor.shape)
    strides = (0,) * missing + tuple(
        0 if size == 1 else stride for size, stride in zip(tensor.shape, tensor.strides, strict=True)
    )
    expanded: TensorBase = tensor.as_strided(shape, strides, tensor.offset)
    return expanded


def merge_axes(shape: Shape, strides: Sequence[Shape]) -> tuple[Shape, list[Shape]]:
    """The same elements in the same order with as few axes as possible.

    Two neighbouring axes become one where, for every operand, the outer one's stride is the inner
    one's times its size. Axes of size 1 vanish.

    >>> merge_axes((2, 1, 3, 5), [(15, 7, 5, 1), (0, 0, 5, 1)])
    ((2, 15), [(15, 1), (0, 1)])
    """
    sizes: list[int] = []
    merged: list[list[int]] = [[] for _ in strides]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        here = [s[axis] for s in strides]
        if sizes and all(m[-1] == stride * size for m, stride in zip(merged, here, strict=True)):
            sizes[-1] *= size
            for m, stride in zip(merged, here, strict=True):
                m[-1] = stride
        else:
            sizes.append(size)
            for m, stride in zip(merged, here, strict=True):
                m.append(stride)
    return tuple(sizes), [tuple(m) for m in merged]
