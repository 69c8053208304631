"""What an op is: a NumPy body, a rule for its result, and kernels for devices.

The body of an op's declaration is its NumPy reference; the CPU runs it, and so does any device that
has no kernel for the case. The signature and the docstring are the public API: parameters annotated
``Array`` are tensors and come first, the rest are arguments.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from types import MethodType
from typing import Any, Generic, ParamSpec

import numpy as np

from dl4all.errors import ArgumentError, DTypeError, TooLargeError
from dl4all.ops.core import tape
from dl4all.ops.core.gradient import Function, Grad, GradientRule
from dl4all.ops.core.launch import NoKernel
from dl4all.ops.core.tensor_base import Shape, TensorBase, from_host
from dl4all.runtime.kompute import copies
from dl4all.runtime.profiler import recorder
from dl4all.runtime.spirv import Shader
from dl4all.scheduler.device import Device

P = ParamSpec("P")
logger = logging.getLogger("dl4all")

Result = tuple[Shape, np.dtype[Any]]
NUMBERS = (int, float, np.integer, np.floating, np.bool_)
"""What counts as a Python number beside a tensor; NumPy's scalars do too, whatever their dtype."""


REFUSALS = (NoKernel, TooLargeError)
"""Why no kernel computes, found out while it is launched: the op's body does then."""


@dataclass(frozen=True)
class Example:
    """Shapes and arguments on which tests and benchmarks exercise an op."""

    shapes: tuple[Shape | None, ...]  # one for each array operand, None where it is left out
    arguments: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        given = ", ".join(str(shape) for shape in self.shapes)
        return given + "".join(f", {name}={value}" for name, value in self.arguments)


def example(*shapes: Shape | None, **arguments: Any) -> Example:
    return Example(shapes, tuple(arguments.items()))


@dataclass(frozen=True)
class Kernel:
    """How devices run an op.

    ``run(out, *arrays, **arguments)`` fills the contiguous tensor `out`. ``shaders`` are all that it
    may launch, which is what a wheel ships compiled. ``dtypes`` are the result types it can do.
    """

    run: Callable[..., None]
    shaders: tuple[Shader, ...]
    dtypes: tuple[str, ...] = ("float32",)


