"""Elementwise ops, and what the forms of all families share."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np

from dl4all.graph.ir.graph import Operand
from dl4all.onnx.exporter.recording import OpCall
from dl4all.onnx.exporter.writer import GraphWriter, written
from dl4all.onnx.operators.elementwise import ARITHMETIC, LOGICAL, UNARY
from dl4all.ops.core.dtypes import KIND_RANKS, kind_of, promoted
from dl4all.ops.core.op import REGISTRY

BESIDE = {
    "true_divide": "Div",
    "pow": "Pow",
    "maximum": "Max",
    "minimum": "Min",
    "round_even": "Round",
    "clone": "Identity",
}
"""Ops whose names are not those of the functions that compute the operators."""


def _names() -> dict[str, str]:
    """The operators that take an op's operands as they are."""
    tables = {**UNARY, **ARITHMETIC, **LOGICAL}
    named = {function.__name__: name for name, (function, _) in tables.items()}
    return {op: name for op, name in {**named, **BESIDE}.items() if op in REGISTRY}


OPERATORS = _names()


def like(call: OpCall) -> str:
    """The dtype that an op computes in: its result's, or for comparisons that of the operands together."""
    if call.result.dtype != "bool":
        return call.result.dtype
    dtypes = [np.dtype(o.dtype) for o in call.operands if isinstance(o, Operand)]
    if any(isinstance(o, float) for o in call.operands):
        dtypes.append(np.dtype(np.float32))
    kinds = [KIND_RANKS[dtype] for dtype in dtypes]
    return str(
        reduce(promoted, (d for d, rank in zip(dtypes, kinds, strict=True) if rank == max(kinds))).name
    )


def operands_of(w: GraphWriter, call: OpCall) -> list[str]:
    """The operands in the dtype that the op computes in, as ONNX converts nothing by itself."""
    return [converted(w, o, like(call)) for o in call.operands if o is not None]


def converted(w: GraphWriter, operand: Any, dtype: str) -> str:
    name = w.get(operand, dtype)
    if not isinstance(operand, Operand) or operand.dtype == dtype:
        return name
    return w.add("Cast", [name], to=w.element_type(dtype))


@written(*OPERATORS)
def same(w: GraphWriter, call: OpCall) -> str:
    operator, inputs = OPERATORS[call.name], operands_of(w, call)
    if operator in ("And", "Or", "Xor", "Not"):
        inputs = [converted(w, o, "bool") for o in call.operands]
    elif operator.startswith("Bitwise"):
        if call.result.dtype == "bool":
            operator = {"BitwiseNot": "Not"}.get(operator, operator.removeprefix("Bitwise"))
        elif w.opset < 18:
            raise w.refused(f"the op {call.name} of integers has a form from opset 18 on")
    if operator == "Softplus" and call.arguments.get("beta", 1) != 1:
        beta = number(w, call, call.arguments["beta"])
        return w.add("Div", [w.add("Softplus", [w.add("Mul", [inputs[0], beta])]), beta])
    if call.arguments.get("alpha", 1) != 1:
        inputs[1] = w.add("Mul", [inputs[1], number(w, call, call.arguments["alpha"])])
    return w.add(operator, inputs)


def number(w: GraphWriter, call: OpCall, value: float) -> str:
    return w.constant(np.array(value, like(call)))


@written("ne")
def not_equal(w: GraphWriter, call: OpCall) -> str:
    return w.add("Not", [w.add("Equal", operands_of(w, call))])


@written("cast")
def cast(w: GraphWriter, call: OpCall) -> str:
    return converted(w, call.operands[0], call.result.dtype)


@written("clamp_min", "clamp_max", "clamp_unchecked", "hardtanh")
def clip(w: GraphWriter, call: OpCall) -> str:
    x, *limits = call.operands
    if call.name == "hardtanh":
        limits = [call.arguments["min_val"], call.arguments["max_val"]]
    names = [converted(w, limit, like(call)) for limit in limits]
    lower, upper = {"clamp_min": (names, []), "clamp_max": ([], names)}.get(call.name, (names[:1], names[1:]))
    value = converted(w, x, like(call))
    for op_type, bounds in (("Max", lower), ("Min", upper)):
        if bounds:
            value = w.add(op_type, [value, *bounds])
    return value


@written("leaky_relu")
def leaky_relu(w: GraphWriter, call: OpCall) -> str:
    return w.add(
        "LeakyRelu",
        [converted(w, call.operands[0], call.result.dtype)],
        alpha=float(call.arguments["negative_slope"]),
    )


@written("hardsigmoid")
def hard_sigmoid(w: GraphWriter, call: OpCall) -> str:
    return w.add("HardSigmoid", [converted(w, call.operands[0], call.result.dtype)], alpha=1 / 6, beta=0.5)


