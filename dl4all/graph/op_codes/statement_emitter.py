"""The printer of statements as instructions (:mod:`dl4all.ops.core.expressions.statements`)."""

from __future__ import annotations

from dl4all.graph.op_codes.emitter import Emitter, Source, Unsupported
from dl4all.graph.op_codes.instruction import Register
from dl4all.ops.core.expressions.expression import (
    Binary,
    Conditional,
    Constant,
    Expression,
    FunctionCall,
    Name,
    Unary,
    print_glsl,
)

OPERATORS = {"+": "add", "-": "sub", "*": "mul", "/": "div", "<": "lt", "<=": "le", "==": "eq"}
FUNCTIONS = {"sqrt": "sqrt", "abs": "abs", "sign": "sign", "larger": "max", "smaller": "min", "expf": "exp"}
FUSED = {"+": "mad", "-": "nmad"}
"""Op codes of sums of something and a product, and of differences."""


class StatementEmitter:
    """Emits the statements of a rule.

    Args:
        emitter: gets the instructions.
        given: registers of what the rule changes, and of the gradient; the constants.
    """

    def __init__(self, emitter: Emitter, given: dict[str, Source]) -> None:
        self._emitter = emitter
        self._now = given
        self._sizes = given["p"].sizes if isinstance(given["p"], Register) else ()
        self._unused: list[Register] = []  # temporary memory of values that are used up
        self._unnamed: set[Register] = set()

    def assign(self, name: str, value: Expression, place: Register | None) -> None:
        """Emit a statement.

        Raises:
            Unsupported: no instruction does what an expression has.
        """
        result = self._value(value, place)
        if place is not None and result != place:
            result = self._emitter.emit("copy", place, result)
        if isinstance(result, Register):
            self._unnamed.discard(result)
        self._now[name] = result

    def _value(self, tree: Expression, place: Register | None = None) -> Source:
        if isinstance(tree, Name):
            return self._now[tree.name]
        if isinstance(tree, Constant):
            return float(tree.value)
        if isinstance(tree, Unary) and tree.operator == "-":
            return self._emit("neg", place, tree.operand)
        if isinstance(tree, Conditional):
            condition, accepted, rejected = tree.condition, tree.accepted, tree.rejected
            if isinstance(condition, Binary) and condition.right == Constant("0.0"):
                if condition.operator == "==":
                    return self._emit("select", place, condition.left, rejected, accepted)
                if condition.operator == "!=":
                    return self._emit("select", place, condition.left, accepted, rejected)
            return self._emit("select", place, condition, accepted, rejected)
        if isinstance(tree, Binary):
            left, right, operator = tree.left, tree.right, tree.operator
            if operator in (">", ">="):
                left, right, operator = right, left, operator.replace(">", "<")
            if operator in FUSED and isinstance(right, Binary) and right.operator == "*":
                return self._emit(FUSED[operator], place, right.left, right.right, left)
            if operator in OPERATORS:
                return self._emit(OPERATORS[operator], place, left, right)
        if isinstance(tree, FunctionCall) and tree.function in FUNCTIONS:
            return self._emit(FUNCTIONS[tree.function], place, *tree.arguments)
        raise Unsupported(f"computes {print_glsl(tree)}")

    def _emit(self, code: str, place: Register | None, *operands: Expression) -> Register:
        values = [self._value(operand) for operand in operands]
        used = [value for value in values if isinstance(value, Register) and value in self._unnamed]
        self._unused += dict.fromkeys(used)
        self._unnamed.difference_update(used)
        result = place
        if result is None:
            result = self._unused.pop() if self._unused else self._emitter.temporary(self._sizes)
            self._unnamed.add(result)
        return self._emitter.emit(code, result, *values)
