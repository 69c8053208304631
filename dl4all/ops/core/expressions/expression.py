"""The expression of an elementwise op, as a tree: parsed from GLSL, printed as GLSL, computed with NumPy.

An op declares its result as a GLSL expression of its operands ``x``, or ``a``, ``b`` and ``c``, and its
arguments ``p.NAME``. As a tree it can be put into another kernel under other names, or run on the host. The
trees are immutable, and two expressions of the same meaning token by token are equal.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dl4all.errors import ShaderError
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.expressions import special_functions
from dl4all.ops.core.expressions.branchless import logistic

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True)
class Name:
    """An operand, or an argument as ``p.NAME``."""

    name: str


@dataclass(frozen=True)
class Constant:
    """A number, ``true`` or ``false``, as it is written."""

    text: str

    @property
    def value(self) -> float | int | bool:
        if self.text in BOOLS:
            return self.text == "true"
        if self.text.startswith("0x"):
            return int(self.text.rstrip("u"), 16)
        return float(self.text) if re.search("[.e]", self.text) else int(self.text.rstrip("u"))


@dataclass(frozen=True)
class Unary:
    """``-x``, ``!x`` or ``~x``."""

    operator: str
    operand: Expression


@dataclass(frozen=True)
class Binary:
    """Two operands with an operator between them."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Conditional:
    """``condition ? accepted : rejected``."""

    condition: Expression
    accepted: Expression
    rejected: Expression


@dataclass(frozen=True)
class FunctionCall:
    """A function of GLSL or of ``shaders/include/math``, or a conversion such as ``int(x)``."""

    function: str
    arguments: tuple[Expression, ...]


Expression: TypeAlias = Name | Constant | Unary | Binary | Conditional | FunctionCall

BOOLS = ("true", "false")
PRECEDENCE = {  # of binary operators; a larger number binds more tightly
    operator: level
    for level, operators in enumerate(
        ("||", "&&", "|", "^", "&", "== !=", "< > <= >=", "<< >>", "+ -", "* / %"), start=2
    )
    for operator in operators.split()
}
CHOICE, UNARY, PRIMARY = 1, 20, 21  # the levels below and above those of the binary operators
TOKEN = re.compile(
    r"\s*(?:(?P<number>0x[0-9a-fA-F]+u?|(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?u?)"
    r"|(?P<name>[A-Za-z_]\w*(?:\.\w+)?)"
    r"|(?P<operator>\|\||&&|<<|>>|[=!<>]=|[-+*/%<>!~&|^?:(),]))"
)


# Parsing


@functools.cache
def parse(text: str) -> Expression:
    """The tree of a GLSL expression.

    >>> parse("a + p.alpha * b") == parse("a + (p.alpha*b)")
    True

    Raises:
        ShaderError: it is none, or uses what elementwise expressions have no need of.
    """
    parser = _ExpressionParser(text)
    tree = parser.expression(CHOICE)
    if parser.token:
        raise parser.error("an operator")
    return tree


