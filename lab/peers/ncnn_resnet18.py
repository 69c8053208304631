"""ResNet-18 by ncnn with Vulkan compute, all of it in float32.

ncnn's images have no batch dimension, so the images of a batch go one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version

import numpy as np

from lab.peers.cases import Array
from lab.peers.ncnn_peer import chosen, compute, ncnn, network_of
from lab.peers.resnet18 import Weights, blocks, serve_network

RELU = "9=1"


class Description:
    """The lines of ncnn's text format and the weights in their order."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.lines: list[str] = []
        self.data: list[bytes] = []
        self.blobs = 0

    def add(self, kind: str, inputs: tuple[str, ...], options: str = "", outputs: int = 1) -> tuple[str, ...]:
        """Add a layer; the names of what it computes."""
        names = tuple(f"b{self.blobs + i}" for i in range(outputs))
        self.blobs += outputs
        shape = f"{len(inputs)} {outputs}"
        self.lines.append(" ".join((kind, f"n{len(self.lines)}", shape, *inputs, *names, options)))
        return names

    def add_weighted(self, kind: str, x: str, name: str, options: str, size: int) -> str:
        """Add a layer with weight and bias; option number `size` is the weight's size."""
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        self.data += [bytes(4), weight.tobytes(), bias.tobytes()]  # tag 0: plain float32
        (y,) = self.add(kind, (x,), f"0={len(weight)} {options} {size}={weight.size}")
        return y

    def convolution(self, x: str, name: str, stride: int = 1, activation: str = "") -> str:
        kernel = self.weights[f"{name}.weight"].shape[2]
        options = f"1={kernel} 3={stride} 4={kernel // 2} 5=1 {activation}"
        return self.add_weighted("Convolution", x, name, options, 6)

    def text(self) -> str:
        return "\n".join(("7767517", f"{len(self.lines)} {self.blobs}", *self.lines, ""))


def described(weights: Weights) -> tuple[Description, str, str]:
    """The network, and its input's and output's names."""
    net = Description(weights)
    (start,) = net.add("Input", ())
    x = net.convolution(start, "conv1", 2, RELU)
    (x,) = net.add("Pooling", (x,), "0=0 1=3 2=2 3=1 5=1")  # 5=1: the output's size is rounded down
    for name, stride in blocks():
        before, shortcut = net.add("Split", (x,), outputs=2)
        y = net.convolution(before, f"{name}.conv1", stride, RELU)
        y = net.convolution(y, f"{name}.conv2")
        if f"{name}.downsample.0.weight" in weights:
            shortcut = net.convolution(shortcut, f"{name}.downsample.0", stride)
        (x,) = net.add("BinaryOp", (y, shortcut), "0=0")
        (x,) = net.add("ReLU", (x,))
    (x,) = net.add("Pooling", (x,), "0=1 4=1")
    return net, start, net.add_weighted("InnerProduct", x, "fc", "1=1", 2)


def prepare(weights: Weights, images: Array) -> Callable[[], Array]:
    description, start, end = described(weights)
    net = network_of(description.text(), b"".join(description.data))
    return lambda: np.stack([np.array(compute(net, image, start, end)) for image in images])


if __name__ == "__main__":
    ncnn.create_gpu_instance()
    serve_network(f"ncnn {version('ncnn')}", ncnn.get_gpu_info(chosen()).device_name(), prepare)