class Op(Generic[P]):
    """A function of tensors. Calling it checks the operands, then runs it where they live."""

    def __init__(
        self,
        body: Callable[P, Any],
        infer: Callable[..., Result],
        kernel: Kernel | None,
        examples: Iterable[Example],
        *,
        elementwise: bool = False,
        flops: Callable[..., int] | None = None,
        grad: Grad = None,
    ) -> None:
        functools.update_wrapper(self, body)
        self.name = body.__name__
        self.body = body
        self.infer = infer
        self.kernel = kernel
        self.examples = tuple(examples)
        self.signature = inspect.signature(body)
        parameters = self.signature.parameters.values()
        self.arrays = tuple(p.name for p in parameters if "Array" in str(p.annotation))
        self.arguments = tuple(p.name for p in parameters if p.name not in self.arrays)
        self.elementwise = elementwise
        self.flops = flops
        self._set_gradient(grad)
        optional = {p.name: p.default for p in parameters if p.default is not p.empty}
        self.optional = {name for name in self.arrays if name in optional}  # None may stand for these
        self._defaults = {name: optional[name] for name in self.arguments if name in optional}
        self._scalars = elementwise and len(self.arrays) == 2  # whether numbers may stand for arrays
        self._fallbacks: set[tuple[str, str]] = set()

    def __repr__(self) -> str:
        return f"<op {self.name}{self.signature}>"

    def defgrad(self, *functions: Function | None) -> None:
        """Define the gradient after the op, where it calls ops that are declared later.

        Args:
            functions: as ``grad`` in a declaration: one for each operand, None for an operand without a
                gradient, or a single one that returns all gradients.
        """
        if self.grad is not None:
            raise ValueError(f"[{self.name}] has two gradients: one in its declaration, one in defgrad")
        self._set_gradient(functions[0] if len(functions) == 1 else functions)

    def _set_gradient(self, grad: Grad) -> None:
        self.grad = grad
        self.gradient_rule = GradientRule(self.name, grad)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """An op in a class body is a method."""
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        operands, arguments = self.bind(args, kwargs)
        if recorder.watching:
            return self._watched(operands, arguments)
        return self._apply(operands, arguments)

    def _watched(self, operands: list[Any], arguments: dict[str, Any]) -> Any:
        """For the samples of a vmap, or in a profile."""
        for operand in operands:
            if isinstance(operand, TensorBase) and operand.levels:
                return operand.call(self, operands, arguments)  # type: ignore[attr-defined]
        active = recorder.active
        return (
            self._apply(operands, arguments)
            if active is None
            else self._profiled(active, operands, arguments)
        )

    def _profiled(self, active: recorder.Recorder, operands: list[Any], arguments: dict[str, Any]) -> Any:
        tensors = [operand for operand in operands if isinstance(operand, TensorBase)]
        place = str(tensors[0].device) if tensors else ""
        with active.op(self.name, place, tuple(tensor.shape for tensor in tensors)) as span:
            result = self._apply(operands, arguments)
        span.finish(result.storage, 0 if self.flops is None else self.flops(*operands, **arguments))
        return result

    def _apply(self, operands: list[Any], arguments: dict[str, Any]) -> Any:
        result = self.compute(operands, arguments)
        if tape.state.enabled and result.dtype.kind == "f":
            for operand in operands:
                if tape.wants_gradient(operand):
                    self.add_node(operands, arguments, result)
                    break
        return result

    def compute(self, operands: list[Any], arguments: dict[str, Any]) -> Any:
        first = self.check_operands(operands)
        shape, dtype = self.infer(*operands, **arguments)
        if first.device.is_host or self.kernel is None or dtype.name not in self.kernel.dtypes:
            if self.kernel is not None and self.widens_float16(operands, dtype, self.kernel.dtypes):
                return self.compute_in_float32(operands, arguments, dtype)
            return self.run_on_host(first, operands, arguments, shape, dtype)
        out = empty(type(first).result_class, shape, dtype, first.device, self.name)
        if 0 not in shape:
            try:
                self.kernel.run(out, *operands, **arguments)
            except REFUSALS as reason:
                return self._instead(reason, first, operands, arguments, shape, dtype)
        return out

    def _instead(
        self,
        reason: Exception,
        first: TensorBase,
        operands: list[Any],
        arguments: dict[str, Any],
        shape: Shape,
        dtype: np.dtype[Any],
    ) -> Any:
        """What the body computes where the device cannot run a kernel with these operands."""
        self._tell(first.device, type(reason).__name__, f"runs on the CPU: {reason}")
        return self.run_on_host(first, operands, arguments, shape, dtype, told=True)

    @staticmethod
    def widens_float16(operands: list[Any], computed: np.dtype[Any], kernels: Container[str]) -> bool:
        """Whether a device that has kernels for these dtypes computes in float32 what is of float16."""
        return (
            computed == np.float16
            and "float32" in kernels
            and any(
                isinstance(o, TensorBase) and o.dtype == computed and not o.device.is_host for o in operands
            )
        )

    def compute_in_float32(self, operands: list[Any], arguments: dict[str, Any], dtype: np.dtype[Any]) -> Any:
        """Operands of float16 are widened, and a result of float16 is rounded, both on the device."""
        cast = primitives.cast
        wide = [
            cast.compute([o], {"dtype": "float32"})
            if isinstance(o, TensorBase) and o.dtype == np.float16
            else o
            for o in operands
        ]
        result = self.compute(wide, arguments)
        return result if result.dtype == dtype else cast.compute([result], {"dtype": dtype.name})

    def add_node(self, operands: list[Any], arguments: dict[str, Any], result: TensorBase) -> None:
        """Let gradients find their way back. Only what they need is kept in memory for them."""
        takes = self.gradient_rule.parameters(tuple(map(tape.wants_gradient, operands)))
        given = {name: value for name, value in arguments.items() if name in takes}
        tensors = {"result": result} if "result" in takes else {}
        for name, operand in zip(self.arrays, operands, strict=True):
            if name in takes:
                (tensors if isinstance(operand, TensorBase) else given)[name] = operand
        kinds = [(o.shape, o.dtype) if isinstance(o, TensorBase) else None for o in operands]
        if "shapes" in takes:
            given["shapes"] = tuple(None if kind is None else kind[0] for kind in kinds)
        backward = self.make_backward(tuple(tensors), given, kinds)
        tape.add_node(self.name, operands, (result,), backward, tuple(tensors.values()))

    def make_backward(
        self, names: tuple[str, ...], given: dict[str, Any], kinds: list[Any]
    ) -> Callable[..., list[Any]]:
        """What a node calls. Apart from the recording, so that it holds no tensor."""

        def backward(grads: Any, saved: tuple[TensorBase, ...], needs: tuple[bool, ...]) -> list[Any]:
            values = {**dict(zip(names, saved, strict=True)), **given, "needs": needs}
            found = self.gradient_rule(grads[0], values, needs)
            return [
                _fitted(gradient, *kind) if needed and gradient is not None else None
                for gradient, kind, needed in zip(found, kinds, needs, strict=True)
            ]

        return backward

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        count = len(self.arrays)
        if len(args) == count and self._defaults.keys() | kwargs.keys() == set(self.arguments):
            return list(args), {**self._defaults, **kwargs}
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = bound.arguments
        return [values[name] for name in self.arrays], {name: values[name] for name in self.arguments}

    def check_operands(self, operands: list[Any]) -> TensorBase:
        """The first tensor among the operands, all of which must live on its device."""
        first: TensorBase | None = None
        for name, operand in zip(self.arrays, operands, strict=True):
            if isinstance(operand, TensorBase):
                if first is None:
                    first = operand
                elif operand.device is not first.device:
                    raise ArgumentError(
                        f"[{self.name}] operands live on different devices, {first.device} and "
                        f"{operand.device}; move one with .to({str(first.device)!r})"
                    )
            elif not (self._scalars and isinstance(operand, NUMBERS)) and not (
                operand is None and name in self.optional
            ):
                raise DTypeError(
                    f"[{self.name}] expected a tensor for {name!r}, got {type(operand).__name__}; "
                    "make one with dl.tensor(...)"
                )
        if first is None:
            raise DTypeError(f"[{self.name}] expected a tensor, got only numbers; use dl.tensor(...)")
        return first

    def run_on_host(
        self,
        first: TensorBase,
        operands: list[Any],
        arguments: dict[str, Any],
        shape: Shape,
        dtype: np.dtype[Any],
        computed: np.dtype[Any] | None = None,
        *,
        told: bool = False,
    ) -> Any:
        """Run the body; `computed` is the dtype to name where a kernel is missing, if not the result's.

        `told`: the user knows already why no kernel does it.
        """
        device = first.device
        if not device.is_host and self.kernel is not None and not told:
            missing = (computed or dtype).name
            message = f"has no {missing} kernel for {device} and runs on the CPU"
            self._tell(device, missing, f"{message}; convert with .float() to stay there")
        arrays = [o.on_host() if isinstance(o, TensorBase) else o for o in operands]
        active = recorder.active
        body: Callable[..., Any] = self.body if active is None else active.on_host(self.name, self.body)
        with np.errstate(all="ignore"):  # inf and nan come out quietly, as on every other device
            result = np.asarray(body(*arrays, **arguments), dtype)
        if result.shape != shape:
            raise AssertionError(f"[{self.name}] inferred {shape}, computed {result.shape}")
        # A body may return a view of its operand, which must not share memory with the result.
        shared = any(isinstance(a, np.ndarray) and np.may_share_memory(a, result) for a in arrays)
        return from_host(type(first).result_class, result, device, copy=shared, tag=self.name)

    def _tell(self, device: Device, what: str, message: str) -> None:
        """Warn, the first time."""
        if (device.name, what) not in self._fallbacks:
            self._fallbacks.add((device.name, what))
            logger.warning("[%s] %s", self.name, message)