@written("silu")
def silu(w: GraphWriter, call: OpCall) -> str:
    x = converted(w, call.operands[0], call.result.dtype)
    return w.add("Mul", [x, w.add("Sigmoid", [x])])


@written("logsigmoid")
def log_sigmoid(w: GraphWriter, call: OpCall) -> str:
    x = w.add("Neg", [converted(w, call.operands[0], call.result.dtype)])
    return w.add("Neg", [w.add("Softplus", [x])])


@written("elu")
def elu(w: GraphWriter, call: OpCall) -> str:
    x, alpha = converted(w, call.operands[0], call.result.dtype), float(call.arguments["alpha"])
    scale, inner = float(call.arguments.get("scale", 1)), float(call.arguments.get("input_scale", 1))
    if inner != 1:
        if scale != 1 or alpha * inner != 1:
            raise w.refused(f"elu with the scales {scale} and {inner} has no form")
        return w.add("Celu", [x], alpha=alpha)
    y = w.add("Elu", [x], alpha=alpha)
    return y if scale == 1 else w.add("Mul", [y, number(w, call, scale)])


@written("gelu_exact", "gelu_tanh")
def gelu(w: GraphWriter, call: OpCall) -> str:
    """An operator of its own from opset 20 on."""
    x, exact = converted(w, call.operands[0], call.result.dtype), call.name == "gelu_exact"
    if w.opset >= 20:
        return w.add("Gelu", [x], approximate="none" if exact else "tanh")
    if exact:
        inner = w.add("Erf", [w.add("Mul", [x, number(w, call, math.sqrt(0.5))])])
    else:
        cube = w.add("Mul", [w.add("Mul", [x, w.add("Mul", [x, x])]), number(w, call, 0.044715)])
        inner = w.add(
            "Tanh", [w.add("Mul", [w.add("Add", [x, cube]), number(w, call, math.sqrt(2 / math.pi))])]
        )
    half = w.add("Mul", [x, number(w, call, 0.5)])
    return w.add("Mul", [half, w.add("Add", [inner, number(w, call, 1.0)])])


@written("rsqrt")
def rsqrt(w: GraphWriter, call: OpCall) -> str:
    return w.add("Reciprocal", [w.add("Sqrt", [converted(w, call.operands[0], call.result.dtype)])])


@written("log2", "log10", "log1p", "exp2", "expm1")
def logarithm(w: GraphWriter, call: OpCall) -> str:
    x = converted(w, call.operands[0], call.result.dtype)
    if call.name == "log1p":
        return w.add("Log", [w.add("Add", [x, number(w, call, 1.0)])])
    if call.name == "expm1":
        return w.add("Sub", [w.add("Exp", [x]), number(w, call, 1.0)])
    if call.name == "exp2":
        return w.add("Exp", [w.add("Mul", [x, number(w, call, math.log(2))])])
    return w.add("Mul", [w.add("Log", [x]), number(w, call, 1 / math.log(2 if call.name == "log2" else 10))])


@written("where")
def where(w: GraphWriter, call: OpCall) -> str:
    condition, *rest = call.operands
    return w.add("Where", [converted(w, condition, "bool"), *(converted(w, o, like(call)) for o in rest)])


@written("lerp")
def lerp(w: GraphWriter, call: OpCall) -> str:
    x, end, weight = operands_of(w, call)
    return w.add("Add", [x, w.add("Mul", [weight, w.add("Sub", [end, x])])])


@written("addcmul", "addcdiv")
def add_product(w: GraphWriter, call: OpCall) -> str:
    x, y, z = operands_of(w, call)
    term = w.add("Mul" if call.name == "addcmul" else "Div", [y, z])
    if call.arguments["value"] != 1:
        term = w.add("Mul", [term, number(w, call, call.arguments["value"])])
    return w.add("Add", [x, term])


@written("remainder", "floor_divide")
def floored(w: GraphWriter, call: OpCall) -> str:
    x, y = operands_of(w, call)
    if kind_of(np.dtype(like(call))) != "f":
        if call.name == "remainder":
            return w.add("Mod", [x, y])
        return w.add("Div", [w.add("Sub", [x, w.add("Mod", [x, y])]), y])
    quotient = w.add("Floor", [w.add("Div", [x, y])])
    return quotient if call.name == "floor_divide" else w.add("Sub", [x, w.add("Mul", [quotient, y])])


@written("triu", "tril")
def triangle(w: GraphWriter, call: OpCall) -> str:
    diagonal = w.constant(np.array(call.arguments["diagonal"], np.int64))
    return w.add("Trilu", [w.get(call.operands[0]), diagonal], upper=int(call.name == "triu"))
