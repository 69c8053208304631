"""IREE as the compiler of a module: ``dl.compile(module, backend="iree")``.

A module is written as ONNX, which IREE's importer reads. IREE makes code of it for the processor
(``llvm-cpu``) or SPIR-V (``vulkan-spirv``), and runs that with its own runtime: its kernels can be compared
with ours.
"""

from __future__ import annotations

import functools
import importlib
import operator
import tempfile
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dl4all.errors import ArgumentError, BackendMissingError, GradientError, GraphError
from dl4all.graph.tracing.guards import Guards, Wrapper
from dl4all.lazy_names import install_command
from dl4all.nn.module import Module
from dl4all.onnx.exporter.export import export
from dl4all.ops.core import tape
from dl4all.ops.core.tensor_base import TensorBase, from_host
from dl4all.scheduler.device.device import Device

OPTIONS = {
    "llvm-cpu": ["--iree-llvmcpu-target-cpu=host"],
    "vulkan-spirv": ["--iree-opt-level=O3"],  # lower levels were slower on llvmpipe
}
NEWEST_OPSET = 18  # of the importer's operators


class IreeModule(Wrapper):
    """A module that IREE has compiled, once for each device and shapes of its arguments.

    Attributes that it does not have itself are the module's. Weights are part of the code, which is made anew
    when an op has changed them; what NumPy writes into their memory is not seen. It computes results only: no
    gradients flow through it.
    """

    def __init__(self, module: Callable[..., Any]) -> None:
        if not isinstance(module, Module):
            if Guards({"the function": module}).tensors:
                raise ArgumentError(
                    "[compile] backend='iree' takes a module, or a function that sees no tensors but its "
                    "arguments; make a module of it that has them as parameters or buffers"
                )
            module = _FunctionModule(module)
        self._module = module
        self._made: dict[Hashable, _Made] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_module"), name)

    def __repr__(self) -> str:
        return f"iree({self._module!r})"

    def wrapped(self) -> Any:
        return self._module

    def __call__(self, *tensors: Any) -> Any:
        """The module's result: a tensor, or a tuple of tensors.

        Raises:
            GradientError: gradients are wanted.
            GraphError: the module cannot be written as ONNX, or IREE does not compile it.
            ArgumentError: an argument is no tensor, or the device is none of IREE's.
            BackendMissingError: IREE is not installed.
        """
        if not tensors or not all(isinstance(tensor, TensorBase) for tensor in tensors):
            raise ArgumentError("[compile] backend='iree' takes tensors as arguments, and at least one")
        device = tensors[0].device
        key = (device, *((tensor.shape, tensor.dtype, tensor.device) for tensor in tensors))
        made = self._made.get(key)
        if made is not None and not made.holds():
            made = None
        guards = Guards({"the module": self._module}) if made is None else made.guards
        if tape.state.enabled and any(tensor.requires_grad for tensor in (*guards.tensors, *tensors)):
            raise GradientError(
                "[compile] backend='iree' computes no gradients; call it within dl.no_grad(), or compile "
                "the module without it"
            )
        if made is None:
            versions = tuple(tensor.storage.version for tensor in guards.tensors)
            made = self._made[key] = _Made(guards, versions, compiled(self._module, tensors))
        results = made.run([tensor.on_host() for tensor in tensors])
        outputs = [from_host(type(tensors[0]).result_class, array, device, copy=True) for array in results]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)


class _Made(NamedTuple):
    """Compiled code, and the state of the module that it is for."""

    guards: Guards
    versions: tuple[int, ...]
    run: Callable[[Sequence[Any]], list[Any]]

    def holds(self) -> bool:
        present = (tensor.storage.version for tensor in self.guards.tensors)
        return self.guards.holds() and all(map(operator.eq, present, self.versions))


class _FunctionModule(Module):
    """A function as a module without weights."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.eval()

    def forward(self, *tensors: Any) -> Any:
        return self.function(*tensors)


def compiled(module: Module, tensors: Sequence[Any]) -> Callable[[Sequence[Any]], list[Any]]:
    """A function of arrays that computes what a module does, for tensors of these shapes, dtypes and device.

    Raises:
        GraphError, ArgumentError, BackendMissingError: see :meth:`IreeModule.__call__`.
    """
    compiler, runtime = _package("compiler"), _package("runtime")
    importer = importlib.import_module("iree.compiler.tools.import_onnx.__main__")
    device = tensors[0].device
    target, driver, number = _target(runtime, device)
    with tempfile.TemporaryDirectory(prefix="dl4all-") as folder:
        file, text = Path(folder) / "module.onnx", Path(folder) / "module.mlir"
        export(module, tuple(tensors), file, opset_version=NEWEST_OPSET)
        importer.main(importer.parse_arguments([str(file), "-o", str(text)]))
        try:
            code = compiler.compile_file(
                str(text), target_backends=[target], input_type="onnx", extra_args=OPTIONS[target]
            )
        except compiler.CompilerToolError as error:
            lines = [line for line in str(error).splitlines() if "error:" in line]
            raise GraphError(f"[compile] IREE does not compile {type(module).__name__}: {lines[0]}") from None
    opened = driver.create_device(number)
    context = runtime.SystemContext(config=runtime.Config(device=opened))
    context.add_vm_module(runtime.VmModule.copy_buffer(context.instance, code))
    loaded = next(one for name, one in context.modules.items() if name != "hal")
    names = [
        n for n in loaded.vm_module.function_names if not n.startswith("__") and not n.endswith("$async")
    ]
    function = loaded[names[0]]

    def run(arrays: Sequence[Any]) -> list[Any]:
        results = function(*[np.ascontiguousarray(array) for array in arrays])
        several = isinstance(results, (tuple, list))
        return [_downloaded(runtime, opened, one) for one in (results if several else (results,))]

    return run


def _target(runtime: Any, device: Device) -> tuple[str, Any, Any]:
    """The target that IREE compiles for, its driver, and the number that the device has there.

    Raises:
        ArgumentError: it has none.
    """
    if device.is_cpu:
        driver = runtime.get_driver("local-task")
        return "llvm-cpu", driver, driver.query_available_devices()[0]["device_id"]
    if device.name.partition(":")[0] not in ("vulkan", "kompute"):
        raise ArgumentError(
            f"[compile] backend='iree' computes on the CPU and on Vulkan devices, got {device}"
        )
    driver = runtime.get_driver("vulkan")
    found = driver.query_available_devices()
    for one in found:
        if one["name"].startswith(device.info.hardware):
            return "vulkan-spirv", driver, one["device_id"]
    names = ", ".join(one["name"] for one in found) or "none"
    raise ArgumentError(f"[compile] IREE finds no device called {device.info.hardware}; it finds {names}")


def _downloaded(runtime: Any, device: Any, result: Any) -> Any:
    """A result as an array, by a staging buffer: IREE's own copy needs memory in whole pages."""
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
    return np.array(staging.map().asarray(view.shape, np.dtype(result.dtype)))


@functools.cache
def _package(name: str) -> Any:
    """
    Raises:
        BackendMissingError: IREE is not installed.
    """
    try:
        return importlib.import_module(f"iree.{name}")
    except ImportError as error:
        raise BackendMissingError(
            f"[compile] backend='iree' needs IREE's wheels ({error}): {install_command('iree')}"
        ) from None
