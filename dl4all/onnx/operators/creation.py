"""Operators that make tensors of sizes, of numbers, or at random."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dl4all.functions import names as functions
from dl4all.onnx.call import Call
from dl4all.onnx.dtypes import element_dtype
from dl4all.onnx.registry import SAME, operator
from dl4all.tensor import random


@operator("Constant", on_host=SAME)
def constant(call: Call) -> Any:
    """The one attribute that there is."""
    for name, value in call.node.attributes.items():
        if name in ("value", "sparse_value"):
            return call.context.keep(value)
        if name.startswith("value_float"):
            return np.array(value, np.float32)
        if name.startswith("value_int"):
            return np.array(value, np.int64)
    raise call.refuse("a constant of text")


@operator("ConstantOfShape", on_host=SAME, reads=(0,))
def constant_of_shape(call: Call, sizes: Any) -> Any:
    """A view of one number, which takes no memory until it becomes a tensor."""
    value = call.get("value", np.zeros(1, np.float32))
    return np.broadcast_to(value.reshape(()), tuple(call.ints(sizes)))


@operator("Range", on_host=SAME, reads=(0, 1, 2))
def arange(call: Call, start: Any, limit: Any, delta: Any) -> Any:
    first, end, step = (call.number(value) for value in (start, limit, delta))
    count = max(math.ceil((end - first) / step), 0)
    return (first + np.arange(count) * step).astype(start.dtype)


@operator("EyeLike")
def eye_like(call: Call, x: Any) -> Any:
    dtype = element_dtype(call.get("dtype")) if call.get("dtype") else x.dtype
    rows, columns = x.shape
    return np.eye(rows, columns, call.get("k", 0), dtype)


def _random(call: Call, shape: Any, dtype: Any) -> Any:
    """Random numbers of the global generator: seeds of files are for one engine's numbers."""
    normal = "Normal" in call.node.op_type
    made = (random.randn if normal else random.rand)(tuple(shape), device=call.device)
    low, high = call.get("low", 0.0), call.get("high", 1.0)
    mean, scale = call.get("mean", 0.0), call.get("scale", 1.0)
    return (made * scale + mean if normal else made * (high - low) + low).to(dtype)


@operator("RandomNormal", "RandomUniform")
def random_tensor(call: Call) -> Any:
    return _random(call, call.get("shape"), element_dtype(call.get("dtype", 1)))


@operator("RandomNormalLike", "RandomUniformLike")
def random_like(call: Call, x: Any) -> Any:
    dtype = element_dtype(call.get("dtype")) if call.get("dtype") else x.dtype
    return _random(call, x.shape, dtype)


@operator("Multinomial")
def multinomial(call: Call, x: Any) -> Any:
    """Classes drawn by unnormalised log probabilities."""
    weights = functions.softmax(call.tensor(x), dim=-1)
    drawn = random.multinomial(weights, call.get("sample_size", 1), replacement=True)
    return drawn.to(element_dtype(call.get("dtype", 6)))


@operator("Bernoulli")
def bernoulli(call: Call, x: Any) -> Any:
    dtype = element_dtype(call.get("dtype")) if call.get("dtype") else x.dtype
    return random.bernoulli(call.tensor(x)).to(dtype)
