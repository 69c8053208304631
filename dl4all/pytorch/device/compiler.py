"""The backend ``dl4all`` of ``torch.compile``.

AOTAutograd makes of what Dynamo has traced a forward and a backward graph, or one for inference, of the ATen
ops that ``dlall`` has kernels for; each of them becomes a
:class:`~dl4all.pytorch.device.graphs.call.GraphCall`.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import default_partition
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.export.passes import move_to_device_pass
from torch.nn.attention import SDPBackend, sdpa_kernel

from dl4all.errors import ArgumentError
from dl4all.graph.run.compiled import Mode
from dl4all.pytorch.device import devices
from dl4all.pytorch.device.devices import NAME
from dl4all.pytorch.device.dispatch.host_operands import HostOperands
from dl4all.pytorch.device.dispatch.registration import KERNELS
from dl4all.pytorch.device.graphs.call import GraphCall, constants
from dl4all.pytorch.device.graphs.layouts import keep_layouts
from dl4all.pytorch.device.storage import memory
from dl4all.pytorch.device.storage.memory import torch_device

MODES: dict[str | None, Mode] = {
    None: "default",
    "default": "default",
    "reduce-overhead": "reduce-overhead",
    "max-autotune": "max-autotune",
    "max-autotune-no-cudagraphs": "max-autotune",
}
"""Modes of ``torch.compile``, and those of :func:`dl4all.compile`."""

CPU_ONLY = ("_scaled_dot_product_flash_attention_for_cpu",)
"""Ops of which PyTorch would rewrite the forward part only, which makes gradients wrong."""

calls: weakref.WeakSet[GraphCall] = weakref.WeakSet()
"""All graphs that were compiled and are still in use."""

_numbers = itertools.count()


def backend(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile a graph of Dynamo's; ``torch.compile(model, backend="dl4all")`` calls it.

    Args:
        module: the graph.
        inputs: examples of its arguments.
        mode: ``"default"``, ``"reduce-overhead"`` or ``"max-autotune"``, as of :func:`dl4all.compile`.
        options: there are none.

    Raises:
        ArgumentError: there is no such mode or option.

    Example:
        >>> import torch
        >>> from dl4all.torch.compiler import backend
        >>> model = torch.compile(torch.nn.Linear(4, 2), backend=backend)
        >>> model(torch.randn(3, 4)).shape
        torch.Size([3, 2])
    """
    if mode not in MODES:
        known = ", ".join(repr(name) for name in MODES if name is not None)
        raise ArgumentError(f"[torch.compile] expected a mode of {known}, got {mode!r}")
    if options:
        raise ArgumentError(f"[torch.compile] the backend dl4all has no options, got {', '.join(options)}")
    number = next(_numbers)

    def compiler(part: str) -> Callable[..., Callable[[list[Any]], list[Any]]]:
        return functools.partial(_graph_call, name=f"{part} graph {number}", mode=MODES[mode], part=part)

    compile_graph = aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        decompositions=decompositions(),
        partition_fn=default_partition,
        keep_inference_input_mutations=True,
    )
    with _portable_ops():
        return compile_graph(module, inputs)


def compile_exported(
    program: torch.export.ExportedProgram, device: torch.device | str = NAME, mode: str | None = None
) -> Callable[..., Any]:
    """Compile a program of ``torch.export``, with its parameters on a device.

    Args:
        program: from ``torch.export.export`` or ``torch.export.load``; it stays as it is.
        device: where the parameters go, and arguments are expected.
        mode: as of :func:`backend`.

    Returns:
        A module that takes what the exported one took.

    Example:
        >>> import torch
        >>> from dl4all.torch.compiler import compile_exported
        >>> program = torch.export.export(torch.nn.Linear(4, 2), (torch.randn(3, 4),))
        >>> compile_exported(program)(torch.randn(3, 4, device="dlall")).shape
        torch.Size([3, 2])
    """
    moved = move_to_device_pass(program, torch.device(device))
    compiled: Callable[..., Any] = torch.compile(moved.module(), backend=backend, mode=mode)
    return compiled


def _reset() -> None:
    """Free what was compiled; ``torch._dynamo.reset()`` calls it."""
    for call in tuple(calls):
        call.reset()


backend.reset = _reset  # type: ignore[attr-defined]


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """PyTorch's rewritings of those ops that have no kernel on ``dlall``."""

    def needed(op: Any) -> bool:
        name = f"{op._opname}" + ("" if op._overloadname == "default" else f".{op._overloadname}")
        composite = torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeExplicitAutograd")
        return name not in KERNELS and not composite and op._opname not in CPU_ONLY

    return {
        op: rewriting
        for op, rewriting in core_aten_decompositions().items()
        if isinstance(op, torch._ops.OpOverload) and op.namespace == "aten" and needed(op)
    }


@contextlib.contextmanager
def _portable_ops() -> Iterator[None]:
    """Within the ``with`` block models on the CPU are traced without ops that only the CPU has."""
    mkldnn = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch._C._set_mkldnn_enabled(mkldnn)


def _graph_call(
    module: torch.fx.GraphModule, inputs: Sequence[Any], *, name: str, mode: Mode, part: str
) -> Callable[[list[Any]], list[Any]]:
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    [returned] = [node for node in module.graph.nodes if node.op == "output"]
    results = list(returned.args[0])
    index = _index(placeholders)
    metadata = TracingContext.get().fw_metadata
    parameters = tuple(metadata.static_input_indices) if metadata is not None and part != "backward" else ()
    visible = len(results)
    if part == "forward" and metadata is not None:
        visible = metadata.num_forward  # what is saved for the backward graph stays on the device
    host = HostOperands(
        index,
        parameters,
        [at for at, node in enumerate(placeholders) if _is_changed(node)],
        [at for at, result in enumerate(results[:visible]) if _device_type(result) == "cpu"],
    )
    _move(module, index)
    keep_layouts(module)
    call = GraphCall(module, name, mode, host, parameters if part == "inference" else ())
    calls.add(call)

    def boxed(arguments: list[Any]) -> list[Any]:
        return call(arguments)

    boxed._boxed_call = True  # type: ignore[attr-defined]  # arguments come in a list that the call empties
    return boxed


def _device_type(node: Any) -> str:
    """The device type of a node's tensor; None if it is none."""
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return value.device.type if isinstance(value, torch.Tensor) else ""


def _index(placeholders: Sequence[torch.fx.Node]) -> int:
    """The device of a graph: that of its first argument on one, else the current one."""
    for node in placeholders:
        if _device_type(node) == NAME:
            return int(node.meta["val"].device.index or 0)
    return devices.current()


def _is_changed(node: torch.fx.Node) -> bool:
    """Whether an op of the graph writes to this argument."""
    for user in node.users:
        schema = getattr(user.target, "_schema", None)
        for argument, value in zip(schema.arguments, user.args, strict=False) if schema is not None else ():
            written = argument.alias_info is not None and argument.alias_info.is_write
            if written and (value is node or (isinstance(value, (list, tuple)) and node in value)):
                return True
    return False


def _move(module: torch.fx.GraphModule, index: int) -> None:
    """Let ops that name the CPU name the device instead: all of a graph's arguments are there.

    Its own tensors go there, too, but for those without axes, which are read as numbers.
    """
    for name, value in constants(module).items():
        if value.device.type == "cpu" and value.dim():
            with unset_fake_temporarily():
                setattr(module, name, memory.upload(value, index))
    for node in module.graph.nodes:
        for name, value in node.kwargs.items():
            if isinstance(value, torch.device) and value.type == "cpu":
                node.update_kwarg(name, torch_device(index))
    module.recompile()
