"""Products of matrices."""

from __future__ import annotations

from typing import Any

from dl4all.functions import names as functions
from dl4all.nn import functional as F
from dl4all.onnx.call import Call
from dl4all.onnx.registry import operator


@operator("MatMul")
def matmul(call: Call, x: Any, y: Any) -> Any:
    x, y = call.tensors(x, y)
    return functions.matmul(x, y)


@operator("Gemm")
def gemm(call: Call, x: Any, y: Any, bias: Any = None) -> Any:
    """``alpha * x @ y + beta * bias``; a linear layer where the file has one."""
    x, y = call.tensors(x, y)
    x, y = x.T if call.flag("transA") else x, y if call.flag("transB") else y.T  # y's rows are features now
    alpha, beta = call.get("alpha", 1.0), call.get("beta", 1.0)
    if bias is not None and alpha == beta == 1 and tuple(bias.shape) == (y.shape[0],):
        return F.linear(x, y, call.tensor(bias))
    product = F.linear(x, y)
    product = product if alpha == 1 else product * alpha
    if bias is None or beta == 0:
        return product.to(x.dtype)
    bias = call.tensor(bias)
    return (product + (bias if beta == 1 else bias * beta)).to(x.dtype)


@operator("Einsum")
def einsum(call: Call, *operands: Any) -> Any:
    return functions.einsum(call.get("equation"), *call.tensors(*operands))
