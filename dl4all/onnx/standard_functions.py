"""Operators that the standard writes as a graph of others, for those without a declaration here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dl4all.onnx.call import EvaluationContext
from dl4all.onnx.dtypes import protobuf
from dl4all.onnx.graph import OnnxFunction, OnnxNode
from dl4all.onnx.model_file import reader_of_standard


def is_standard(domain: str, name: str, opset: int) -> bool:
    """Whether the standard has a body for an operator."""
    schema = _schema(domain, name, opset)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def _schema(domain: str, name: str, opset: int) -> Any:
    onnx = protobuf()
    try:
        return onnx.defs.get_schema(name, opset, domain)
    except onnx.defs.SchemaError:
        return None


def function(node: OnnxNode, inputs: Sequence[Any], context: EvaluationContext) -> OnnxFunction | None:
    """The body of an operator for inputs of these dtypes and shapes; None if there is none."""
    kinds = tuple(
        (str(value.dtype), tuple(value.shape)) if hasattr(value, "dtype") else None for value in inputs
    )
    key = node, kinds
    if key not in context.expanded:
        context.expanded[key] = _expanded(node, inputs, context.opsets.get(node.domain, 1))
    return context.expanded[key]


def _expanded(node: OnnxNode, inputs: Sequence[Any], opset: int) -> OnnxFunction | None:
    onnx = protobuf()
    schema = _schema(node.domain, node.op_type, opset)
    if schema is None or (node.graphs and schema.has_context_dependent_function):
        return None
    if schema.has_context_dependent_function:
        names = ["" if value is None else name for name, value in zip(node.inputs, inputs, strict=False)]
        proto = onnx.helper.make_node(
            node.op_type, names, node.outputs, domain=node.domain, **node.attributes
        )
        types = [_type(onnx, value).SerializeToString() for value in inputs]
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
        body = schema.get_context_dependent_function_with_opset_version(
            max(versions), proto.SerializeToString(), types
        )
        if not body:
            return None
        return reader_of_standard().function(onnx.FunctionProto.FromString(body), partial=True)
    if schema.has_function:
        found = reader_of_standard().function(schema.function_body, partial=True)
        return replace(found, defaults=_defaults(schema))
    return None


def _defaults(schema: Any) -> dict[str, Any]:
    """The values of attributes that a node leaves out."""
    reader = reader_of_standard()
    given = ((name, one.default_value) for name, one in schema.attributes.items())
    return {name: reader.attribute(value, frozenset()) for name, value in given if value.type}


def _type(onnx: Any, value: Any) -> Any:
    if not hasattr(value, "dtype"):
        return onnx.TypeProto()
    number = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
    return onnx.helper.make_tensor_type_proto(number, tuple(value.shape))
