"""The op codes. This table is the one place that defines them.

The interpreter's shader, the simulator, the check of programs and the table in the documentation are made
from it. Those of :data:`ACCELERATOR` are instructions of the accelerator alone
(:mod:`dl4all.graph.accelerator`): a compiled call has none of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Kind = Literal[
    "arithmetic",
    "function",
    "reduction",
    "product",
    "rows",
    "transfer",
    "window",
    "packed",
    "index",
    "control",
]


@dataclass(frozen=True)
class Opcode:
    """The effect of an instruction of this name.

    ``glsl`` is the result as an expression of the elements a, b and c, and ``compute`` the same for NumPy
    arrays. Op codes that are no expressions have a case of their own in the shader.
    """

    name: str
    kind: Kind
    operands: int
    description: str
    glsl: str = ""
    compute: Callable[..., Array] | None = None
    optional: int = 0  # operands that may be left out, the last ones


def _arithmetic(name: str, glsl: str, operands: int, compute: Callable[..., Any], description: str) -> Opcode:
    return Opcode(name, "arithmetic", operands, description, glsl, compute)


def _function(name: str, glsl: str, operands: int, compute: Callable[..., Any], description: str) -> Opcode:
    return Opcode(name, "function", operands, description, glsl, compute)


def _sigmoid(x: Array) -> Array:
    power = np.exp(-np.abs(x))
    result: Array = np.where(x < 0, power, 1) / (1 + power)
    return result


def _erf(x: Array) -> Array:
    result: Array = np.vectorize(math.erf, otypes=[np.float32])(x)
    return result


def _from_int_bits(x: Array) -> Array:
    return x.view(np.int32).astype(np.float32)


def _to_int_bits(x: Array) -> Array:
    return np.trunc(x).astype(np.int32).view(np.float32)


OPCODES = (
    _arithmetic("copy", "a", 1, lambda a: a, "a"),
    _arithmetic("neg", "-a", 1, np.negative, "-a"),
    _arithmetic("abs", "abs(a)", 1, np.abs, "the magnitude of a"),
    _arithmetic("sign", "is_nan(a) ? a : sign(a)", 1, np.sign, "-1, 0 or 1"),
    _arithmetic("floor", "floor(a)", 1, np.floor, "the next integer that is not above a"),
    _arithmetic(
        "relu", "a < 0.0 ? 0.0 : a", 1, lambda a: np.where(a < 0, 0, a), "a, or 0 where it is negative"
    ),
    _arithmetic("float", "float(floatBitsToInt(a))", 1, _from_int_bits, "an int as a float"),
    _arithmetic("int", "intBitsToFloat(int(a))", 1, _to_int_bits, "a float as an int, towards zero"),
    _arithmetic("add", "a + b", 2, np.add, "a + b"),
    _arithmetic("sub", "a - b", 2, np.subtract, "a - b"),
    _arithmetic("mul", "a * b", 2, np.multiply, "a * b"),
    _arithmetic("div", "a / b", 2, np.divide, "a / b"),
    _arithmetic("max", "larger(a, b)", 2, np.maximum, "the larger one; nan if either is"),
    _arithmetic("min", "smaller(a, b)", 2, np.minimum, "the smaller one; nan if either is"),
    _arithmetic("eq", "a == b ? 1.0 : 0.0", 2, np.equal, "1 where a == b, else 0"),
    _arithmetic("lt", "a < b ? 1.0 : 0.0", 2, np.less, "1 where a < b, else 0"),
    _arithmetic("le", "a <= b ? 1.0 : 0.0", 2, np.less_equal, "1 where a <= b, else 0"),
    _arithmetic("mad", "a * b + c", 3, lambda a, b, c: a * b + c, "a * b + c"),
    _arithmetic("nmad", "c - a * b", 3, lambda a, b, c: c - a * b, "c - a * b"),
    _arithmetic(
        "select", "a != 0.0 ? b : c", 3, lambda a, b, c: np.where(a != 0, b, c), "b where a is not 0, else c"
    ),
    _function("sqrt", "sqrt(a)", 1, np.sqrt, "the square root"),
    _function("rsqrt", "1.0 / sqrt(a)", 1, lambda a: 1 / np.sqrt(a), "1 / sqrt(a)"),
    _function("exp", "expf(a)", 1, np.exp, "e to the power of a"),
    _function("expm1", "expm1f(a)", 1, np.expm1, "exp(a) - 1"),
    _function("log", "logf(a)", 1, np.log, "the natural logarithm"),
    _function("log1p", "log1pf(a)", 1, np.log1p, "log(1 + a)"),
    _function("sin", "sinf(a)", 1, np.sin, "the sine"),
    _function("cos", "cosf(a)", 1, np.cos, "the cosine"),
    _function("erf", "erff(a)", 1, _erf, "the error function"),
    _function("tanh", "tanhf(a)", 1, np.tanh, "the hyperbolic tangent"),
    _function("sigmoid", "sigmoidf(a)", 1, _sigmoid, "1 / (1 + exp(-a))"),
    _function("pow", "powf(a, b)", 2, np.power, "a to the power of b"),
    Opcode("row_sum", "reduction", 1, "sums along the last axis", "0.0", np.sum),
    Opcode("row_mean", "reduction", 1, "means along the last axis", "0.0", np.mean),
    Opcode("row_max", "reduction", 1, "the largest elements along the last axis", "-infinity()", np.max),
    Opcode("matmul", "product", 3, "matrix products a @ b, plus c if given", optional=1),
    Opcode("take_rows", "rows", 2, "row b[i] of a for each row i of the result; zeros where b[i] < 0"),
    Opcode("one_hot", "rows", 1, "1 at column a[i] of row i, else 0; zeros where a[i] < 0"),
    Opcode("load", "transfer", 0, "words of a tensor outside"),
    Opcode("store", "transfer", 0, "the register's words to a tensor outside"),
    Opcode("conv", "window", 3, "convolutions of images a with filters b, plus c if given", optional=1),
    Opcode("max_pool", "window", 1, "the largest element of each window; nan if one is"),
    Opcode("sum_pool", "window", 1, "the sum of each window; the padding is zeros"),
    Opcode("matmul_int8", "packed", 3, "a @ b of four bytes to a word, summed as ints, plus c", optional=1),
    Opcode(
        "pack_int8", "packed", 2, "four elements of a / b, rounded to even and cut to -127..127, as bytes"
    ),
    Opcode("iota", "index", 1, "a + the position on the last axis"),
    Opcode("check", "index", 2, "a as it is; stops the program where an int of a is not within -1..b - 1"),
    Opcode("loop", "control", 0, "the instructions up to its end are repeated, and the counter goes up"),
    Opcode("end", "control", 0, "of the loop with this counter, which is 0 behind it"),
    Opcode("jump", "control", 1, "goes on at an instruction if the first element of a is not 0"),
)
CODES = {opcode.name: code for code, opcode in enumerate(OPCODES)}
ELEMENTWISE = ("arithmetic", "function")
ACCELERATOR = frozenset(opcode.name for opcode in OPCODES[CODES["conv"] :])
"""Instructions of the accelerator alone."""
