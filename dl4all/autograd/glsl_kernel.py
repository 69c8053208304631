"""Kernels of one's own: a compute shader in GLSL that is called with tensors."""

from __future__ import annotations

import functools
import inspect
import linecache
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dl4all.autograd.function import Function
from dl4all.errors import (
    ArgumentError,
    BackendMissingError,
    DTypeError,
    GradientError,
    ShaderError,
    ShapeError,
)
from dl4all.ops.core.arguments.mixed_devices import on_one_device
from dl4all.ops.core.dtypes import FLOAT32, HALVES, checked_dtype
from dl4all.ops.core.kernels.host_work import host_work
from dl4all.ops.core.kernels.kernel import KERNEL_REFUSALS
from dl4all.ops.core.kernels.launch import as_bits, pack, run, stores_halves
from dl4all.ops.core.limits import check_shape, integer, real
from dl4all.ops.core.tensor_base import Shape, TensorBase, from_host
from dl4all.ops.core.vmap_hook import BatchedTensorBase, batching
from dl4all.ops.memory.conversion import cast
from dl4all.ops.memory.copy import fill_with, fresh_copy, new_like
from dl4all.runtime import spirv
from dl4all.runtime.protocols import Grid
from dl4all.runtime.spirv import Shader
from dl4all.scheduler import fallback

DTYPES = {
    "float": ("float32", "float16", "bfloat16"),
    "float16_t": ("float16",),
    "int": ("int32",),
    "int64_t": ("int64",),
    "int16_t": ("int16",),
    "int8_t": ("int8",),
    "uint8_t": ("uint8", "bool"),
}
"""The dtypes of tensors by what GLSL calls their elements; ``uint`` takes the words of any."""

PUSH_RANGES = {"uint": (0, 2**32 - 1), "int": (-(2**31), 2**31 - 1)}
AXES = 3  # of a grid

Results = Sequence[tuple[Shape, np.dtype[Any]]]


