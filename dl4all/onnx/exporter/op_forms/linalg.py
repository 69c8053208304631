"""Products of matrices."""

from __future__ import annotations

from dl4all.onnx.exporter.recording import OpCall
from dl4all.onnx.exporter.writer import GraphWriter, written


@written("matmul", "dot")
def matmul(w: GraphWriter, call: OpCall) -> str:
    return w.add("MatMul", [w.get(o) for o in call.operands])


@written("linear")
def linear(w: GraphWriter, call: OpCall) -> str:
    """A Gemm for matrices; products with a transposed weight for more axes."""
    x, weight, bias = call.operands
    if len(x.shape) == 2:
        return w.add("Gemm", [w.get(o) for o in call.operands if o is not None], transB=1)
    y = w.add("MatMul", [w.get(x), w.add("Transpose", [w.get(weight)], perm=[1, 0])])
    return y if bias is None else w.add("Add", [y, w.get(bias)])