class _ExpressionParser:
    """Recursive descent by precedence."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.end = 0
        self.token = self.kind = ""
        self.advance()

    def error(self, expected: str) -> ShaderError:
        found = repr(self.token) if self.token else "the end"
        return ShaderError(f"[expression] expected {expected}, got {found} in {self.text!r}")

    def advance(self) -> str:
        """Go on to the next token; returns the one before."""
        before = self.token
        match = TOKEN.match(self.text, self.end)
        if match is not None:
            self.kind = match.lastgroup or ""
            self.token, self.end = match[self.kind], match.end()
        elif self.text[self.end :].strip():
            self.token = self.text[self.end :].strip()
            raise self.error("a token of GLSL")
        else:
            self.kind = self.token = ""
        return before

    def take(self, token: str) -> None:
        if self.token != token:
            raise self.error(repr(token))
        self.advance()

    def expression(self, level: int) -> Expression:
        """Parse an expression that binds at least as tightly as a level says."""
        tree = self.operand()
        while self.token in PRECEDENCE and PRECEDENCE[self.token] >= level:
            operator = self.advance()
            tree = Binary(operator, tree, self.expression(PRECEDENCE[operator] + 1))
        if self.token == "?" and level <= CHOICE:
            self.advance()
            accepted = self.expression(CHOICE)
            self.take(":")
            return Conditional(tree, accepted, self.expression(CHOICE))
        return tree

    def operand(self) -> Expression:
        if self.token in ("-", "!", "~"):
            return Unary(self.advance(), self.operand())
        if self.token == "(":
            self.advance()
            tree = self.expression(CHOICE)
            self.take(")")
            return tree
        if self.kind == "number" or self.token in BOOLS:
            return Constant(self.advance())
        if self.kind != "name":
            raise self.error("an operand")
        name = self.advance()
        if self.token != "(":
            return Name(name)
        arguments = []
        while self.token != ")":
            self.advance()  # the parenthesis or a comma
            arguments.append(self.expression(CHOICE))
            if self.token not in (",", ")"):
                raise self.error("',' or ')'")
        self.advance()
        return FunctionCall(name, tuple(arguments))


# Looking and changing


def children(tree: Expression) -> tuple[Expression, ...]:
    """The parts of a tree, in order."""
    if isinstance(tree, Unary):
        return (tree.operand,)
    if isinstance(tree, Binary):
        return (tree.left, tree.right)
    if isinstance(tree, Conditional):
        return (tree.condition, tree.accepted, tree.rejected)
    return tree.arguments if isinstance(tree, FunctionCall) else ()


def walk(tree: Expression) -> Iterator[Expression]:
    """A tree and all trees within it."""
    yield tree
    for child in children(tree):
        yield from walk(child)


@functools.cache
def functions_of(tree: Expression) -> frozenset[str]:
    """The functions that an expression calls.

    >>> sorted(functions_of(parse("larger(a, expf(b))")))
    ['expf', 'larger']
    """
    return frozenset(part.function for part in walk(tree) if isinstance(part, FunctionCall))


def substitute(tree: Expression, trees: Mapping[str, Expression]) -> Expression:
    """The expression with others in place of names; names that are not among them stay.

    >>> print_glsl(substitute(parse("a * b"), {"a": parse("x + y")}))
    '(x + y) * b'
    """
    if isinstance(tree, Name):
        return trees.get(tree.name, tree)
    if isinstance(tree, Unary):
        return Unary(tree.operator, substitute(tree.operand, trees))
    if isinstance(tree, Binary):
        return Binary(tree.operator, substitute(tree.left, trees), substitute(tree.right, trees))
    if isinstance(tree, Conditional):
        return Conditional(
            substitute(tree.condition, trees),
            substitute(tree.accepted, trees),
            substitute(tree.rejected, trees),
        )
    if isinstance(tree, FunctionCall):
        return FunctionCall(tree.function, tuple(substitute(argument, trees) for argument in tree.arguments))
    return tree


# Printing


def print_glsl(tree: Expression, names: Mapping[str, str] | None = None) -> str:
    """An expression as GLSL text, with no more parentheses than it needs.

    Args:
        tree: the expression.
        names: what to write for a name: another name, or anything that binds as tightly. Names that are
            not among them are written as they are.

    >>> print_glsl(parse("(a + (p.alpha * b))"), {"p.alpha": "alpha"})
    'a + alpha * b'
    """
    return _printed(tree, names or {}, CHOICE)


def _printed(tree: Expression, names: Mapping[str, str], level: int) -> str:
    """The text of a part, in parentheses where it does not bind as tightly as `level`."""
    if isinstance(tree, Name):
        return names.get(tree.name, tree.name)
    if isinstance(tree, Constant):
        return tree.text
    if isinstance(tree, FunctionCall):
        return f"{tree.function}({', '.join(_printed(a, names, CHOICE) for a in tree.arguments)})"
    if isinstance(tree, Unary):
        operand = _printed(tree.operand, names, UNARY)
        own = UNARY
        text = f"{tree.operator}({operand})" if operand[0] in "-+" else f"{tree.operator}{operand}"
    elif isinstance(tree, Binary):
        own = PRECEDENCE[tree.operator]
        left, right = _printed(tree.left, names, own), _printed(tree.right, names, own + 1)
        text = f"{left} {tree.operator} {right}"
    else:
        own = CHOICE
        condition = _printed(tree.condition, names, CHOICE + 1)
        accepted, rejected = _printed(tree.accepted, names, CHOICE), _printed(tree.rejected, names, CHOICE)
        text = f"{condition} ? {accepted} : {rejected}"
    return text if own >= level else f"({text})"


# Computing


def _mapped(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """A function of floats, applied to each element."""

    def mapped(array: Array) -> Array:
        results = np.fromiter(map(function, np.ravel(array).tolist()), np.float64, np.size(array))
        return results.reshape(np.shape(array)).astype(array.dtype)

    return mapped


def power(base: Array, exponent: Array) -> Array:
    """Powers, of integers with negative exponents too: the quotient's whole part, 0 for a division by 0.

    >>> import numpy as np
    >>> power(np.array([2, -1, 3]), np.array([3, -3, -1])).tolist()
    [8, -1, 0]
    """
    if kind_of(np.result_type(base, exponent)) == "f":
        return np.asarray(np.power(base, exponent))
    positive = np.power(base, np.maximum(exponent, 0))  # NumPy refuses negative exponents of integers
    inverse = np.where(np.abs(base) == 1, np.where(exponent % 2 == 0, 1, base), 0)
    return np.where(exponent < 0, inverse, positive)


UNARY_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "-": np.negative,
    "!": np.logical_not,
    "~": np.invert,
}
BINARY_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "||": np.logical_or,
    "&&": np.logical_and,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
    "&": np.bitwise_and,
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    ">": np.greater,
    "<=": np.less_equal,
    ">=": np.greater_equal,
    "<<": np.left_shift,
    ">>": np.right_shift,
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.remainder,
}
FUNCTIONS: dict[str, Callable[..., Array]] = {
    "abs": np.abs,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "roundEven": np.rint,
    "sqrt": np.sqrt,
    "max": np.maximum,
    "min": np.minimum,
    "larger": np.maximum,
    "smaller": np.minimum,
    "less": np.less,
    "is_nan": np.isnan,
    "is_inf": np.isinf,
    "is_finite": np.isfinite,
    "int": lambda x: np.asarray(x).astype(np.int32),
    "expf": np.exp,
    "exp2f": np.exp2,
    "expm1f": np.expm1,
    "logf": np.log,
    "log2f": np.log2,
    "log10f": np.log10,
    "log1pf": np.log1p,
    "sinf": np.sin,
    "cosf": np.cos,
    "tanf": np.tan,
    "asinf": np.arcsin,
    "acosf": np.arccos,
    "atanf": np.arctan,
    "atan2f": np.arctan2,
    "sinhf": np.sinh,
    "coshf": np.cosh,
    "tanhf": np.tanh,
    "sigmoidf": lambda x: logistic(np.asarray(x)),
    "erff": _mapped(math.erf),
    "erfcf": _mapped(math.erfc),
    "erfinvf": special_functions.inverse_erf,
    "erfcxf": special_functions.scaled_erfc,
    "ndtrif": special_functions.normal_quantile,
    "lgammaf": special_functions.log_gamma,
    "digammaf": special_functions.digamma,
    "zetaf": special_functions.zeta,
    "powf": power,
    "fmodf": np.fmod,
    "remainderf": np.remainder,
    "floor_dividef": np.floor_divide,
    "widened": lambda x: np.asarray(x, np.int64),
    "is_true": lambda x: np.not_equal(x, 0),
    "plus": np.add,
    "minus": np.subtract,
    "times": np.multiply,
    "opposite": np.negative,
    "magnitude": np.abs,
    "signum": np.sign,
}
"""Functions of expressions in NumPy; no expression calls others."""


def evaluate(tree: Expression, values: Mapping[str, Any]) -> Array:
    """The elements of an expression.

    Args:
        tree: the expression.
        values: arrays that broadcast together, or numbers, for each name in the expression. As in kernels,
            bools and uint8 count as ints.

    Returns:
        An array of a float type, int32, int64 or bool. It has the shape to which the arrays broadcast, or
        one that broadcasts to it. The op's result has these elements, converted to its dtype.

    >>> import numpy as np
    >>> evaluate(parse("x < 0.0 ? 0.0 : x"), {"x": np.array([-1.0, 2.0])}).tolist()
    [0.0, 2.0]
    """
    with np.errstate(all="ignore"):
        return np.asarray(_evaluated(tree, *_converted(values)))


def compute(tree: Expression, values: Mapping[str, Array], floats: np.dtype[Any]) -> Any:
    """The elements of an expression of arrays of one float dtype, in that dtype."""
    return _evaluated(tree, values, floats, np.dtype(np.int32))


def _converted(values: Mapping[str, Any]) -> tuple[dict[str, Array], np.dtype[Any], np.dtype[Any]]:
    """The values as expressions see them, and the dtypes of constants among them: floats and ints."""
    arrays = [value for value in values.values() if isinstance(value, (np.ndarray, np.generic))]
    floats = [array.dtype for array in arrays if kind_of(array.dtype) == "f"]
    float_dtype = np.result_type(*floats) if floats else np.dtype(np.float32)
    int_dtype = np.dtype(np.int64 if any(array.dtype == np.int64 for array in arrays) else np.int32)
    has_floats = bool(floats) or any(isinstance(value, float) for value in values.values())
    converted = {}
    for name, value in values.items():
        if not isinstance(value, (np.ndarray, np.generic)):
            value = np.asarray(value, float_dtype if has_floats else int_dtype)
        elif kind_of(value.dtype) in "bu":
            value = value.astype(np.int32)
        converted[name] = value
    return converted, float_dtype, int_dtype


def _evaluated(
    tree: Expression, values: Mapping[str, Array], floats: np.dtype[Any], ints: np.dtype[Any]
) -> Any:
    if isinstance(tree, Name):
        return values[tree.name]
    if isinstance(tree, Constant):
        value = tree.value
        if isinstance(value, bool):
            return np.bool_(value)
        if isinstance(value, float):
            return floats.type(value)
        return np.uint32(value) if tree.text.endswith("u") else ints.type(value)
    if isinstance(tree, Conditional):
        condition = _evaluated(tree.condition, values, floats, ints)
        if not np.ndim(condition):  # one condition for all elements
            return _evaluated(tree.accepted if condition else tree.rejected, values, floats, ints)
        accepted, rejected = (_evaluated(t, values, floats, ints) for t in (tree.accepted, tree.rejected))
        return np.where(condition, accepted, rejected)
    parts = [_evaluated(child, values, floats, ints) for child in children(tree)]
    if isinstance(tree, Unary):
        return UNARY_FUNCTIONS[tree.operator](*parts)
    if isinstance(tree, Binary):
        return BINARY_FUNCTIONS[tree.operator](*parts)
    return FUNCTIONS[tree.function](*parts)
