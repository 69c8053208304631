"""IREE, compiled for Vulkan at its highest optimization level."""

from __future__ import annotations

import importlib
from importlib.metadata import version
from typing import Any

import numpy as np

from lab.peers.cases import Array, Case
from lab.peers.serve import Steps, serve, wanted_device

compiler: Any = importlib.import_module("iree.compiler")  # in this peer's environment only
runtime: Any = importlib.import_module("iree.runtime")

OPTIONS = ["--iree-opt-level=O3"]  # O0 and O1 were slower on llvmpipe

PRODUCT = """
func.func @main(%x: {x}, %w: {w}) -> {y} {{
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : {y}
  %start = linalg.fill ins(%zero : f32) outs(%empty : {y}) -> {y}
  %y = linalg.matmul ins(%x, %w : {x}, {w}) outs(%start : {y}) -> {y}
  return %y : {y}
}}
"""
CONVOLUTION = """
func.func @main(%x: {x}, %w: {w}) -> {y} {{
  %zero = arith.constant 0.0 : f32
  %padded = tensor.pad %x low[0, 0, 1, 1] high[0, 0, 1, 1] {{
  ^bb0(%n: index, %c: index, %h: index, %v: index):
    tensor.yield %zero : f32
  }} : {x} to {padded}
  %empty = tensor.empty() : {y}
  %start = linalg.fill ins(%zero : f32) outs(%empty : {y}) -> {y}
  %y = linalg.conv_2d_nchw_fchw
    {{dilations = dense<1> : tensor<2xi64>, strides = dense<{stride}> : tensor<2xi64>}}
    ins(%padded, %w : {padded}, {w}) outs(%start : {y}) -> {y}
  return %y : {y}
}}
"""


def main() -> None:
    driver = runtime.get_driver("vulkan")
    devices = driver.query_available_devices()
    name = wanted_device([device["name"] for device in devices])
    device = driver.create_device(next(d["device_id"] for d in devices if d["name"] == name))
    config = runtime.Config(device=device)

    def prepare(case: Case, x: Array, w: Array) -> Steps:
        context = runtime.SystemContext(config=config)
        code = compiler.compile_str(source(case), target_backends=["vulkan-spirv"], extra_args=OPTIONS)
        context.add_vm_module(runtime.VmModule.copy_buffer(context.instance, code))
        function = context.modules.module.main
        weights = runtime.asdevicearray(device, w)
        return Steps(
            lambda: runtime.asdevicearray(device, x),
            lambda x: function(x, weights),  # returns when its fence was signalled
            lambda y: download(device, y),
        )

    serve(f"iree-base-compiler {version('iree-base-compiler')}", name, prepare)


def source(case: Case) -> str:
    def tensor(shape: tuple[int, ...]) -> str:
        return f"tensor<{'x'.join(map(str, shape))}xf32>"

    types = {"x": tensor(case.x), "w": tensor(case.w), "y": tensor(case.output)}
    if not case.is_convolution:
        return PRODUCT.format(**types)
    padded = tensor((*case.x[:2], case.x[2] + 2, case.x[3] + 2))
    return CONVOLUTION.format(**types, padded=padded, stride=case.stride)


def download(device: Any, result: Any) -> Array:
    """Copy through a staging buffer: DeviceArray.to_host fails where Vulkan imports whole pages only."""
    view = result._buffer_view
    kept = view.get_buffer()
    kind, usage = runtime.MemoryType, runtime.BufferUsage
    staging = device.allocator.allocate_buffer(
        memory_type=kind.HOST_LOCAL | kind.DEVICE_VISIBLE,
        allowed_usage=usage.TRANSFER_TARGET | usage.MAPPING_SCOPED,
        allocation_size=kept.byte_length(),
    )
    done = device.create_semaphore(0)
    device.queue_copy(
        kept,
        staging,
        wait_semaphores=runtime.HalFence.create_at(done, 0),
        signal_semaphores=runtime.HalFence.create_at(done, 1),
    )
    runtime.HalFence.create_at(done, 1).wait()
    return np.array(staging.map().asarray(view.shape, np.dtype(np.float32)))


if __name__ == "__main__":
    main()
