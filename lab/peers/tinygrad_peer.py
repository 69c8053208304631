"""tinygrad on its WEBGPU device, which is Dawn over Vulkan; steps captured by TinyJit, no kernel search."""

from __future__ import annotations

import importlib
import os
import platform
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lab.peers.cases import Array, Case
from lab.peers.serve import Steps, serve, wanted_device


def load() -> Any:
    """Import tinygrad with Dawn's library and its Vulkan backend."""
    spec = find_spec("pydawn")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("dawn-python is not installed in this environment")
    library = Path(spec.origin).parent / "lib" / f"libwebgpu_dawn_{platform.machine()}.so"
    os.environ |= {"WEBGPU_PATH": str(library), "DEV": "WEBGPU", "WEBGPU_BACKEND": "WGPUBackendType_Vulkan"}
    return importlib.import_module("tinygrad")


def main() -> None:
    tinygrad = load()
    device = tinygrad.Device["WEBGPU"]

    def prepare(case: Case, x: Array, w: Array) -> Steps:
        weights = put(w)

        @tinygrad.TinyJit  # type: ignore[untyped-decorator]
        def step(x: Any) -> Any:
            if case.is_convolution:
                return x.conv2d(weights, padding=1, stride=case.stride).realize()
            return (x @ weights).realize()

        def compute(x: Any) -> Any:
            result = step(x)
            device.synchronize()
            return result

        return Steps(lambda: put(x), compute, lambda y: y.numpy())

    def put(x: Array) -> Any:
        given = tinygrad.Tensor(x, device="WEBGPU").realize()
        device.synchronize()
        return given

    about = f"tinygrad {version('tinygrad')}, dawn-python {version('dawn-python')}"
    serve(about, wanted_device([adapter(device)]), prepare)


def adapter(device: Any) -> str:
    """The name of the device that Dawn chose; it cannot be told which to take."""
    webgpu = importlib.import_module("tinygrad.runtime.autogen.webgpu")
    info = webgpu.WGPUAdapterInfo()
    webgpu.wgpuDeviceGetAdapterInfo(device.device_res, info)
    return str(importlib.import_module("tinygrad.runtime.ops_webgpu").from_wgpu_str(info.device))


if __name__ == "__main__":
    main()
