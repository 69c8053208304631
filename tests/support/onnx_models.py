"""ONNX models of a few nodes, and ONNX Runtime's results of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from dl4all import Tensor

NDArray = npt.NDArray[Any]


def node(op_type: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """A node; names are words, and ``-`` is none.

    >>> list(node("Clip", "x - high", "y").input)
    ['x', '', 'high']
    """
    before, after = ([name.strip("-") for name in text.split()] for text in (inputs, outputs))
    return helper.make_node(op_type, before, after, **attributes)


def value(name: str, dtype: Any = np.float32, shape: Sequence[Any] | None = None) -> onnx.ValueInfoProto:
    number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return helper.make_tensor_value_info(name, number, shape)


def graph(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: Mapping[str, NDArray] | None = None,
) -> onnx.GraphProto:
    arrays = [numpy_helper.from_array(np.asarray(a), name) for name, a in (weights or {}).items()]
    return helper.make_graph(list(nodes), "test", list(inputs), list(outputs), arrays)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: Mapping[str, NDArray] | None = None,
    opset: int = 18,
    **options: Any,
) -> onnx.ModelProto:
    whole = graph(nodes, inputs, outputs, weights)
    opsets = [helper.make_opsetid("", opset), *options.pop("opsets", [])]
    return helper.make_model(whole, opset_imports=opsets, ir_version=10, **options)


def reference(content: bytes, inputs: Mapping[str, Any]) -> list[NDArray]:
    """The results of ONNX Runtime on the CPU."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(inputs)))


def array(value: Any) -> NDArray:
    """A result on the host."""
    return value.detach().numpy() if isinstance(value, Tensor) else np.asarray(value)


def error(got: Any, wanted: NDArray) -> float:
    """The largest difference, relative to the largest element."""
    assert tuple(got.shape) == wanted.shape, (got.shape, wanted.shape)
    scale = float(np.abs(wanted).max(initial=0.0)) or 1.0
    return float(np.abs(array(got).astype(np.float64) - wanted).max(initial=0.0)) / scale
