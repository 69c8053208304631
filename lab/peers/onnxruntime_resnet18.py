"""ResNet-18 by ONNX Runtime on the processor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lab.peers.cases import Array
from lab.peers.onnxruntime_peer import ABOUT, DEVICE, onnx, session
from lab.peers.resnet18 import CLASSES, Weights, blocks, serve_network


def network(weights: Weights) -> list[Any]:
    """The nodes from `x` to `y`."""
    nodes: list[Any] = []

    def add(kind: str, *inputs: str, **options: Any) -> str:
        result = f"t{len(nodes)}"
        nodes.append(onnx.helper.make_node(kind, inputs, [result], **options))
        return result

    def convolution(x: str, name: str, stride: int = 1) -> str:
        kernel = weights[f"{name}.weight"].shape[2]
        options = {"strides": [stride] * 2, "pads": [kernel // 2] * 4}
        return add("Conv", x, f"{name}.weight", f"{name}.bias", **options)

    x = add("Relu", convolution("x", "conv1", 2))
    x = add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for name, stride in blocks():
        y = convolution(add("Relu", convolution(x, f"{name}.conv1", stride)), f"{name}.conv2")
        if f"{name}.downsample.0.weight" in weights:
            x = convolution(x, f"{name}.downsample.0", stride)
        x = add("Relu", add("Add", y, x))
    x = add("Flatten", add("GlobalAveragePool", x))
    nodes.append(onnx.helper.make_node("Gemm", [x, "fc.weight", "fc.bias"], ["y"], transB=1))
    return nodes


def prepare(weights: Weights, images: Array) -> Callable[[], Array]:
    run = session(network(weights), weights, images.shape, (len(images), CLASSES))
    return lambda: run(images)


if __name__ == "__main__":
    serve_network(ABOUT, DEVICE, prepare)
