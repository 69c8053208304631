"""Ops: a NumPy body, a function that infers the result's shape and dtype, and kernels for devices.

The body of an op's declaration is its NumPy reference. It runs on the CPU, and in place of a kernel for
operands that a device has no kernel for. Signature and docstring are the public API: parameters annotated
``Array`` are tensors and come first, the others are arguments.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable
from types import MethodType
from typing import Any, Generic, ParamSpec

import numpy as np

from dl4all.errors import ArgumentError, Dl4allError, DTypeError
from dl4all.ops.core import autocast, tape
from dl4all.ops.core.arguments import named_cpu
from dl4all.ops.core.arguments.call_forms import Form, in_place
from dl4all.ops.core.arguments.mixed_devices import MixedDevices, mixed_devices, on_one_device
from dl4all.ops.core.arguments.mixed_dtypes import MixedScalars, scalars_cast
from dl4all.ops.core.arguments.tensor_like import TensorLike, TensorLikeFound
from dl4all.ops.core.dtypes import FLOAT8, FLOATING, STORED_ADVICE
from dl4all.ops.core.example import Example as Example
from dl4all.ops.core.example import example as example
from dl4all.ops.core.gradient import Function, Grad, GradientRule
from dl4all.ops.core.kernels import host_kernel, launch_plan
from dl4all.ops.core.kernels.host_run import HostRun
from dl4all.ops.core.kernels.host_run import empty as empty
from dl4all.ops.core.kernels.kernel import KERNEL_REFUSALS as KERNEL_REFUSALS
from dl4all.ops.core.kernels.kernel import OPTIONAL_SHADERS as OPTIONAL_SHADERS
from dl4all.ops.core.kernels.kernel import SHARED as SHARED
from dl4all.ops.core.kernels.kernel import Kernel as Kernel
from dl4all.ops.core.kernels.launch import as_bits, kernel_dtype, stores_halves
from dl4all.ops.core.limits import LARGE_ELEMENTS, check_host_memory, check_shape
from dl4all.ops.core.op_node import OpNode
from dl4all.ops.core.op_node import fit_gradients as fit_gradients
from dl4all.ops.core.parameters import Parameters
from dl4all.ops.core.primitives import primitives as primitives
from dl4all.ops.core.tensor_base import COMPUTED_ELEMENTS, Shape, TensorBase, check_repeated
from dl4all.ops.core.vmap_hook import BatchedTensorBase, batching
from dl4all.runtime.kompute import copies
from dl4all.runtime.spirv import Shader
from dl4all.scheduler import fallback, listeners
from dl4all.scheduler.device.name import cpu_use

P = ParamSpec("P")

Result = tuple[Shape, np.dtype[Any]]
NUMBERS = (int, float, np.integer, np.floating, np.bool_)
"""Types that count as Python numbers among operands; NumPy scalars do too, whatever their dtype."""


class Op(HostRun, Generic[P]):
    """A function of tensors. Calling it checks the operands, then runs it on their device.

    :meth:`bind`, :meth:`check_operands`, :meth:`compute` and :meth:`add_node` are the steps of a call.
    In-place methods and ``vmap`` call them one by one.
    """

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
        overwrites: bool = False,
        moves: bool = False,
    ) -> None:
        functools.update_wrapper(self, body)
        self.name = body.__name__
        self.body = body
        self.infer = infer
        self.kernel = kernel
        self.examples = tuple(examples)
        self.parameters = Parameters(body)
        self.signature = self.parameters.signature
        self.arrays, self.arguments = self.parameters.arrays, self.parameters.arguments
        self.elementwise = elementwise
        self.overwrites = overwrites or elementwise
        self.moves = moves
        self.takes_float8 = moves or (kernel is not None and kernel.halves == "moved")
        self.autocast: autocast.Policy | None = None  # set by `export`
        self.flops = flops
        own = body.__module__.startswith(("dl4all.ops.", "dl4all.functions."))
        self.family = body.__module__.split(".")[2] if own else ""
        # Kernels of one family differ in how fast they compute, forward from backward more than any others.
        self.kernel_class = self.family if flops is None else f"{self.family}.{self.name}"
        self._set_gradient(grad)
        self._result_rule: tuple[GradientRule, Callable[..., bool]] | None = None
        self._fold: Callable[..., Any] | None = None
        position = self.parameters.inplace_position
        self.forms: tuple[Form, ...] = () if position is None else (in_place(position),)
        self.optional = self.parameters.optional  # operands that may be None
        self._defaults = self.parameters.defaults
        self._takes_numbers = elementwise and len(self.arrays) == 2  # in place of tensors

    def __repr__(self) -> str:
        return f"<op {self.name}{self.signature}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Op[P]:
        return self  # as of functions: layers that hold one are copied

    def __reduce__(self) -> str:
        return self.name  # in its module, where pickle looks it up

    def defgrad(self, *functions: Function | None) -> None:
        """Define the gradient after the op, where it calls ops that are declared later.

        Args:
            functions: as ``grad`` in a declaration: one for each operand, None for an operand without a
                gradient, or a single one that returns all gradients.
        """
        if self.grad is not None:
            raise ValueError(f"[{self.name}] has two gradients: one in its declaration, one in defgrad")
        self._set_gradient(functions[0] if len(functions) == 1 else functions)

    def define_result_gradient(self, grad: Grad, holds: Callable[..., bool]) -> None:
        """Define the gradient as a function of the result, where it overwrites the first operand.

        Args:
            grad: as in a declaration; its functions do not take the first operand.
            holds: ``holds(**arguments)`` says whether the gradient follows from the result alone.
        """
        self._result_rule = GradientRule(self.name, self.arrays, grad), holds

    def define_fold(self, fold: Callable[..., Any]) -> None:
        """Define how a reduction takes operands that repeat elements along the axes that it reduces.

        Args:
            fold: ``fold(*arrays, **arguments)`` returns the result, with its history, from a view in which
                nothing repeats; None where the op is to compute with each element.
        """
        self._fold = fold

    def in_place_rule(self, arguments: dict[str, Any]) -> GradientRule:
        """The gradient that keeps the least where the result overwrites the first operand."""
        if self._result_rule is not None and self._result_rule[1](**arguments):
            return self._result_rule[0]
        return self.gradient_rule

    def _set_gradient(self, grad: Grad) -> None:
        self.grad = grad
        self.gradient_rule = GradientRule(self.name, self.arrays, grad)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """An op in a class body is a method."""
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        given: tuple[Any, ...] = args
        for form in self.forms:
            given, result = form(self, given, kwargs)
            if result is not None:
                return result
        operands, arguments = self.bind(given, kwargs)
        if autocast.blocks and self.autocast is not None:
            operands, arguments = autocast.cast_operands(self.name, self.autocast, operands, arguments)
        if batching:
            for operand in operands:
                if isinstance(operand, BatchedTensorBase):
                    return operand.call_op(self, operands, arguments)
        return self._execute(operands, arguments)

    def _execute(self, operands: list[Any], arguments: dict[str, Any]) -> Any:
        try:
            if self._fold is not None and isinstance(operands[0], TensorBase) and 0 in operands[0].strides:
                self.infer(*operands, **arguments)  # refuses what does not fit in the words of this op
                folded = self._fold(*operands, **arguments)
                if folded is not None:
                    return folded
            if listeners.active and listeners.followed():
                result = self._compute_followed(operands, arguments)
            else:
                result = self.compute(operands, arguments)
            if cpu_use.is_mixed and result.device.is_cpu:
                named_cpu.pass_on(operands, result)
            self.add_node(operands, arguments, result)
            return result
        except TensorLikeFound as found:
            return found.operand.call_op(self, operands, arguments)
        except OverflowError as error:  # an int among the arguments that no float holds
            raise ArgumentError(f"[{self.name}] a number is too large: {error}") from None
        except MixedDevices:
            moved = on_one_device(self.name, operands, scalars=self.elementwise)
            if all(map(operator.is_, moved, operands)):  # it was about something else
                raise
            return self._execute(moved, arguments)
        except MixedScalars:
            return self._execute(scalars_cast(operands), arguments)

    def _compute_followed(self, operands: list[Any], arguments: dict[str, Any]) -> Any:
        try:
            self.check_operands(operands)
            self.infer(*operands, **arguments)
        except (TensorLikeFound, MixedDevices, MixedScalars):
            raise  # nobody hears of a call that another one takes the place of
        except Dl4allError:
            pass  # those who listen hear of it, too
        compute = functools.partial(self.compute, operands, arguments)
        return listeners.op(self, operands, arguments, compute)

    @staticmethod
    def tensors_among(operands: Iterable[Any]) -> list[TensorBase]:
        """The operands that are tensors."""
        return [operand for operand in operands if isinstance(operand, TensorBase)]

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Split what a call was given into operands and arguments, with defaults filled in."""
        return self.parameters.bind(args, kwargs)

    def change_again(self, operands: list[Any], arguments: dict[str, Any]) -> bool:
        """Write the result into the first operand by a launch plan, if there is one.

        None is followed where gradients are recorded, or where operands share memory.
        """
        return False

    def change_on_host(self, operands: list[Any], arguments: dict[str, Any]) -> bool:
        """Write the result into the first operand, a tensor of the CPU whose dtype it has, by a compiled
        kernel; False, before anything ran, without one. No other operand shares memory with it."""
        return False

    def keep_change(self, operands: list[Any], arguments: dict[str, Any]) -> None:
        """Keep a plan for :meth:`change_again`: the op's kernel has written into the first operand."""

    def check_operands(self, operands: list[Any]) -> TensorBase:
        """Return the first tensor among the operands.

        Raises:
            MixedDevices: the tensors live on different devices.
            DTypeError: an operand is neither a tensor nor a number or None where the op takes those, or is of
                8 bits where the op computes.
        """
        first: TensorBase | None = None
        for name, operand in zip(self.arrays, operands, strict=True):
            if isinstance(operand, TensorBase):
                if first is None:
                    first = operand
                elif operand.device is not first.device:
                    raise mixed_devices(self.name, first, operand)
                if operand.dtype in FLOAT8 and not self.takes_float8:
                    raise DTypeError(f"[{self.name}] {name!r} is {operand.dtype}; {STORED_ADVICE}")
            elif not (self._takes_numbers and isinstance(operand, NUMBERS)) and not (
                operand is None and name in self.optional
            ):
                if isinstance(operand, TensorLike):
                    raise TensorLikeFound(operand)
                raise DTypeError(
                    f"[{self.name}] expected a tensor for {name!r}, got {type(operand).__name__}; "
                    "make one with dl.tensor(...)"
                )
        if first is None:
            raise DTypeError(f"[{self.name}] expected a tensor, got only numbers; use dl.tensor(...)")
        return first

    # Forward

    def compute(self, operands: list[Any], arguments: dict[str, Any]) -> Any:
        """The result, without a history."""
        call = launch_plan.call_of(self, operands)
        if call is None:
            return self._compute(operands, arguments)
        if call.first.device.is_host:
            result = host_kernel.computed(call, self, operands, arguments)
            return self._compute(operands, arguments) if result is None else result
        run = functools.partial(self._compute, operands, arguments)
        return launch_plan.compute(call, self.arguments, arguments, run)

    def _compute(self, operands: list[Any], arguments: dict[str, Any]) -> Any:
        first = self.check_operands(operands)
        shape, dtype = self.infer(*operands, **arguments)
        kernel, device = self.kernel, first.device
        if not 0 < math.prod(shape) < LARGE_ELEMENTS:
            check_shape(self.name, shape)
            if device.is_host:  # systems promise more than they have
                check_host_memory(self.name, shape, dtype, device.info.memory)
        if device.is_host:
            return self.run_on_host(first, operands, arguments, shape, dtype)
        for operand in operands:
            if isinstance(operand, TensorBase) and math.prod(operand.shape) >= COMPUTED_ELEMENTS:
                check_repeated(self.name, operand)
        if kernel is None:
            cause = fallback.no_kernel(device, dtype.name)
            return self.run_on_host(first, operands, arguments, shape, dtype, cause)
        moved = kernel.halves == "moved"
        takes_halves = self.moves or moved or (kernel.halves == "read" and stores_halves(device))
        if not takes_halves and self.has_halves(operands):
            return self.compute_in_float32(operands, arguments, dtype)
        if (kernel_dtype(dtype, moved=moved) if takes_halves else dtype.name) not in kernel.dtypes:
            cause = fallback.no_dtype(device, dtype.name)
            return self.run_on_host(first, operands, arguments, shape, dtype, cause)
        out = empty(type(first).result_class, shape, dtype, device, self.name)
        if 0 not in shape:
            try:
                target = out
                if moved:
                    target, *operands = map(as_bits, (out, *operands))
                kernel.run(target, *operands, **arguments)
            except KERNEL_REFUSALS as error:
                cause = fallback.refused(device, error, dtype.name)
                return self.run_on_host(first, operands, arguments, shape, dtype, cause)
        return out

    # Backward

    def add_node(
        self,
        operands: list[Any],
        arguments: dict[str, Any],
        result: TensorBase,
        rule: GradientRule | None = None,
    ) -> None:
        """Add this call to the graph, if gradients are enabled and flow from the result to an operand.

        Args:
            operands, arguments, result: of the call. The node keeps only those that the gradients need.
            rule: computes the gradients, if not the declared one.
        """
        if not tape.state.enabled or result.dtype not in FLOATING:
            return
        edges = tape.edges_of(operands)
        if edges is None:
            return
        plan = (rule or self.gradient_rule).plan(tuple([edge is not None for edge in edges]))
        kept: list[Any] = []
        for name, position in plan.parameters:
            if position is not None:
                operand = operands[position]
                is_tensor = isinstance(operand, TensorBase)
                kept.append(tape.save(operand, edges[position]) if is_tensor else operand)
            elif name in arguments:
                kept.append(arguments[name])
            elif name == "result":
                kept.append(tape.save(result, None, 0))
            elif name == "shapes":
                kept.append(tuple(o.shape if isinstance(o, TensorBase) else None for o in operands))
            else:
                kept.append(plan.needs)
        if batching:
            edges = tape.matched_edges(operands, result, edges)
        node = OpNode(self.name, edges, 1, plan, kept)
        result.grad_meta = tape.GradMeta(node)
        if tape.state.observer is not None:
            tape.state.observer.made(node, operands, (result,))


