"""The evaluation of a graph: one operator after the other, over tensors and numbers of the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dl4all.errors import ArgumentError, Dl4allError, OperatorError, OutOfMemoryError, ShapeError
from dl4all.onnx import standard_functions
from dl4all.onnx.call import Call, EvaluationContext, is_array
from dl4all.onnx.graph import OnnxFunction, OnnxGraph, OnnxNode
from dl4all.onnx.registry import Operator, find
from dl4all.scheduler.device.device import Device
from dl4all.tensor.tensor import Tensor

MOST_NESTED = 64  # calls of functions within each other


def new_context(
    opsets: Mapping[str, int],
    functions: Mapping[tuple[str, str, str], OnnxFunction],
    max_iterations: int,
    uploaded: dict[tuple[int, Device], Tensor],
) -> EvaluationContext:
    """The surroundings of a model's calls, in which operators can run graphs."""
    context = EvaluationContext(opsets, functions, max_iterations, uploaded)
    context.evaluate, context.expand = evaluate, call_standard
    return context


def evaluate(
    graph: OnnxGraph, values: dict[str, Any], context: EvaluationContext, device: Device
) -> list[Any]:
    """The outputs of a graph.

    Args:
        graph: what to compute.
        values: by name, those of its inputs, initializers, and of the names around it; changed.
        context: of the model.
        device: where tensors are made.
    """
    for node, last in zip(graph.nodes, graph.last_uses, strict=True):
        inputs = [values[name] if name else None for name in node.inputs]
        results = run_node(node, inputs, values, context, device)
        if len(results) < len(node.outputs) and any(node.outputs[len(results) :]):
            raise OperatorError(f"[onnx] {node}: result {len(results)} is not supported")
        for name, result in zip(node.outputs, results, strict=False):
            if name:
                values[name] = result
        for name in last:
            values.pop(name, None)
    return [values.get(info.name) for info in graph.outputs]


def run_node(
    node: OnnxNode, inputs: list[Any], values: dict[str, Any], context: EvaluationContext, device: Device
) -> Sequence[Any]:
    """The results of one node."""
    while inputs and inputs[-1] is None:
        inputs.pop()
    declared = find(node.domain, node.op_type, context.opsets.get(node.domain, 1))
    if declared is None or (node.domain, node.op_type, node.overload) in context.functions:
        function = function_of(node, inputs, context)
        if function is not None:
            return call_function(node, function, inputs, context, device)
    if declared is None:
        raise OperatorError(f"[onnx] {node}: there is no such operator here")
    try:
        return compute(declared, Call(node, context, values, device), inputs)
    except Dl4allError as error:
        if error.args and not str(error).startswith("[onnx]"):
            error.args = (f"[onnx] {node}: {error}", *error.args[1:])
        raise
    except MemoryError as error:
        raise OutOfMemoryError(f"[onnx] {node}: no memory is left on the host: {error}") from None
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        shapes = ", ".join(str(getattr(value, "shape", type(value).__name__)) for value in inputs)
        raise ShapeError(f"[onnx] {node}: the inputs {shapes} do not fit: {error}") from error


def compute(declared: Operator, call: Call, inputs: list[Any]) -> Sequence[Any]:
    """The results of an operator, on the host if all its inputs are there."""
    known = all(value is None or is_array(value) for value in inputs)
    if declared.on_host is not None and known:
        with np.errstate(all="ignore"):
            result = declared.on_host(call, *inputs)
    else:
        result = declared.compute(call, *inputs)
    return result if isinstance(result, tuple) else (result,)


def function_of(node: OnnxNode, inputs: Sequence[Any], context: EvaluationContext) -> OnnxFunction | None:
    """The function that a node calls: the model's own, or the standard's for these kinds of inputs."""
    own = context.functions.get((node.domain, node.op_type, node.overload))
    if own is not None:
        return own
    return standard_functions.function(node, inputs, context)


def call_standard(
    node: OnnxNode, inputs: list[Any], context: EvaluationContext, device: Device
) -> Sequence[Any]:
    """The results of an operator's body in the standard."""
    while inputs and inputs[-1] is None:
        inputs.pop()
    function = standard_functions.function(node, inputs, context)
    if function is None:
        raise OperatorError(f"[onnx] {node}: this form of it is not supported")
    return call_function(node, function, inputs, context, device)


def call_function(
    node: OnnxNode, function: OnnxFunction, inputs: Sequence[Any], context: EvaluationContext, device: Device
) -> Sequence[Any]:
    """The results of a function's body."""
    given = {**function.defaults, **node.attributes}
    names = [info.name for info in function.body.inputs]
    if len(inputs) > len(names):
        raise ArgumentError(f"[onnx] {node}: expected at most {len(names)} inputs, got {len(inputs)}")
    values: dict[str, Any] = dict.fromkeys(names)
    values.update(zip(names, inputs, strict=False))
    inner = context.within(function.opsets)
    inner.depth = context.depth + 1
    if inner.depth > MOST_NESTED:
        raise ArgumentError(f"[onnx] {node}: functions call each other {MOST_NESTED} deep; one calls itself")
    key = node, function
    if key not in context.bodies:
        context.bodies[key] = function.body.with_attributes(given)
    return evaluate(context.bodies[key], values, inner, device)
