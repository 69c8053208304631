"""The call of an operator: its node, and the inputs as tensors or as numbers of the host.

A value is a NumPy array as long as its numbers are known on the host: constants of integers, shapes, and
what is computed from such. So the arithmetic of shapes never waits for a device. Everything else is a tensor;
sequences are lists, and optionals without a value are None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dl4all.errors import ArgumentError, OperatorError
from dl4all.onnx.dtypes import held, supported
from dl4all.onnx.graph import NDArray, OnnxFunction, OnnxGraph, OnnxNode
from dl4all.ops.core.untracked import Untracked
from dl4all.scheduler.device.device import Device
from dl4all.tensor.creation import from_numpy, full
from dl4all.tensor.tensor import Tensor


def is_array(value: Any) -> bool:
    """Whether a value is of NumPy, on the host, and no tensor of a device."""
    return isinstance(value, (np.ndarray, np.generic))


class EvaluationContext(Untracked):
    """The surroundings of a model's calls."""

    def __init__(
        self,
        opsets: Mapping[str, int],
        functions: Mapping[tuple[str, str, str], OnnxFunction],
        max_iterations: int,
        uploaded: dict[tuple[int, Device], Tensor],
    ) -> None:
        self.opsets, self.functions = opsets, functions
        self.max_iterations = max_iterations
        # Operators run graphs, and graphs operators; so these come from evaluation.py, which knows both.
        self.evaluate: Callable[..., list[Any]]
        self.expand: Callable[..., Sequence[Any]]
        self.depth = 0  # of functions that call each other
        self.waits: list[str] = []
        """Operators that have waited for elements, so that they do something else for each input."""
        self.constants: dict[int, NDArray] = {}
        """Arrays that stay as they are, by id; what is uploaded of them is kept."""
        self.uploaded = uploaded
        self.bodies: dict[tuple[OnnxNode, OnnxFunction], OnnxGraph] = {}
        """The bodies of functions with the attributes of the nodes that call them."""
        self.expanded: dict[Any, OnnxFunction | None] = {}
        """Functions of the standard, by the node that calls them and the kinds of its inputs."""

    def within(self, opsets: Mapping[str, int]) -> EvaluationContext:
        """The context of a function's body, which has opsets of its own."""
        inner = object.__new__(EvaluationContext)
        vars(inner).update(vars(self))
        inner.opsets = {**self.opsets, **opsets}
        return inner

    def copied(self, uploaded: dict[tuple[int, Device], Tensor]) -> EvaluationContext:
        """The context of a copy of the model, which other threads may call."""
        made = self.within({})
        made.depth, made.waits, made.uploaded = 0, list(self.waits), uploaded
        made.bodies, made.expanded = dict(self.bodies), dict(self.expanded)
        return made

    def keep(self, array: NDArray) -> NDArray:
        """An array that stays as it is."""
        self.constants[id(array)] = array
        return array

    def tensor(self, value: Any, device: Device) -> Tensor:
        if isinstance(value, Tensor):
            return value
        if not is_array(value):
            raise ArgumentError(
                f"expected a tensor, got {'nothing' if value is None else type(value).__name__}"
            )
        supported(value.dtype)
        key = id(value), device
        kept = self.constants.get(id(value)) is value  # not so in a copy of the module
        if kept and key in self.uploaded:
            return self.uploaded[key]
        dtype = held(value.dtype)
        if value.ndim and value.size and not any(value.strides):  # one number, wherever one looks
            made = full(value.shape, value.item(0), device=device, dtype=dtype)
        else:
            made = from_numpy(np.array(value, dtype)).to(device)
        if kept:
            self.uploaded[key] = made
        return made


class Call:
    """The call of an operator: attributes, and conversions of inputs."""

    __slots__ = ("context", "device", "node", "opset", "values")

    def __init__(
        self, node: OnnxNode, context: EvaluationContext, values: dict[str, Any], device: Device
    ) -> None:
        self.node, self.context, self.values, self.device = node, context, values, device
        self.opset = context.opsets.get(node.domain, 1)

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute."""
        return self.node.attributes.get(name, default)

    def choice(self, name: str, default: str, others: Sequence[str]) -> str:
        """An attribute that is one of some words."""
        value = self.get(name, default)
        if value != default and value not in others:
            raise ArgumentError(
                f"expected {name} to be one of {', '.join((default, *others))}, got {value!r}"
            )
        return str(value)

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self.node.attributes.get(name, default))

    @property
    def results(self) -> int:
        """The number of results that the node names, up to the last that it wants."""
        return max((i for i, name in enumerate(self.node.outputs, 1) if name), default=0)

    def tensor(self, value: Any) -> Tensor:
        """A value on the device."""
        return self.context.tensor(value, self.device)

    def optional(self, value: Any) -> Tensor | None:
        return None if value is None else self.tensor(value)

    def tensors(self, *values: Any) -> tuple[Tensor, ...]:
        return tuple(map(self.tensor, values))

    def operands(self, *values: Any) -> list[Any]:
        """Operands of arithmetic: an array of one number beside a tensor is that number."""
        ndim = max((v.ndim for v in values if isinstance(v, Tensor)), default=-1)
        return [
            v.item() if is_array(v) and v.size == 1 and v.ndim <= ndim else self.tensor(v) for v in values
        ]

    def host(self, value: Any) -> NDArray:
        """The elements of a value; a wait if a device has computed it."""
        if isinstance(value, Tensor):
            self.waits()
            array: NDArray = value.detach().numpy()
            return array
        if not is_array(value):
            raise ArgumentError(
                f"expected numbers, got {'nothing' if value is None else type(value).__name__}"
            )
        return np.asarray(value)

    def waits(self) -> None:
        """Note that the operator waits for elements, which a compiled call cannot."""
        if self.node.op_type not in self.context.waits:
            self.context.waits.append(self.node.op_type)

    def ints(self, value: Any) -> list[int]:
        """The elements of a value of integers."""
        return [int(i) for i in self.host(value).reshape(-1)]

    def number(self, value: Any, default: Any = None) -> Any:
        """The only element of a value."""
        if value is None:
            return default
        array = self.host(value)
        if array.size != 1:
            raise ArgumentError(f"expected one number, got the shape {array.shape}")
        return array.item()

    def axes(self, value: Any, name: str = "axes") -> list[int] | None:
        """Axes as an input, or in older opsets as an attribute."""
        return self.get(name) if value is None else self.ints(value)

    def expanded(self, *inputs: Any) -> Any:
        """The results of the operator as the standard writes it with others."""
        return tuple(self.context.expand(self.node, list(inputs), self.context, self.device))

    def refuse(self, what: str) -> OperatorError:
        return OperatorError(f"{what} is not supported")

    def evaluate(self, graph: OnnxGraph, inputs: Sequence[Any]) -> list[Any]:
        """The results of a graph among the attributes, which sees the names around the node."""
        own = {info.name: value for info, value in zip(graph.arguments, inputs, strict=True)}
        constants = {name: self.context.keep(array) for name, array in graph.initializers.items()}
        values = {**self.values, **constants, **own}
        return self.context.evaluate(graph, values, self.context, self.device)
