"""Convolutions and pools."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.functions.vision.interpolation import area_taps
from dl4all.onnx.exporter.recording import OpCall
from dl4all.onnx.exporter.writer import GraphWriter, written


def numbers(value: Any, axes: int) -> list[int]:
    return [int(value)] * axes if isinstance(value, int) else [int(n) for n in value]


def windows(call: OpCall, axes: int) -> dict[str, list[int]]:
    """The attributes of windows."""
    given = call.arguments
    padding = given.get("padding", 0)
    if isinstance(padding, str):  # of a convolution by steps of 1
        kernel, dilation = call.operands[1].shape[2:], numbers(given["dilation"], axes)
        total = [d * (k - 1) * (padding == "same") for k, d in zip(kernel, dilation, strict=True)]
        pads = [n // 2 for n in total] + [n - n // 2 for n in total]
    else:
        pads = numbers(padding, axes) * 2
    strides = numbers(given.get("stride") or given.get("kernel_size"), axes)
    attributes = {"strides": strides, "pads": pads}
    if "dilation" in given:
        attributes["dilations"] = numbers(given["dilation"], axes)
    return attributes


@written("conv1d", "conv2d", "conv3d")
def conv(w: GraphWriter, call: OpCall) -> str:
    axes = len(call.operands[0].shape) - 2
    inputs = [w.get(o) for o in call.operands if o is not None]
    return w.add("Conv", inputs, group=int(call.arguments["groups"]), **windows(call, axes))


@written("conv_input")
def conv_transpose(w: GraphWriter, call: OpCall) -> str:
    x, weight = call.operands
    axes = len(x.shape) - 2
    attributes = windows(call, axes)
    extra = []
    for i in range(axes):
        reach = attributes["dilations"][i] * (weight.shape[2 + i] - 1) + 1
        least = (x.shape[2 + i] - 1) * attributes["strides"][i] - 2 * attributes["pads"][i] + reach
        extra.append(int(call.result.shape[2 + i]) - least)
    if any(extra):
        attributes["output_padding"] = extra
    return w.add(
        "ConvTranspose", [w.get(x), w.get(weight)], group=int(call.arguments["groups"]), **attributes
    )


@written("max_pool2d", "avg_pool2d")
def pool(w: GraphWriter, call: OpCall) -> str:
    given, attributes = call.arguments, windows(call, 2)
    attributes["kernel_shape"] = numbers(given["kernel_size"], 2)
    if given.get("divisor_override"):
        raise w.refused("divisor_override has no form")
    op_type, more = "MaxPool", dict[str, Any]()
    if call.name == "avg_pool2d":
        op_type, more["count_include_pad"] = "AveragePool", int(bool(given["count_include_pad"]))
    if given.get("ceil_mode"):
        attributes["pads"][2:] = _reach(w, call, attributes, counted=bool(more.get("count_include_pad")))
    return w.add(op_type, [w.get(call.operands[0])], **attributes, **more)


def _reach(w: GraphWriter, call: OpCall, attributes: dict[str, list[int]], *, counted: bool) -> list[int]:
    """The padding that the last windows reach, as engines differ in the windows of ceil_mode."""
    found = []
    for i, (old, new) in enumerate(zip(call.operands[0].shape[2:], call.result.shape[2:], strict=True)):
        dilation, low = attributes.get("dilations", [1, 1])[i], attributes["pads"][i]
        extent = (attributes["kernel_shape"][i] - 1) * dilation + 1
        high = (new - 1) * attributes["strides"][i] + extent - old - low
        if counted and high > low:
            raise w.refused("a mean with ceil_mode, over windows beyond a padding that counts, has no form")
        found.append(max(high, 0))
    return found


@written("adaptive_avg_pool2d", "adaptive_max_pool2d")
def adaptive_pool(w: GraphWriter, call: OpCall) -> str:
    """A pool over everything, over even windows, or means as products with a matrix for each axis."""
    x, mean = call.operands[0], call.name == "adaptive_avg_pool2d"
    old, new = x.shape[-2:], call.result.shape[-2:]
    if tuple(new) == (1, 1):
        return w.add("GlobalAveragePool" if mean else "GlobalMaxPool", [w.get(x)])
    uneven = any(n % m for n, m in zip(old, new, strict=True))
    if uneven and mean:
        down, across = (w.constant(_means(n, m).astype(x.dtype)) for n, m in zip(old, new, strict=True))
        rows = w.add("MatMul", [down, w.get(x)])
        return w.add("MatMul", [rows, w.add("Transpose", [across], perm=[1, 0])])
    if uneven:
        raise w.refused(f"adaptive pooling of {tuple(old)} to {tuple(new)} has no form")
    size = [n // m for n, m in zip(old, new, strict=True)]
    return w.add("AveragePool" if mean else "MaxPool", [w.get(x)], kernel_shape=size, strides=size)


def _means(old: int, new: int) -> Any:
    """The matrix that takes means of the parts of an axis.

    >>> _means(3, 2).tolist()
    [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]
    """
    matrix = np.zeros((new, old))
    for indices, weights in area_taps(old, new):
        np.add.at(matrix, (np.arange(new), indices), weights)
    return matrix