class GlslKernel:
    """A compute shader that is called with tensors; made by :func:`kernel`."""

    def __init__(
        self,
        shader: Shader,
        name: str,
        outputs: Callable[..., Any],
        groups: Callable[..., Any],
        push: Callable[..., Any] | None,
        constants: tuple[int, ...],
        host: Callable[..., Any] | None,
        grad: Callable[..., Any] | None,
        flops: Callable[..., int] | None,
        init_value: float | None,
    ) -> None:
        self.shader, self.name, self.constants = shader, name, constants
        self._outputs, self._groups, self._push = outputs, groups, push
        self._host, self._flops, self._init_value = host, flops, init_value
        self._grad = grad
        # Whether the gradient is a function of the result, too, which is kept for it then.
        self.takes_result = grad is not None and "result" in inspect.signature(grad).parameters

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"

    def __call__(self, *inputs: Any) -> Any:
        """The output, or a tuple of several.

        Args:
            inputs: tensors, which are bound in this order, and values of other kinds for the functions.

        Raises:
            ShaderError: the shader's buffers and push constants are not what is passed.
            ArgumentError, ShapeError, DTypeError: what the functions return is no shape, grid or number.
            GradientError: in ``backward``, where there is no ``grad``.
        """
        if batching:
            for operand in inputs:
                if isinstance(operand, BatchedTensorBase):
                    return operand.call_per_sample(self, inputs, {})
        tensors = [operand for operand in inputs if isinstance(operand, TensorBase)]
        if not tensors:
            raise DTypeError(f"[{self.name}] expected a tensor among its arguments; see dl.tensor(...)")
        if any(tensor.device is not tensors[0].device for tensor in tensors):
            inputs = tuple(on_one_device(self.name, inputs, scalars=False))
        return _KernelCall.apply(self, *inputs)

    def compute(self, inputs: Sequence[Any]) -> tuple[TensorBase, ...]:
        """The outputs, without a history."""
        tensors = [operand for operand in inputs if isinstance(operand, TensorBase)]
        device, results = tensors[0].device, self._results(inputs)
        flops = 0 if self._flops is None else int(self._flops(*inputs))
        if device.simulated is not None:
            moved = sum(tensor.numel() * tensor.dtype.itemsize for tensor in tensors)
            moved += sum(math.prod(shape) * dtype.itemsize for shape, dtype in results)
            device.simulated.launch(self.name, moved, flops)
            if not device.simulated.computes:
                return tuple(new_like(tensors[0], shape, dtype) for shape, dtype in results)
        if device.is_host:
            if self._host is None:
                raise ArgumentError(
                    f"[{self.name}] runs on devices with shaders, and its tensors are on {device}; move "
                    "them, for example with .to('gpu'), or give dl.kernel(host=...), a function of arrays"
                )
            made = [new_like(tensors[0], shape, dtype) for shape, dtype in results]
            values = tuple((i, v) for i, v in enumerate(inputs) if not isinstance(v, TensorBase))
            work = functools.partial(_write_results, self.name, self._host, len(inputs), values)
            host_work(self.name, work, tensors, made)
            return tuple(made)
        try:
            return self._launch(inputs, results, flops)
        except (*KERNEL_REFUSALS, BackendMissingError) as error:
            if self._host is None:
                raise
            cause = fallback.refused(device, error, results[0][1].name)
        with fallback.on_host(self.name, device, cause):
            given = [v.on_host() if isinstance(v, TensorBase) else v for v in inputs]
            arrays = _host_results(self.name, self._host, given, results)
            return tuple(
                from_host(type(tensors[0]).result_class, array, device, copy=True) for array in arrays
            )

    def gradients(
        self, grads: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> tuple[Any, ...]:
        """The gradient of each input."""
        if self._grad is None:
            raise GradientError(
                f"[{self.name}] has no gradient; give dl.kernel(grad=...), or use .detach() where none is "
                "needed"
            )
        one = len(outputs) == 1
        named = {"result": outputs[0] if one else tuple(outputs)} if self.takes_result else {}
        found = self._grad(grads[0] if one else tuple(grads), *inputs, **named)
        found = found if isinstance(found, tuple) else (found,)
        if len(found) != len(inputs):
            raise GradientError(
                f"[{self.name}] grad must return a gradient for each of {len(inputs)} arguments, None for "
                f"those without one, got {len(found)}"
            )
        return found

    # Its parts

    def _results(self, inputs: Sequence[Any]) -> Results:
        declared = self._outputs(*inputs)
        try:
            pairs = [(tuple(shape), dtype) for shape, dtype in declared]
        except (TypeError, ValueError):
            pairs = []
        if not pairs:
            raise ArgumentError(
                f"[{self.name}] outputs must return a list of (shape, dtype) pairs, got {declared!r}"
            )
        results = []
        for shape, dtype in pairs:
            sizes = tuple(integer(self.name, "a size of an output", size, least=0) for size in shape)
            results.append((check_shape(self.name, sizes), checked_dtype(self.name, dtype)))
        return results

    def _grid(self, inputs: Sequence[Any]) -> Grid:
        given = self._groups(*inputs)
        sides = tuple(given) if isinstance(given, (tuple, list)) else (given,)
        if not 1 <= len(sides) <= AXES:
            raise ArgumentError(
                f"[{self.name}] groups must return the number of workgroups along 1 to 3 axes, got {given!r}"
            )
        counts = [integer(self.name, "a number of workgroups", side, least=0) for side in sides]
        x, y, z = *counts, *[1] * (AXES - len(counts))
        return x, y, z

    def _push_constants(self, inputs: Sequence[Any]) -> tuple[tuple[str, ...], bytes]:
        """The types of the push constants, and their words."""
        kinds, values = list[str](), list[int | float]()
        for entry in () if self._push is None else self._push(*inputs):
            kind, value = entry if isinstance(entry, tuple) and len(entry) == 2 else ("", entry)
            if kind == "float":
                values.append(real(self.name, "a push constant", value))
            elif kind in PUSH_RANGES:
                least, most = PUSH_RANGES[kind]
                values.append(integer(self.name, "a push constant", value, least, most))
            else:
                raise ArgumentError(
                    f"[{self.name}] push must return pairs such as ('uint', n), of 'uint', 'int' or 'float', "
                    f"got {entry!r}"
                )
            kinds.append(kind)
        return tuple(kinds), pack(*values)

    def _launch(self, inputs: Sequence[Any], results: Results, flops: int) -> tuple[TensorBase, ...]:
        tensors = [operand for operand in inputs if isinstance(operand, TensorBase)]
        device, grid = tensors[0].device, self._grid(inputs)
        kinds, push = self._push_constants(inputs)
        dtypes = tuple([tensor.dtype for tensor in tensors])
        made_dtypes = tuple([dtype for _, dtype in results])
        floats = _check_interface(self.shader, self.name, dtypes, made_dtypes, kinds, self.constants)
        wide = not stores_halves(device)
        made = []
        for (shape, dtype), is_float in zip(results, floats[len(tensors) :], strict=True):
            widened = wide and is_float and dtype in HALVES
            made.append(new_like(tensors[0], shape, FLOAT32 if widened else dtype))
            if self._init_value is not None:
                fill_with(made[-1], self._init_value)
        if 0 not in grid and any(output.numel() for output in made):
            given = []
            for tensor, is_float in zip(tensors, floats, strict=False):
                if wide and is_float and tensor.dtype in HALVES:
                    tensor = cast(tensor, "float32")
                # Shaders begin at the first byte of what they are given, and read elements in order.
                given.append(fresh_copy(tensor) if tensor.offset or not tensor.is_contiguous() else tensor)
            operands = [
                tensor if is_float else as_bits(tensor)
                for tensor, is_float in zip([*given, *made], floats, strict=True)
            ]
            run(self.shader, grid, push, *operands, constants=self.constants, flops=flops)
        return tuple(
            tensor if tensor.dtype == dtype else cast(tensor, dtype.name)
            for tensor, (_, dtype) in zip(made, results, strict=True)
        )


class _KernelCall(Function):
    """A call of a kernel in the graph."""

    @staticmethod
    def forward(ctx: Any, kernel: GlslKernel, *inputs: Any) -> Any:
        outputs = kernel.compute(inputs)
        tensors = [operand for operand in inputs if isinstance(operand, TensorBase)]
        ctx.save_for_backward(*tensors, *(outputs if kernel.takes_result else ()))
        ctx.kernel = kernel
        ctx.values = [None if isinstance(operand, TensorBase) else (operand,) for operand in inputs]
        ctx.outputs = [(output.shape, output.dtype) for output in outputs]
        return outputs if len(outputs) > 1 else outputs[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        tensors = iter(ctx.saved_tensors)
        inputs = [next(tensors) if value is None else value[0] for value in ctx.values]
        outputs = list(tensors) or [None] * len(ctx.outputs)
        like = ctx.saved_tensors[0]
        grads = [
            like.new_zeros(shape, dtype=dtype) if gradient is None else gradient
            for gradient, (shape, dtype) in zip(gradients, ctx.outputs, strict=True)
        ]
        return None, *ctx.kernel.gradients(grads, inputs, outputs)


def _host_results(name: str, host: Callable[..., Any], given: Sequence[Any], results: Results) -> list[Any]:
    """The arrays that the function of the host returns, checked."""
    found = host(*given)
    arrays = list(found) if isinstance(found, (tuple, list)) else [found]
    if len(arrays) != len(results):
        raise ArgumentError(f"[{name}] host must return {len(results)} arrays, got {len(arrays)}")
    for position, (array, (shape, dtype)) in enumerate(zip(arrays, results, strict=True)):
        if np.shape(array) != shape:
            raise ShapeError(
                f"[{name}] host returned an array of shape {np.shape(array)}, and outputs says {shape}"
            )
        arrays[position] = np.asarray(array).astype(dtype, copy=False)
    return arrays


def _write_results(
    name: str, host: Callable[..., Any], count: int, values: tuple[tuple[int, Any], ...], *arrays: Any
) -> None:
    """Write what the function of the host returns into the last arrays.

    Args:
        name: the kernel's.
        host: the function.
        count: of its arguments.
        values: those that are no arrays, with their positions.
        arrays: the other arguments, and the outputs.
    """
    tensors = count - len(values)
    given, rest = dict(values), iter(arrays[:tensors])
    arguments = [given[position] if position in given else next(rest) for position in range(count)]
    results = [(array.shape, array.dtype) for array in arrays[tensors:]]
    for out, array in zip(arrays[tensors:], _host_results(name, host, arguments, results), strict=True):
        out[...] = array


@functools.lru_cache(1024)
def _check_interface(
    shader: Shader,
    name: str,
    inputs: tuple[np.dtype[Any], ...],
    outputs: tuple[np.dtype[Any], ...],
    push: tuple[str, ...],
    constants: tuple[int, ...],
) -> tuple[bool, ...]:
    """Compare a shader with what is passed to it.

    Returns:
        Whether each of its buffers has floats of 32 bits.

    Raises:
        ShaderError: they differ.
    """
    interface = spirv.load(shader).interface
    found, dtypes = interface.bindings, (*inputs, *outputs)
    if len(found) != len(dtypes):
        raise ShaderError(
            f"[{name}] the shader has {len(found)} buffers, and the call passes {len(inputs)} tensors and "
            f"{len(outputs)} outputs; bind the tensors at 0, 1, ... and the outputs behind them"
        )
    for binding, dtype in zip(found, dtypes, strict=True):
        position = binding.index - len(inputs)
        who = f"output {position}" if position >= 0 else f"tensor {binding.index}"
        if position < 0 and not binding.readonly:
            raise ShaderError(
                f"[{name}] binding {binding.index} takes {who}, which a kernel must not change: declare the "
                "buffer readonly"
            )
        if position >= 0 and binding.readonly:
            raise ShaderError(f"[{name}] binding {binding.index} takes {who}, and the buffer is readonly")
        allowed = [one for scalar in binding.scalars for one in DTYPES.get(scalar, ())]
        if len(binding.scalars) == 1 and "uint" not in binding.scalars and dtype.name not in allowed:
            raise ShaderError(
                f"[{name}] binding {binding.index} is a buffer of {''.join(binding.scalars)}, for "
                f"{' or '.join(allowed) or 'no dtype'}, and {who} is {dtype}; convert it, or declare the "
                "buffer as what is passed, or as uint to read the words of any"
            )
    there = _push_words(interface.push, interface.push_bytes)
    if len(there) != len(push) or any(
        kind and kind != given for kind, given in zip(there, push, strict=True)
    ):
        raise ShaderError(
            f"[{name}] the shader's push constants are ({', '.join(kind or 'padding' for kind in there)}), "
            f"and push returns ({', '.join(push)})"
        )
    if not set(range(len(constants))) <= set(interface.spec_ids):
        raise ShaderError(
            f"[{name}] the shader has specialization constants {list(interface.spec_ids)}, and constants "
            f"gives those from 0 to {len(constants) - 1}"
        )
    return tuple(binding.scalars == {"float"} for binding in found)


def _push_words(push: Sequence[Any], nbytes: int) -> list[str]:
    """The type of each word of push constants, empty for padding."""
    words = [""] * (nbytes // 4)
    letters = {"vec": "float", "uvec": "uint", "ivec": "int"}
    for position, (_, type, offset) in enumerate(push):
        scalar = type.removesuffix("[]")
        vector = re.fullmatch(r"([ui]?vec)(\d)", scalar)
        kind, count = (letters[vector[1]], int(vector[2])) if vector else (scalar, 1)
        if type.endswith("[]"):
            end = push[position + 1].offset if position + 1 < len(push) else nbytes
            count = (end - offset) // 4
        words[offset // 4 : offset // 4 + count] = [kind] * count
    return words


def _with_user_lines(error: ShaderError, name: str, glsl: str, caller: str) -> ShaderError:
    """The compiler's error with the lines of the user's text that it is about."""
    source, lines = "".join(linecache.getlines(caller)), glsl.splitlines()
    before = source.partition(glsl)[0].count("\n") if glsl in source else None
    shown = []
    for number in dict.fromkeys(int(found) for found in re.findall(r":(\d+):", str(error))):
        if 1 <= number <= len(lines):
            place = f"line {number}" + ("" if before is None else f" ({caller}:{before + number})")
            shown.append(f"  {place}: {lines[number - 1].strip()}")
    messages = [re.sub(r"^(ERROR: )?\S*?\.comp:", "line ", line) for line in str(error).splitlines()[1:]]
    return ShaderError("\n".join([f"[{name}] the shader does not compile:", *messages, *shown]))


def kernel(
    glsl: str,
    *,
    name: str = "kernel",
    outputs: Callable[..., Any],
    groups: Callable[..., Any],
    push: Callable[..., Any] | None = None,
    constants: Mapping[int, int] | None = None,
    host: Callable[..., Any] | None = None,
    grad: Callable[..., Any] | None = None,
    flops: Callable[..., int] | None = None,
    init_value: float | None = None,
) -> GlslKernel:
    """A kernel of one's own: a compute shader in GLSL that is called with tensors.

    The functions below are called with the arguments of each call: tensors, which the shader finds at the
    bindings 0, 1, ... in ``readonly`` buffers, contiguous and from their first element on, and other values,
    which only the functions see. The outputs are bound behind the tensors; ``float`` buffers hold float16
    and bfloat16 as well, which are converted as they are read and written.

    Args:
        glsl: the shader's text. ``#version 450`` is put in front if there is none.
        name: for errors, profiles and graphs.
        outputs: returns a list of the outputs' shapes and dtypes.
        groups: returns the number of workgroups along 1 to 3 axes; nothing is launched where one is 0.
        push: returns the push constants in their order, as pairs of ``"uint"``, ``"int"`` or ``"float"`` and
            a number.
        constants: specialization constants by their ids, which count from 0.
        host: computes the same on the CPU, from NumPy arrays in the tensors' places. Without one a call
            with tensors of the CPU is refused.
        grad: ``grad(g, *arguments)`` returns the gradient of each argument, None for those without one, from
            that of the output (a tuple of them, where there are several). A parameter called ``result`` is
            given the output. It calls the library's own functions and kernels like this one.
        flops: returns the number of floating point operations, for kernels that do many for each byte: long
            dispatches are cut by it.
        init_value: fills the outputs before the kernel runs. Without it, what the kernel does not write is
            undefined.

    Returns:
        A function of tensors that returns the output, or a tuple of several.

    Raises:
        ShaderError: the shader does not compile; the error shows the line.
        ArgumentError: a name or a constant is none.

    Example:
        >>> import numpy as np, dl4all as dl
        >>> scaled_relu = dl.kernel(
        ...     '''
        ...     layout(local_size_x = 64) in;
        ...     layout(binding = 0) readonly buffer X { float x[]; };
        ...     layout(binding = 1) writeonly buffer Y { float y[]; };
        ...     layout(push_constant) uniform Push { uint n; float scale; };
        ...     void main() {
        ...         uint i = gl_GlobalInvocationID.x;
        ...         if (i < n) y[i] = scale * max(x[i], 0.0);
        ...     }
        ...     ''',
        ...     name="scaled_relu",
        ...     outputs=lambda x, scale: [(x.shape, x.dtype)],
        ...     groups=lambda x, scale: (-(-x.numel() // 64),),
        ...     push=lambda x, scale: [("uint", x.numel()), ("float", scale)],
        ...     host=lambda x, scale: scale * np.maximum(x, 0),
        ...     grad=lambda g, x, scale: (g * (x > 0) * scale, None),
        ... )
        >>> x = dl.tensor([1.0, -2.0, 3.0]).requires_grad_()
        >>> y = scaled_relu(x, 2.0)
        >>> y.sum().backward()
        >>> y.tolist(), x.grad.tolist()
        ([2.0, 0.0, 6.0], [2.0, 0.0, 2.0])
    """
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise ArgumentError(f"[kernel] expected a name of letters, digits and _, got {name!r}")
    ids = dict(constants or {})
    if sorted(ids) != list(range(len(ids))):
        raise ArgumentError(f"[{name}] constants must have the ids 0, 1, 2, ..., got {sorted(ids)}")
    values = tuple(integer(name, "a constant", ids[id], 0, 2**32 - 1) for id in range(len(ids)))
    source = glsl if re.search(r"^\s*#\s*version", glsl, re.MULTILINE) else f"#version 450\n#line 1\n{glsl}"
    shader = Shader(f"kernels/{name}.comp", source=source)
    if spirv.can_compile():
        try:
            spirv.load(shader)
        except ShaderError as error:
            raise _with_user_lines(error, name, glsl, sys._getframe(1).f_code.co_filename) from None
    return GlslKernel(shader, name, outputs, groups, push, values, host, grad, flops, init_value)
