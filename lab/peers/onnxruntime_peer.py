"""ONNX Runtime on the processor, with as many threads as OMP_NUM_THREADS says, or as there are cores."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np

from lab.peers.cases import Array, Case
from lab.peers.serve import Steps, serve

onnx: Any = importlib.import_module("onnx")  # in this peer's environment only, like the next one
onnxruntime: Any = importlib.import_module("onnxruntime")

OPSET, FORMAT = 17, 8
ABOUT = f"ONNX Runtime {version('onnxruntime')}"
DEVICE = "processor"


def prepare(case: Case, x: Array, w: Array) -> Steps:
    options = {"pads": [1, 1, 1, 1], "strides": [case.stride] * 2} if case.is_convolution else {}
    kind = "Conv" if case.is_convolution else "MatMul"
    node = onnx.helper.make_node(kind, ["x", "w"], ["y"], **options)
    run = session([node], {"w": w}, case.x, case.output)
    return Steps(lambda: x, run, lambda y: y)


def session(
    nodes: list[Any], weights: dict[str, Array], given: tuple[int, ...], result: tuple[int, ...]
) -> Callable[[Array], Array]:
    """A function that runs nodes from `x` to `y`, of these shapes."""
    helper, float32 = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", float32, given)],
        [helper.make_tensor_value_info("y", float32, result)],
        [onnx.numpy_helper.from_array(np.ascontiguousarray(w), name) for name, w in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=FORMAT)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS") or 0)  # 0: one for each core
    runner = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )

    def run(x: Array) -> Array:
        return np.asarray(runner.run(["y"], {"x": x})[0])

    return run


if __name__ == "__main__":
    serve(ABOUT, DEVICE, prepare)