def _fitted(gradient: TensorBase, shape: Shape, dtype: np.dtype[Any]) -> TensorBase:
    """A gradient as its operand needs it: summed where that was broadcast, in its dtype."""
    if gradient.shape != shape:
        gradient = primitives.sum_to(gradient, shape)
    if gradient.dtype != dtype:
        gradient = primitives.cast(gradient, dtype.name)
    return gradient


def empty(cls: type[TensorBase], shape: Shape, dtype: np.dtype[Any], device: Any, tag: str = "") -> Any:
    """A contiguous tensor with undefined contents; `tag` says what it is for, an op's name."""
    nbytes = dtype.itemsize
    for size in shape:
        nbytes *= size
    return cls(device.allocate(nbytes, tag), shape, dtype, device)


class Primitives:
    """The ops that ops of the lowest layers call, set where each is declared, further up."""

    cast: Op[...]
    clone: Op[...]
    sum_to: Op[...]


primitives = Primitives()

REGISTRY: dict[str, Op[...]] = {}
"""Every op by name: what tests, benchmarks and the wheel's list of shaders go through."""


SHARED: list[Shader] = []
"""Shaders of functions that are no ops: those that move elements."""


def register(op: Op[P]) -> Op[P]:
    if op.name in REGISTRY:
        raise ValueError(
            f"[{op.name}] is declared twice: {REGISTRY[op.name].body.__module__}, {op.body.__module__}"
        )
    REGISTRY[op.name] = op
    return op


def all_shaders() -> list[Shader]:
    """Every shader that an op or a backend may launch: what a wheel carries compiled."""
    kernels = (declared.kernel for declared in REGISTRY.values())
    of_ops = (code for kernel in kernels if kernel for code in kernel.shaders)
    return list(dict.fromkeys((*of_ops, *SHARED, *copies.SHADERS)))


def op(
    *,
    infer: Callable[..., Result],
    kernel: Kernel | None = None,
    examples: Iterable[Example],
    flops: Callable[..., int] | None = None,
    grad: Grad = None,
) -> Callable[[Callable[P, Any]], Op[P]]:
    """Declare an op.

    Args:
        infer: ``infer(*arrays, **arguments)`` returns the result's shape and dtype, or raises what
            is wrong with the operands. It runs before anything else, on every device.
        kernel: how devices other than the CPU run it; without one they go through the host.
        examples: the hard cases; strides, sizes of zero and every device are swept for all ops.
        flops: ``flops(*arrays, **arguments)`` returns how many floating point operations the result
            takes, for profiles. They count for the kernels that bind the result last.
        grad: the gradient, see :class:`dl4all.ops.core.gradient.GradientRule`.
    """

    def declare(body: Callable[P, Any]) -> Op[P]:
        return register(Op(body, infer, kernel, examples, flops=flops, grad=grad))

    return declare
