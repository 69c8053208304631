"""Work of the host on the CPU's tensors: the one way by which NumPy reads and writes their memory.

In immediate mode the work just runs. While a call is captured it is told, too, with the bytes that it reads
and writes and how it sees them, so that a graph can run it again on other memory. What reads elements in any
other way cannot be replayed, and is refused (:meth:`TensorBase.on_host`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dl4all.ops.core.arguments.tensor_argument import Elements, TensorArgument
from dl4all.ops.core.kernels.host_kernel import (
    REFUSED,
    ArrayLayout,
    HostLaunch,
    kernel_of,
    layout_of,
    recorded,
)
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.ops.core.tensor_base import Shape, TensorBase, from_host, host_array
from dl4all.ops.core.vmap_hook import BatchedTensorBase
from dl4all.scheduler import listeners
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.push_constants import Mark, VaryingFloat, VaryingInt

NDArray = npt.NDArray[Any]


class WorkKernel(NamedTuple):
    """Compiled code for some work: the host kernel of a name, prepared for these constants.

    ``prepare(*constants, reads, writes)`` takes lists of layouts and returns a launch, whose slots begin with
    the addresses of what is read and of what is written, and which is run with the numbers of the work.
    """

    name: str
    constants: tuple[Hashable, ...] = ()

    def launch(self, reads: Sequence[ArrayLayout], writes: Sequence[ArrayLayout]) -> HostLaunch | None:
        """The launch for these layouts; None where the function does the work."""
        prepare = kernel_of(self.name)
        if prepare is None or any(0 in layout.shape for layout in (*reads, *writes)):
            return None
        try:
            return prepare(*self.constants, reads, writes)
        except NoKernel:
            return None


class ArrayView(NamedTuple):
    """The layout of an array in a piece of memory; strides and offset count bytes."""

    shape: Shape
    dtype: np.dtype[Any]
    strides: Shape
    offset: int

    def of(self, memory: npt.NDArray[np.uint8]) -> NDArray:
        """The array in these bytes."""
        if 0 in self.shape:  # NumPy refuses an offset past the end of empty memory
            return np.empty(self.shape, self.dtype)
        return np.ndarray(self.shape, self.dtype, memory, self.offset, self.strides)


@dataclass(frozen=True)
class HostWork:
    """Work that a graph can run again: ``function(*arrays, *numbers)``, with an array for each view.

    Numbers may be marked as varying (:class:`dl4all.scheduler.push_constants.VaryingInt`).
    """

    function: Callable[..., object]
    views: tuple[ArrayView, ...]
    numbers: tuple[Any, ...] = ()
    kernel: WorkKernel | None = None
    launch: HostLaunch | None = field(default=None, compare=False)  # what computed when it was captured

    @property
    def marks(self) -> list[Mark]:
        """The marks of all varying numbers."""
        numbers = list(self.numbers)
        if isinstance(self.function, BodyCall):
            numbers += [*self.function.operands, *self.function.arguments.values()]
        return [n.mark for n in numbers if isinstance(n, (VaryingInt, VaryingFloat))]

    def __call__(self, *memory: npt.NDArray[np.uint8]) -> None:
        """Do it on these bytes, with the numbers of the call that was captured."""
        if self.launch is not None:
            places = [m.ctypes.data + view.offset for view, m in zip(self.views, memory, strict=True)]
            scratch = np.empty(self.launch.scratch, np.uint8)
            self.launch.run([*places, *[scratch.ctypes.data] * bool(scratch.size)], self.numbers)
            return
        with np.errstate(all="ignore"):
            self.function(*(view.of(m) for view, m in zip(self.views, memory, strict=True)), *self.numbers)


@dataclass(frozen=True)
class TensorWork:
    """Work on tensors that asks their device for more, such as a loop whose end the host reads.

    It is the function of a :class:`HostWork`: on the CPU of arrays, which it makes tensors of. The first
    `seen` arrays are there for the graph to know that they are read.
    """

    function: Callable[..., object]
    seen: int
    device: Device
    cls: type[TensorBase]

    def __call__(self, *arrays: NDArray) -> None:
        given = arrays[self.seen :]
        self.function(*[from_host(self.cls, array, self.device, copy=False) for array in given])


def note_tensor_work(
    name: str,
    function: Callable[..., object],
    seen: Sequence[TensorBase],
    reads: Sequence[TensorBase],
    writes: Sequence[TensorBase],
) -> None:
    """Tell listeners of work that was done for them: ``function(*reads, *writes)`` does it again.

    Args:
        name: says what it does, for readers of graphs.
        function: reads and writes nothing but tensors that it is given, and reads what it sees.
        seen: tensors that it reads without being given them.
        reads: contiguous tensors.
        writes: contiguous tensors, whose elements it writes.
    """
    tensors = (*seen, *reads, *writes)
    work = TensorWork(function, len(seen), reads[0].device, type(reads[0]).result_class)
    _captured(name, work, tensors, len(seen) + len(reads), (), None, None)


def condition(tensor: Any) -> bool:
    """The one element of a tensor as a bool, by which the host may do one thing or another."""
    return listeners.condition(tensor) if listeners.captured() else bool(tensor.item())


TENSOR = object()
"""Stands for an operand of which only the array is known."""


@dataclass(frozen=True)
class BodyCall:
    """A call of an op's NumPy body, the function of a :class:`HostWork`.

    The arrays are those of the operands that are :data:`TENSOR`, of the arguments in ``deferred``, and of
    the result. An argument in ``deferred`` is the class of what is made of its array.
    """

    name: str
    body: Callable[..., Any]
    operands: tuple[Any, ...]
    arguments: dict[str, Any]
    deferred: tuple[str, ...] = ()

    def __call__(self, *arrays: NDArray) -> None:
        arrays[-1][...] = self.result(arrays[:-1], self.arguments)

    def result(self, arrays: Sequence[NDArray], arguments: dict[str, Any]) -> Any:
        """The result of the body for these operands."""
        given = iter(arrays)
        operands = [next(given) if operand is TENSOR else operand for operand in self.operands]
        if self.deferred:
            elements = {name: arguments[name].with_elements(next(given)) for name in self.deferred}
            arguments = {**arguments, **elements}
        return self.body(*operands, **arguments)


def holds_elements(arguments: dict[str, Any]) -> bool:
    """Whether an argument knows its elements, which no tensor holds."""
    return any(isinstance(a, TensorArgument) and a.tensor_operand() is None for a in arguments.values())


def body_call(
    name: str, body: Callable[..., Any], operands: Sequence[Any], arguments: dict[str, Any]
) -> tuple[BodyCall, list[TensorBase]]:
    """The call of a body, and the tensors that it reads."""
    tensors = [operand for operand in operands if isinstance(operand, TensorBase)]
    deferred = list[str]()
    plain = dict(arguments)
    for argument, value in arguments.items():
        held = value.tensor_operand() if isinstance(value, TensorArgument) else value
        if isinstance(held, TensorBase):
            tensors.append(held)
            deferred.append(argument)
            plain[argument] = type(value) if isinstance(value, TensorArgument) else Elements
    kept = tuple(TENSOR if isinstance(operand, TensorBase) else operand for operand in operands)
    return BodyCall(name, body, kept, plain, tuple(deferred)), tensors


def host_work(
    name: str,
    function: Callable[..., object],
    reads: Sequence[TensorBase],
    writes: Sequence[TensorBase],
    numbers: Sequence[Any] = (),
    kernel: WorkKernel | None = None,
    launch: HostLaunch | None = None,
) -> None:
    """Run ``function(*arrays, *numbers)`` on the elements of tensors of the CPU.

    Args:
        name: says what it does, for readers of graphs.
        function: must depend on nothing but what it is given, and change nothing but the elements of
            `writes`.
        reads: tensors whose elements it reads.
        writes: tensors whose elements it may write; what it does not write stays.
        numbers: may be marked as varying.
        kernel: does the same, where there is a compiler.
        launch: of compiled code that does the same for these tensors, with these numbers.

    >>> import dl4all as dl
    >>> x, y = dl.tensor([1.0, 2.0], device="cpu"), dl.zeros(2, device="cpu")
    >>> host_work("double", lambda x, y, factor: np.multiply(x, factor, out=y), [x], [y], [2.0])
    >>> y.tolist()
    [2.0, 4.0]
    """
    tensors = (*reads, *writes)
    if listeners.captured():
        noted = launch
        if kernel is not None:
            noted = launch_of(kernel, reads, writes)
        if _captured(name, function, tensors, len(reads), numbers, kernel, noted):
            return
    if kernel is not None and launched(kernel, reads, writes, numbers):
        return
    if launch is not None:
        places = [(tensor.storage, tensor.offset * tensor.dtype.itemsize) for tensor in tensors]
        launch.run_on(tensors[0].device, places, numbers, name)
        return
    arrays = list(map(host_array, tensors))
    run = recorded(name, function, tensors[0].device)
    with np.errstate(all="ignore"):
        run(*arrays, *numbers)


def takes_in_one_pass(name: str, input: TensorBase, *others: TensorBase | None) -> bool:
    """Whether a kernel of the CPU takes a whole computation, for which other devices run several ops.

    Args:
        name: the kernel's.
        input: of float32, and not empty.
        others: further tensors; one that stands for the samples of ``vmap`` is computed with op by op.
    """
    return (
        input.device.is_cpu
        and input.dtype == np.float32
        and 0 not in input.shape
        and not any(isinstance(tensor, BatchedTensorBase) for tensor in (input, *others))
        and not listeners.profiled()
        and kernel_of(name) is not None
    )


def launch_of(
    kernel: WorkKernel, reads: Sequence[TensorBase], writes: Sequence[TensorBase]
) -> HostLaunch | None:
    """The launch that does some work on tensors like these of the CPU; None without one."""
    tensors = (*reads, *writes)
    key = (kernel, len(reads), *[part for t in tensors for part in (t.shape, t.strides, t.dtype.num)])
    plans = tensors[0].device.plans
    launch = plans.get(key)
    if launch is None:
        found = kernel.launch(list(map(layout_of, reads)), list(map(layout_of, writes)))
        launch = REFUSED if found is None else found
        plans.keep(key, launch)
    return None if launch is REFUSED else launch


def launched(
    kernel: WorkKernel, reads: Sequence[TensorBase], writes: Sequence[TensorBase], numbers: Sequence[Any] = ()
) -> bool:
    """Do some work by compiled code; False if there is none for it."""
    for tensor in writes:
        if not tensor.storage.span.buffer.data.flags.writeable:
            return False  # for the function to refuse
    launch = launch_of(kernel, reads, writes)
    if launch is None:
        return False
    tensors = (*reads, *writes)
    launch.run_on(
        tensors[0].device,
        [(tensor.storage, tensor.offset * tensor.dtype.itemsize) for tensor in tensors],
        numbers,
    )
    return True


def _captured(
    name: str,
    function: Callable[..., object],
    tensors: Sequence[TensorBase],
    reads: int,
    numbers: Sequence[Any],
    kernel: WorkKernel | None,
    launch: HostLaunch | None,
) -> bool:
    pieces, views = list[tuple[Any, int, int]](), list[ArrayView]()
    for tensor in tensors:
        start, stop = tensor.byte_range() if math.prod(tensor.shape) else (0, 0)
        pieces.append((tensor.storage, start, stop - start))
        itemsize = tensor.dtype.itemsize
        strides = tuple(stride * itemsize for stride in tensor.strides)
        views.append(ArrayView(tensor.shape, tensor.dtype, strides, tensor.offset * itemsize - start))
    writes = [position >= reads for position in range(len(tensors))]
    work = HostWork(function, tuple(views), tuple(numbers), kernel, launch)
    device, marks = tensors[0].device, work.marks
    prevented = [
        listener.host_call(device, name, work, marks, pieces, writes) for listener in listeners.here()
    ]
    return any(prevented)
