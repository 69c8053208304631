"""ONNX models as modules."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from dl4all.errors import ArgumentError, DTypeError, OperatorError, ShapeError
from dl4all.graph.run.compiled import compile
from dl4all.nn.module import Module
from dl4all.nn.parameter import Parameter
from dl4all.onnx.call import is_array
from dl4all.onnx.dtypes import held
from dl4all.onnx.evaluation import evaluate, new_context
from dl4all.onnx.graph import NDArray, OnnxGraph, OnnxModel, ValueInfo
from dl4all.onnx.graph_simplification import folded, wanted_on_host
from dl4all.onnx.model_file import read_model
from dl4all.onnx.support import missing_operators
from dl4all.ops.core.dtypes import KINDS, kind_of
from dl4all.scheduler.device.current import device as open_device
from dl4all.scheduler.device.device import Device
from dl4all.tensor.arguments import DeviceLike, device_and_dtype
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor

MOST_ITERATIONS = 100_000
"""Turns of one loop, unless :func:`load` is told otherwise."""


MOST_COMPARED = 1 << 12
"""Bytes of an input on the host by which calls are told apart; with a larger one they run uncompiled."""


class OnnxModule(Module):
    """A model of an ONNX file; made by :func:`load`.

    Called with inputs in their order or by name, it returns a tensor, or a tuple in the outputs' order.
    Initializers of floats are parameters under their names, others are buffers. A call goes through
    :func:`dl4all.compile`, once for each combination of shapes, unless the model's work depends on elements.

    Attributes:
        graph: its :class:`~dl4all.onnx.graph.OnnxGraph` after folding.
        input_names, output_names: in their order.
        compiles: whether calls go through :func:`dl4all.compile`; True unless set otherwise.

    Example:
        >>> import dl4all as dl
        >>> issubclass(dl.onnx.OnnxModule, dl.nn.Module)
        True
    """

    graph: OnnxGraph

    def __init__(self, model: OnnxModel, device: Device, max_iterations: int = MOST_ITERATIONS) -> None:
        super().__init__()
        graph, constants = folded(model)
        self.graph = graph.with_nodes(graph.nodes, {})  # whose initializers become members
        self.input_names = tuple(info.name for info in graph.arguments)
        self._input_set = frozenset(self.input_names)
        self.output_names = tuple(info.name for info in graph.outputs)
        # Beside the context, so that a compiled call sees what it replays.
        self._uploaded: dict[tuple[int, Device], Tensor] = {}
        self._context = new_context(model.opsets, model.functions, max_iterations, self._uploaded)
        self._on_host = wanted_on_host(graph, model.opsets)
        self._constants: dict[str, NDArray] = {}
        self._members: dict[str, tuple[Module, str]] = {}
        self._device = device
        self._hold({**constants, **graph.initializers}, {*constants})
        self._called, self.compiles = False, True
        self._compiled = compile(self._traced)

    def _hold(self, arrays: Mapping[str, NDArray], constants: set[str]) -> None:
        """Keep numbers on the host where they are wanted there, and all others on the device."""
        for name, array in arrays.items():
            kind = kind_of(held(array.dtype))
            small = array.ndim == 0 or (kind != "f" and array.nbytes <= 1 << 15)
            if small or name in self._on_host or held(array.dtype) not in KINDS:
                self._constants[name] = self._context.keep(array)
                continue
            tensor = from_numpy(np.array(array, held(array.dtype))).to(self._device)
            holder, member = self._member(name)
            if kind == "f" and name not in constants:
                holder.register_parameter(member, Parameter(tensor))
            else:
                holder.register_buffer(member, tensor)
            self._members[name] = holder, member

    def _member(self, name: str) -> tuple[Module, str]:
        """The module and the member's name for a name with dots, as in PyTorch's state dicts."""
        *folders, last = name.split(".")
        holder: Module = self
        for folder in folders:
            inner = holder._modules.get(folder)
            if inner is None:
                if not folder or hasattr(holder, folder):
                    return self, name.replace(".", "_")
                inner = Module()
                holder.add_module(folder, inner)
            holder = inner
        if not last or hasattr(holder, last):
            return self, name.replace(".", "_") + "_"
        return holder, last

    @property
    def device(self) -> Device:
        """The device of its tensors."""
        held = next(iter(self._members.values()), None)
        return self._device if held is None else getattr(*held).device

    @property
    def waits(self) -> list[str]:
        """The operators that have waited for elements; if there are any, calls are not compiled."""
        return list(self._context.waits)

    def to(self, *args: Any, **kwargs: Any) -> OnnxModule:
        super().to(*args, **kwargs)
        moved, _ = device_and_dtype(args, kwargs.get("device"), kwargs.get("dtype"))
        self._device = moved or self._device
        self._uploaded.clear()
        return self

    def _on_replica(self, device: Device) -> None:
        self._device = device
        self._uploaded = {}
        self._context = self._context.copied(self._uploaded)
        self._compiled = compile(self._traced)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """The outputs for inputs.

        Args:
            *inputs: tensors or NumPy arrays in the order of ``input_names``; lists for sequences.
            **named: inputs by their names.

        Returns:
            A tensor, or a tuple of tensors in the order of ``output_names``.

        Raises:
            ArgumentError: an input is missing, or there is none of a name.
            DTypeError, ShapeError: an input is not what the file declares.
        """
        given = self._bound(inputs, named)
        device = self.device
        values = [
            self._value(info, value, device) for info, value in zip(self.graph.arguments, given, strict=True)
        ]
        # The first call shows whether the model waits for elements; such calls cannot be replayed.
        # Nor are those of large arrays that decide about shapes: small ones are told apart by their bytes.
        large = any(is_array(value) and value.nbytes > MOST_COMPARED for value in values)
        if self.compiles and self._called and not self._context.waits and not large:
            results = tuple(map(_unpacked, self._compiled(*map(_packed, values))))
        else:
            results = self._run(*values)
        if not self._called:
            self._called = True
        made = tuple(self._result(value, device) for value in results)
        return made[0] if len(made) == 1 else made

    def _bound(self, inputs: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        names = self.input_names
        if len(inputs) == len(names) and not named:
            return list(inputs)
        if not inputs and named.keys() == self._input_set:
            return [named[name] for name in names]
        if len(inputs) > len(names):
            raise ArgumentError(f"[onnx] expected {len(names)} inputs {names}, got {len(inputs)}")
        bound = dict(zip(names, inputs, strict=False))
        for name, value in named.items():
            if name not in names:
                raise ArgumentError(f"[onnx] there is no input {name!r}; use {', '.join(names)}")
            if name in bound:
                raise ArgumentError(f"[onnx] the input {name!r} is given twice")
            bound[name] = value
        missing = [
            info.name for info in self.graph.arguments if info.name not in bound and info.kind != "optional"
        ]
        if missing:
            raise ArgumentError(f"[onnx] the inputs {', '.join(missing)} are missing")
        return [bound.get(name) for name in names]

    def _value(self, info: ValueInfo, value: Any, device: Device) -> Any:
        """An input as the operators take it: on the host if shapes depend on it."""
        if value is None:
            return None
        if info.kind != "tensor" and isinstance(value, (list, tuple)):
            return [self._tensor(one, device) for one in value]
        if not isinstance(value, Tensor):
            value = np.asarray(value)
            if value.dtype == np.float64 and info.dtype == np.float32 and value.ndim == 0:
                value = value.astype(np.float32)
        _check(info, value)
        if info.name in self._on_host or value.dtype not in KINDS:
            return np.asarray(value if is_array(value) else value.detach().numpy())
        return self._tensor(value, device)

    def _tensor(self, value: Any, device: Device) -> Tensor:
        if isinstance(value, Tensor):
            return value if value.device is device else value.to(device)
        return self._context.tensor(np.asarray(value), device)

    def _run(self, *values: Any) -> tuple[Any, ...]:
        names: dict[str, Any] = dict(zip(self.input_names, values, strict=True))
        names.update(self._constants)
        for name, (holder, member) in self._members.items():
            names[name] = getattr(holder, member)
        return tuple(evaluate(self.graph, names, self._context, self.device))

    def _traced(self, *values: Any) -> tuple[Any, ...]:
        """The outputs of a compiled call: arrays come and go as plain values, which tell calls apart."""
        return tuple(map(_packed, self._run(*map(_unpacked, values))))

    def _result(self, value: Any, device: Device) -> Any:
        if isinstance(value, list):
            return [self._result(one, device) for one in value]
        return value if value is None else self._context.tensor(value, device)

    def extra_repr(self) -> str:
        return f"{len(self.graph.nodes)} nodes, inputs {', '.join(self.input_names)}"


def _packed(value: Any) -> Any:
    """An array as its dtype, shape and bytes; other values as they are."""
    return (value.dtype.name, value.shape, value.tobytes()) if is_array(value) else value


def _unpacked(value: Any) -> Any:
    """The array of :func:`_packed`.

    >>> _unpacked(_packed(np.array([1, 2])))
    array([1, 2])
    """
    if not isinstance(value, tuple):
        return value
    dtype, shape, content = value
    return np.frombuffer(content, dtype).reshape(shape)


def _check(info: ValueInfo, value: Any) -> None:
    """Refuse an input that is not what the file declares."""
    if info.dtype is not None and value.dtype != info.dtype:
        raise DTypeError(
            f"[onnx] the input {info.name!r} is {info.dtype}, got {value.dtype}; convert it by .to()"
        )
    if info.shape is None:
        return
    shape = tuple(value.shape)
    fits = [not isinstance(want, int) or want == size for want, size in zip(info.shape, shape, strict=False)]
    if len(shape) != len(info.shape) or not all(fits):
        declared = ", ".join(str(size) if size is not None else "?" for size in info.shape)
        raise ShapeError(f"[onnx] the input {info.name!r} has the shape ({declared}), got {shape}")


def load(
    source: str | os.PathLike[str] | bytes | Any,
    device: DeviceLike = "auto",
    *,
    max_iterations: int = MOST_ITERATIONS,
) -> OnnxModule:
    """A model of an ONNX file, as a module in evaluation mode.

    Args:
        source: a path, the bytes of a file, or an ``onnx.ModelProto``. Opsets 7 to the newest of the
            installed package ``onnx`` are read, with functions, control flow, sequences, external data in the
            file's folder, and integers as quantised models have them.
        device: where it computes.
        max_iterations: turns after which a loop counts as one without an end.

    Raises:
        OperatorError: it has operators that are not here; all are named with how often they come.
        FileFormatError: it is truncated, contradicts itself, or names files outside of its folder.
        BackendMissingError: the package ``onnx`` is not installed: ``pip install onnx``.

    Example:
        >>> import dl4all as dl
        >>> from onnx import helper, TensorProto
        >>> x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy")
        >>> graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "example", [x], [y])
        >>> model = dl.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
        >>> model(dl.tensor([-1.0, 2.0])).tolist()
        [0.0, 2.0]
    """
    model = read_model(source)
    missing = missing_operators(model)
    if missing:
        named = ", ".join(f"{name} ({count})" for name, count in sorted(missing.items()))
        raise OperatorError(f"[onnx] the model has operators that are not here: {named}")
    module = OnnxModule(model, open_device(device), max_iterations)
    module.eval()
    return module