REGISTRY: dict[str, Op[...]] = {}
"""Every op by name, for tests, benchmarks and the wheel's list of shaders."""


def register(op: Op[P]) -> Op[P]:
    """Add an op to the registry."""
    if op.name in REGISTRY:
        raise ValueError(
            f"[{op.name}] is declared twice: {REGISTRY[op.name].body.__module__}, {op.body.__module__}"
        )
    REGISTRY[op.name] = op
    return op


def all_shaders() -> list[Shader]:
    """Every shader that an op or a backend may launch; a wheel ships them compiled."""
    kernels = (declared.kernel for declared in REGISTRY.values())
    op_shaders = (shader for kernel in kernels if kernel for shader in kernel.shaders)
    return list(dict.fromkeys((*op_shaders, *SHARED, *copies.SHADERS)))


def op(
    *,
    infer: Callable[..., Result],
    kernel: Kernel | None = None,
    examples: Iterable[Example],
    flops: Callable[..., int] | None = None,
    grad: Grad = None,
    overwrites: bool = False,
    moves: bool = False,
) -> Callable[[Callable[P, Any]], Op[P]]:
    """Declare an op.

    Args:
        infer: ``infer(*arrays, **arguments)`` returns the result's shape and dtype, or raises an error about
            the operands. It runs before anything else, on every device.
        kernel: how devices other than the CPU run the op; without one it runs on the host.
        examples: the hard cases; tests sweep strides, sizes of zero and every device for all ops.
        flops: ``flops(*arrays, **arguments)`` returns the number of floating point operations, for profiles,
            which assign them to the kernels that write the result.
        grad: the gradient, see :class:`dl4all.ops.core.gradient.GradientRule`.
        overwrites: whether the kernel may write to its first operand, of which each invocation reads only the
            elements that it writes; elementwise kernels always may.
        moves: whether the body moves elements and computes nothing with them, so that it takes floats of 16
            bits as they are; for other bodies they are widened to float32.
    """

    def declare(body: Callable[P, Any]) -> Op[P]:
        return register(
            Op(body, infer, kernel, examples, flops=flops, grad=grad, overwrites=overwrites, moves=moves)
        )

    return declare
