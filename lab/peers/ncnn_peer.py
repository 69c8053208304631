"""ncnn with Vulkan compute, float32 throughout, its winograd convolutions on.

A product of matrices is a convolution with kernel 1, as ncnn's MatMul layer runs on the processor without a
word: its channels are the summed dimension, so both operands and the answer are transposed.
Python has no access to ncnn's device memory, so both copies are within ``compute``.
"""

from __future__ import annotations

import importlib
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from lab.peers.cases import Array, Case
from lab.peers.serve import Steps, serve, wanted_device

ncnn: Any = importlib.import_module("ncnn")  # in this peer's environment only
ALIGNMENT = 16  # bytes, of a channel in ncnn's memory


def prepare(case: Case, x: Array, w: Array) -> Steps:
    if case.is_convolution:
        net = network(w, f"1=3 3={case.stride} 4=1")
        return Steps(lambda: x[0], lambda x: compute(net, x), lambda y: np.array(y)[None], separate=False)
    net = network(w.T, "1=1")
    columns = np.ascontiguousarray(x.T)[:, None, :]
    return Steps(lambda: columns, lambda x: compute(net, x), lambda y: np.array(y)[:, 0].T, separate=False)


def network(w: Array, parameters: str) -> Any:
    """One convolution without bias."""
    layer = f"Convolution c 1 1 x y 0={len(w)} {parameters} 5=0 6={w.size}"
    weights = bytes(4) + np.ascontiguousarray(w).tobytes()  # tag 0: plain float32
    return network_of(f"7767517\n2 2\nInput i 0 1 x\n{layer}\n", weights)


def network_of(description: str, weights: bytes) -> Any:
    """A network in ncnn's own format, with all of its work on the wanted device."""
    net = ncnn.Net()
    for name in dir(net.opt):
        if name.startswith(("use_fp16", "use_bf16", "use_int8")):
            setattr(net.opt, name, False)
    net.opt.use_vulkan_compute = True
    net.set_vulkan_device(chosen())
    check(net.load_param_mem(description), "load_param_mem")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "weights.bin")
        file.write_bytes(weights)
        check(net.load_model(str(file)), "load_model")
    elsewhere = {layer.type for layer in net.layers() if not layer.support_vulkan} - {"Input"}
    if elsewhere:
        raise RuntimeError(f"ncnn would run {', '.join(sorted(elsewhere))} on the processor")
    return net


def compute(net: Any, x: Array, start: str = "x", end: str = "y") -> Any:
    given = ncnn.Mat(x)
    if x[0].nbytes % ALIGNMENT:
        given = given.clone()  # with the gaps between channels that ncnn's kernels count on
    extractor = net.create_extractor()
    check(extractor.input(start, given), "input")
    status, result = extractor.extract(end)
    check(status, "extract")
    return result


def check(status: int, what: str) -> None:
    if status != 0:
        raise RuntimeError(f"ncnn's {what} returned {status}")


def chosen() -> int:
    """The number of the wanted device."""
    names = [ncnn.get_gpu_info(i).device_name() for i in range(ncnn.get_gpu_count())]
    return names.index(wanted_device(names))


if __name__ == "__main__":
    ncnn.create_gpu_instance()
    serve(f"ncnn {version('ncnn')}", ncnn.get_gpu_info(chosen()).device_name(), prepare)
