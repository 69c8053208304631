"""The second printer of expressions: as LLVM IR. That of GLSL is in ``ops/core/expressions/expression.py``.

Numbers that are written in an expression have no type of their own: they take that of what they are combined
with, so that an expression that is declared for float32 can be computed in float64, too.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from dl4all.ops.core.expressions.expression import (
    Binary,
    Conditional,
    Constant,
    Expression,
    FunctionCall,
    Name,
    Unary,
    children,
)
from dl4all.ops.core.expressions.statements import parse_statements
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.runtime.cpu.llvm import error_functions, functions, remainders, trigonometry
from dl4all.runtime.cpu.llvm.ir import Code, IrValue
from dl4all.runtime.cpu.llvm.ir_types import LLVM_TYPES, element_of, lanes_of, vector

Number: TypeAlias = int | float | bool
Printed: TypeAlias = IrValue | Number
Function: TypeAlias = Callable[..., IrValue]

NARROW = ("bool", "uint8", "int8", "int16")
"""Dtypes that expressions see as ``i32``."""

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "%": operator.mod,
    "&": operator.and_, "|": operator.or_, "^": operator.xor, "&&": operator.and_, "||": operator.or_,
    "<<": operator.lshift, ">>": operator.rshift, "<": operator.lt, ">": operator.gt, "<=": operator.le,
    ">=": operator.ge,
}  # fmt: skip
FLOAT32_FUNCTIONS: dict[str, Function] = {
    "expf": functions.exp, "exp2f": functions.exp2, "expm1f": functions.expm1, "logf": functions.log,
    "log2f": functions.log2, "log10f": functions.log10, "log1pf": functions.log1p, "sinhf": functions.sinh,
    "coshf": functions.cosh, "tanhf": functions.tanh, "sigmoidf": functions.sigmoid, "powf": functions.pow,
    "sinf": trigonometry.sin, "cosf": trigonometry.cos, "tanf": trigonometry.tan, "asinf": trigonometry.asin,
    "acosf": trigonometry.acos, "atanf": trigonometry.atan, "atan2f": trigonometry.atan2,
    "erff": error_functions.erf, "erfcf": error_functions.erfc, "erfcxf": error_functions.erfcx,
    "erfinvf": error_functions.erfinv, "fmodf": remainders.fmod, "remainderf": remainders.remainder,
    "floor_dividef": remainders.floor_divide,
}  # fmt: skip
INTRINSICS = {
    "abs": "fabs", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "roundEven": "roundeven",
    "sqrt": "sqrt",
}  # fmt: skip


def larger(code: Code, a: Printed, b: Printed) -> IrValue:
    """The larger one; nan if one of them is nan."""
    return _extreme(code, a, b, operator.gt)


def smaller(code: Code, a: Printed, b: Printed) -> IrValue:
    return _extreme(code, a, b, operator.lt)


def _extreme(code: Code, a: Printed, b: Printed, better: Callable[[Any, Any], Any]) -> IrValue:
    if not isinstance(a, IrValue):
        a, b = b, a
    assert isinstance(a, IrValue)
    one = code.select(better(b, a), b, a)  # a, if one is nan: one instruction of the processor
    if not (a.is_float and isinstance(b, IrValue)):
        return one
    # The second is often a number of the op, of which a compiler asks this once.
    return code.select(code.compare("uno", "eq", b, b), b, one)


def _sign(code: Code, x: IrValue) -> IrValue:
    one = code.constant(x.type, 1)
    return code.select(x > 0, one, code.select(x < 0, -one, code.constant(x.type, 0)))


def _integer_magnitude(code: Code, x: IrValue) -> IrValue:
    return code.select(x < 0, -x, x)


def _is_inf(code: Code, x: IrValue) -> IrValue:
    return code.intrinsic("fabs", x).equals(math.inf)


GENERAL_FUNCTIONS: dict[str, Function] = {
    "larger": larger,
    "smaller": smaller,
    "max": larger,
    "min": smaller,
    "sign": _sign,
    "signum": _sign,
    "magnitude": _integer_magnitude,
    "is_nan": lambda code, x: code.compare("uno", "ne", x, x),
    "is_inf": _is_inf,
    "is_finite": lambda code, x: code.intrinsic("fabs", x) < math.inf,
    "less": lambda code, a, b: a < b,
    "is_true": lambda code, x: x.differs(0),
    "plus": lambda code, a, b: a + b,
    "minus": lambda code, a, b: a - b,
    "times": lambda code, a, b: a * b,
    "opposite": lambda code, x: -x,
    "widened": lambda code, x: code.convert(x, "i64"),
}
INTEGER_FUNCTIONS: dict[str, Function] = {
    "abs": _integer_magnitude,
    "fmodf": remainders.integer_fmod,
    "remainderf": remainders.integer_remainder,
    "floor_dividef": remainders.integer_floor_divide,
}


def check_precision(tree: Expression) -> None:
    """Check that an expression that is declared for float32 can be computed in float64.

    Raises:
        NoKernel: it has functions for float32 only, or numbers that are rounded.
    """
    if isinstance(tree, Constant) and float(np.float32(tree.value)) != tree.value:
        raise NoKernel(f"{tree.text} is rounded to float32")
    if isinstance(tree, FunctionCall) and tree.function in FLOAT32_FUNCTIONS:
        raise NoKernel(f"{tree.function} of float64")
    for child in children(tree):
        check_precision(child)


def print_llvm(code: Code, tree: Expression, values: Mapping[str, IrValue]) -> Printed:
    """The value of an expression.

    Args:
        code: where its instructions go.
        tree: the expression.
        values: for each name a float, a double, an ``i32`` or an ``i64``; vectors of as many lanes.

    Returns:
        The value, or the number if the expression is one.

    Raises:
        NoKernel: there is no code for a function with such operands.
    """
    if isinstance(tree, Name):
        return values[tree.name]
    if isinstance(tree, Constant):
        return tree.value
    parts = [print_llvm(code, child, values) for child in children(tree)]
    if isinstance(tree, Conditional):
        return _choice(code, *parts)
    if isinstance(tree, Unary):
        return _unary(tree.operator, parts[0])
    if isinstance(tree, Binary):
        return _binary(tree.operator, *parts)
    return _call(code, tree.function, parts)


def print_llvm_statements(code: Code, text: str, values: Mapping[str, IrValue]) -> dict[str, IrValue]:
    """The values after a rule (:mod:`dl4all.ops.core.expressions.statements`), given those before.

    Raises:
        NoKernel: as :func:`print_llvm`.
    """
    now, type = dict(values), next(iter(values.values())).type
    for name, value in parse_statements(text):
        now[name] = code.as_value(type, print_llvm(code, value, now))
    return now


def _choice(code: Code, condition: Printed, accepted: Printed, rejected: Printed) -> Printed:
    if not isinstance(condition, IrValue):
        return accepted if condition else rejected
    if not isinstance(accepted, IrValue) and not isinstance(rejected, IrValue):
        element = {bool: "i1", float: "float"}.get(type(accepted), "i32")
        accepted = code.constant(vector(element, lanes_of(condition.type)), accepted)
    return code.select(condition, accepted, rejected)


def _unary(sign: str, operand: Printed) -> Printed:
    if sign == "-":
        return -operand
    if not isinstance(operand, IrValue):
        return not operand if sign == "!" else ~int(operand)
    return ~operand


def _binary(sign: str, left: Printed, right: Printed) -> Printed:
    if isinstance(left, IrValue) or isinstance(right, IrValue):
        if sign in ("==", "!="):
            if not isinstance(left, IrValue):
                left, right = right, left
            assert isinstance(left, IrValue)
            return left.equals(right) if sign == "==" else left.differs(right)
        if not isinstance(left, IrValue) and sign in ("<", ">", "<=", ">="):  # Python asks the other operand
            sign = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}[sign]
            left, right = right, left
    elif sign in ("==", "!="):
        return (left == right) is (sign == "==")
    result: Printed = OPERATORS[sign](left, right)
    return result


def _call(code: Code, name: str, parts: list[Printed]) -> Printed:
    first = next((part for part in parts if isinstance(part, IrValue)), None)
    if first is None:
        if name == "widened":
            return parts[0]
        raise NoKernel(f"{name} of numbers")
    element = element_of(first.type)
    if name == "int":
        return code.convert(first, "i32")
    if name in GENERAL_FUNCTIONS:
        return GENERAL_FUNCTIONS[name](code, *parts)
    if element in ("float", "double") and name in INTRINSICS:
        return code.intrinsic(INTRINSICS[name], first)
    table = FLOAT32_FUNCTIONS if element == "float" else INTEGER_FUNCTIONS if element[0] == "i" else {}
    if name not in table:
        raise NoKernel(f"{name} of {element}")
    return table[name](code, *(code.as_value(first.type, part) for part in parts))


# Elements in memory


def load_element(code: Code, value: IrValue, dtype: str, compute: str) -> IrValue:
    """The value of a loaded element in an expression.

    Args:
        value: as it lies in memory.
        dtype: of the tensor.
        compute: the dtype in which the op computes, or ``bool`` for conditions.
    """
    target = expression_type(compute)
    if dtype == "bfloat16":
        value = code.float_of_bfloat16(value)
    if dtype in ("bool", "uint8"):
        value = code.unsigned(value, "i32")
    return code.convert(value, target)


def store_element(code: Code, value: Printed, dtype: str, lanes: int) -> IrValue:
    """The element that is written for an expression's value, for a result of a dtype."""
    memory = LLVM_TYPES[dtype]
    if dtype == "bfloat16":
        if not isinstance(value, IrValue):
            value = code.constant(vector("float", lanes), value)
        return code.bfloat16_of_float(code.convert(value, "float"))
    if not isinstance(value, IrValue):
        return code.constant(vector(memory, lanes), value)
    if dtype == "bool" and element_of(value.type) != "i1" and value.is_float:
        raise NoKernel("a bool of a float")
    return code.convert(value, memory)


def expression_type(dtype: str) -> str:
    """The type that expressions see of elements of a dtype.

    >>> expression_type("uint8"), expression_type("float64")
    ('i32', 'double')
    """
    if dtype in ("float16", "bfloat16"):
        return "float"
    return "i32" if dtype in NARROW else LLVM_TYPES[dtype]
